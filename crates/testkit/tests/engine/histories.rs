//! The checks of `glint-histories` bite: each kind of wrong behaviour, put between clients and engine, is noticed; and without it nothing is.

use glintdb_testkit::histories::round::{Found, Round};
use glintdb_testkit::histories::stage::Crash;
use glintdb_testkit::histories::wrong::Wrong;
use glintdb_testkit::options::{self, Lane};
use glintdb_testkit::place::Place;

fn round(seed: u64, epochs: &[Crash], calls: u64, wrong: Option<Wrong>) -> Round {
    let sets = options::of(Lane::Histories);
    Round {
        set: sets[seed as usize % sets.len()].clone(),
        epochs: epochs.to_vec(),
        clients: 16,
        calls,
        seed,
        wrong,
        loose: false,
    }
}

fn both(round: &Round) -> Found {
    let mut found = round.registers(Place::memory()).unwrap();
    let isolation = round.isolation(Place::memory()).unwrap();
    found.add(&isolation);
    found.wrong.extend(isolation.wrong);
    found
}

#[test]
fn histories_across_every_kind_of_crash_are_linearizable_and_isolated() {
    let crashes = [
        Crash::Kill,
        Crash::PowerCut,
        Crash::TornPowerCut,
        Crash::None,
    ];
    for seed in 0..3 {
        let found = both(&round(seed, &crashes, 1_000, None));
        assert_eq!(found.wrong, Vec::<String>::new(), "seed {seed}");
        assert!(
            found.checked.operations > 4_000 && found.isolated > 500,
            "{found:?}"
        );
        assert_eq!(found.crashes, 6);
    }
}

#[test]
fn every_wrong_behaviour_is_noticed() {
    // Whether one of them shows in a round depends on how threads run: stale reads do in three rounds of eight.
    const ROUNDS_MAX: u64 = 100;
    for (name, wrong) in Wrong::ALL {
        let noticed = (0..ROUNDS_MAX).any(|seed| {
            let round = round(seed, &[Crash::None; 2], 6_000, Some(wrong));
            !both(&round).wrong.is_empty()
        });
        assert!(noticed, "{name}");
    }
}
