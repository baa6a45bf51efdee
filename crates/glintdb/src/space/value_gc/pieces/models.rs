//! The list of pieces under loom: the production type with units that count.

use super::*;
use glintdb_core::sync::{explore, thread};

struct Nobody;

impl Host for Nobody {
    fn after_job(&self) {}
    fn after_failed_job(&self) {}
}

/// So many steps of which so many are done.
struct Steps(usize, usize);

impl Unit<Nobody> for Steps {
    fn step(&mut self, _host: &Nobody) -> bool {
        self.1 += 1;
        thread::yield_now();
        self.1 == self.0
    }
}

fn helper(pieces: &Arc<Pieces<Steps>>) -> thread::JoinHandle<()> {
    let mut invitation = Invitation(Arc::clone(pieces));
    thread::spawn(move || while let Ok(Progress::More) = invitation.step(&Nobody) {})
}

/// Every unit is handed out once, in order, when its last step is done, whoever did it.
#[test]
fn units_are_handed_out_when_they_are_over() {
    explore("pieces: a helper", Some(3), || {
        let pieces = Pieces::new([Steps(2, 0), Steps(1, 0)]);
        let helper = helper(&pieces);
        let units = loop {
            if pieces.take(&Nobody) {
                continue;
            }
            if let Some(units) = pieces.end() {
                break units;
            }
        };
        let units: Vec<_> = units.iter().map(|unit| (unit.0, unit.1)).collect();
        assert_eq!(units, [(2, 2), (1, 1)]);
        helper.join().unwrap();
    });
}

/// Whoever gives up goes on when nobody is in a unit any more, and nothing is left.
#[test]
fn nobody_is_in_a_unit_that_was_given_up() {
    explore("pieces: given up", Some(3), || {
        let pieces = Pieces::new([Steps(2, 0), Steps(1, 0)]);
        let helper = helper(&pieces);
        pieces.take(&Nobody);
        pieces.give_up();
        {
            let state = pieces.state.lock();
            assert!(state.taken == 0 && state.waiting.is_empty() && state.over.is_empty());
        }
        assert!(!pieces.take(&Nobody));
        helper.join().unwrap();
    });
}
