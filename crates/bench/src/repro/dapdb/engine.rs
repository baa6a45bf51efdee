//! Figures 6 to 9 of the DapDB paper, and the search for a rule: a database on the modelled drive
//! of the paper, in virtual time.

use crate::report::Latency;
use crate::repro::{Comparison, Figure, Line, Row};
use crate::store::Result;
use crate::virtual_run::{Outcome, Phase, Setup, run};
use glintdb_flash::DataClass;
use glintdb_flash::emulator::nand::Profile;
use glintdb_flash::emulator::{Placement, Rule};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Percent of gets of the paper's runs.
const SHARES: [u64; 9] = [10, 20, 30, 40, 50, 60, 70, 80, 90];
const QUICK_SHARES: [u64; 3] = [10, 50, 90];
/// Intervals of figure 9, and how many of them the first phase has.
const INTERVALS: u64 = 50;
const FIRST_INTERVALS: u64 = 30;
/// Ranks of levels in figures 7 and 8: level 0, then the levels beneath it.
const RANKS: u8 = 4;

/// Placements that are compared with striping.
const PLACEMENTS: [(&str, &str); 3] = [
    ("3:3:2", "isolation:3:3:2"),
    ("our rule", "isolation"),
    ("dynamic", "dynamic"),
];

/// Parts of the paper's numbers of records and operations, and of the memory.
fn setup(quick: bool) -> Result<Setup> {
    let setup = Setup::new(Profile::named("westlake-mlc")?);
    let part = if quick { 16 } else { 8 };
    Ok(Setup {
        loaded: setup.loaded / part,
        records: setup.records / part,
        options: (setup.options).memory_budget_bytes((256 << 20) / part as usize),
        ..setup
    })
}

fn operations(quick: bool) -> u64 {
    if quick { 12_000 } else { 25_000 }
}

/// Runs setups beside each other: each is one thread at a time.
fn run_all(setups: &[Setup]) -> Result<Vec<Outcome>> {
    let next = AtomicUsize::new(0);
    let outcomes: Mutex<Vec<Option<std::result::Result<Outcome, String>>>> =
        Mutex::new(vec![None; setups.len()]);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((number, setup)) = {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    setups.get(number).map(|setup| (number, setup))
                } {
                    let outcome = run(setup).map_err(|error| error.to_string());
                    outcomes.lock().unwrap_or_else(PoisonError::into_inner)[number] = Some(outcome);
                }
            });
        }
    });
    let outcomes = outcomes
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    outcomes
        .into_iter()
        .map(|outcome| Ok(outcome.ok_or("a run did not begin")??))
        .collect()
}

/// Where values are, and how files lie on the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Case {
    /// Values in tables, a virtual block for each file: as the paper.
    Paper,
    /// Values in tables, files as GlintDB places them.
    Inline,
    /// Values in the log, files as GlintDB places them: GlintDB's default.
    Separated,
}

const CASES: [(Case, &str); 3] = [
    (Case::Paper, "as the paper"),
    (Case::Inline, "inline"),
    (Case::Separated, "separated"),
];

/// The runs of figures 6 to 8, by case, placement and percent of gets.
type Sweep = BTreeMap<(Case, &'static str, u64), Outcome>;

/// Runs them, once for all figures.
fn sweep(quick: bool) -> Result<Arc<Sweep>> {
    static KEPT: Mutex<BTreeMap<bool, Arc<Sweep>>> = Mutex::new(BTreeMap::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(sweep) = kept.get(&quick) {
        return Ok(Arc::clone(sweep));
    }
    let shares: &[u64] = if quick { &QUICK_SHARES } else { &SHARES };
    let (mut keys, mut setups) = (Vec::new(), Vec::new());
    for (case, _) in CASES {
        for (name, placement) in [("striping", "striping")].into_iter().chain(PLACEMENTS) {
            for share in shares {
                keys.push((case, name, *share));
                let operations = operations(quick);
                let phase = Phase {
                    operations,
                    read_percent: *share,
                };
                setups.push(Setup {
                    placement: Placement::parse(placement)?,
                    virtual_blocks: case == Case::Paper,
                    separated: case == Case::Separated,
                    phases: vec![phase],
                    ..setup(quick)?
                });
            }
        }
    }
    let sweep: Sweep = keys.into_iter().zip(run_all(&setups)?).collect();
    let sweep = Arc::new(sweep);
    kept.insert(quick, Arc::clone(&sweep));
    Ok(sweep)
}

fn gets(outcome: &Outcome) -> Latency {
    let phase = outcome.phases.first();
    phase
        .and_then(|phase| phase.gets.summary())
        .unwrap_or_default()
}

fn rate(outcome: &Outcome) -> f64 {
    outcome.phases.first().map_or(0.0, |phase| phase.ops_per_s)
}

/// What `part` is of a placement's runs, divided by striping's, by the percent of gets.
fn ratios(
    sweep: &Sweep,
    case: Case,
    placement: &'static str,
    part: &dyn Fn(&Outcome) -> f64,
) -> Vec<(u64, f64)> {
    let of = |(key, outcome): (&(Case, &'static str, u64), &Outcome)| {
        let (of_case, name, share) = *key;
        let striping = sweep.get(&(case, "striping", share))?;
        (of_case == case && name == placement).then(|| (share, part(outcome) / part(striping)))
    };
    sweep.iter().filter_map(of).collect()
}

fn mean(ratios: &[(u64, f64)]) -> f64 {
    ratios.iter().map(|(_, ratio)| ratio).sum::<f64>() / ratios.len().max(1) as f64
}

/// Lines of `part` by the percent of gets, of the paper's case and GlintDB's.
fn lines(sweep: &Sweep, part: &dyn Fn(&Outcome) -> f64) -> Vec<Line> {
    let mut lines = Vec::new();
    for (case, case_name) in CASES {
        for name in ["striping", "3:3:2", "our rule", "dynamic"] {
            let of = sweep
                .iter()
                .filter(|(key, _)| key.0 == case && key.1 == name);
            lines.push(Line {
                name: format!("{name}, {case_name}"),
                points: of
                    .map(|(key, outcome)| (key.2 as f64, part(outcome)))
                    .collect(),
            });
        }
    }
    lines
}

fn note(quick: bool) -> Result<Vec<String>> {
    let setup = setup(quick)?;
    Ok(vec![
        format!(
            "A database in virtual time on the modelled drive of the paper (`westlake-mlc`, 16 channels of 8 LUNs): \
             {} clients, values of {} KiB, {} records put before, {} operations on {} records, {} MiB of memory, {} \
             background threads, {} processors. The paper has 100,000, 600,000 and 600,000.",
            setup.clients,
            setup.value_bytes >> 10,
            setup.loaded,
            operations(quick),
            setup.records,
            setup.options.memory_budget_bytes >> 20,
            setup.options.background_threads,
            setup.costs.processors,
        ),
        "As the paper: values are in tables, and each file has a virtual block over all LUNs of its group, erased at \
         once. Inline: values are in tables, small files share superblocks, and erases are spread. Separated: the \
         same, with values in the log, as GlintDB does it."
            .into(),
    ])
}

/// Figures 6a and 6b: `part` of a run by the percent of gets. `rows` makes the rows of a case and
/// placement: it gets their name, and the ratios by the percent of gets.
fn by_share(
    figure: &Figure,
    quick: bool,
    part: &dyn Fn(&Outcome) -> f64,
    axis: &'static str,
    rows: impl Fn(&str, &[(u64, f64)]) -> Vec<Row>,
) -> Result<Comparison> {
    let sweep = sweep(quick)?;
    let mut all = Vec::new();
    for (case, case_name) in CASES {
        for (name, _) in PLACEMENTS {
            let ratios = ratios(&sweep, case, name, part);
            all.extend(rows(&format!("{name}, {case_name}"), &ratios));
        }
    }
    Ok(Comparison {
        paper: figure.paper,
        figure: figure.number,
        title: figure.title,
        notes: note(quick)?,
        rows: all,
        axes: ("percent of gets", axis),
        x_doubles: false,
        lines: lines(&sweep, part),
    })
}

/// The ratio at 10 % gets.
fn at_10(ratios: &[(u64, f64)]) -> f64 {
    let at_10 = ratios.iter().find(|(share, _)| *share == 10);
    at_10.map_or(0.0, |(_, ratio)| *ratio)
}

/// Figure 6a: operations a second by the percent of gets.
pub(in crate::repro) fn figure_6a(figure: &Figure, quick: bool) -> Result<Comparison> {
    by_share(
        figure,
        quick,
        &rate,
        "operations a second",
        |name, ratios| {
            let best = ratios.iter().map(|(_, ratio)| *ratio).fold(0.0, f64::max);
            vec![
                Row::ratio(&format!("{name}: mean"), 1.20, mean(ratios)),
                Row::ratio(&format!("{name}: best"), 1.47, best),
                Row::less_than(&format!("{name}: 10 % gets"), 1.0, at_10(ratios)),
            ]
        },
    )
}

/// Figure 6b: mean time of gets by their percent.
pub(in crate::repro) fn figure_6b(figure: &Figure, quick: bool) -> Result<Comparison> {
    let part = |outcome: &Outcome| gets(outcome).mean_us;
    let axis = "mean time of a get, microseconds";
    by_share(figure, quick, &part, axis, |name, ratios| {
        vec![
            Row::ratio(&format!("{name}: mean"), 0.57, mean(ratios)),
            Row::ratio(&format!("{name}: 10 % gets"), 0.33, at_10(ratios)),
        ]
    })
}

/// The rank of a class: 0 for tables of flushes, and levels from 1.
fn rank(class: DataClass) -> Option<u8> {
    match class {
        DataClass::Flush => Some(0),
        DataClass::Level { rank, .. } => Some(rank),
        _ => None,
    }
}

/// Small reads of tables of a rank: their number, and what `part` is of their times.
fn of_rank(outcome: &Outcome, wanted: u8, quantile: Option<f64>) -> Option<(u64, f64)> {
    let of = outcome
        .device
        .reads
        .iter()
        .filter(|(class, _)| rank(**class) == Some(wanted));
    let mut all: Option<glintdb_flash::emulator::ClassReads> = None;
    for (_, reads) in of {
        match &mut all {
            Some(all) => all.latencies.add(&reads.latencies).ok()?,
            None => all = Some(reads.clone()),
        }
    }
    let latencies = all?.latencies;
    let us = match quantile {
        Some(quantile) => latencies.value_at_quantile(quantile) as f64 / 1000.0,
        None => latencies.mean() / 1000.0,
    };
    Some((latencies.len(), us))
}

/// Figures 7 and 8: times of reads by the rank of their level.
fn by_rank(figure: &Figure, quick: bool, quantile: Option<f64>) -> Result<Comparison> {
    /// Reads of a rank, below which a quantile says nothing.
    const READS_MIN: u64 = 200;
    let sweep = sweep(quick)?;
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    for (case, case_name) in &CASES[..2] {
        for (name, _) in PLACEMENTS {
            let mut ratios = Vec::new();
            for wanted in 0..=RANKS {
                for (key, outcome) in sweep
                    .iter()
                    .filter(|(key, _)| key.0 == *case && key.1 == name)
                {
                    let striping = sweep.get(&(*case, "striping", key.2));
                    let striping = striping.and_then(|it| of_rank(it, wanted, quantile));
                    let of = of_rank(outcome, wanted, quantile);
                    if let (Some(of), Some(striping)) = (of, striping)
                        && of.0.min(striping.0) >= READS_MIN
                    {
                        ratios.push((u64::from(wanted), of.1 / striping.1));
                    }
                }
            }
            let least = ratios
                .iter()
                .map(|(_, ratio)| *ratio)
                .fold(f64::MAX, f64::min);
            let most = ratios.iter().map(|(_, ratio)| *ratio).fold(0.0, f64::max);
            let below = ratios.iter().filter(|(_, ratio)| *ratio < 1.0).count();
            let below = below as f64 / ratios.len().max(1) as f64;
            if quantile.is_some() {
                rows.push(Row::ratio(
                    &format!("{name}, {case_name}: best"),
                    0.04,
                    least,
                ));
            }
            rows.push(Row::less_than(
                &format!("{name}, {case_name}: worst"),
                1.0,
                most,
            ));
            rows.push(Row::more_than(
                &format!("{name}, {case_name}: part of levels and shares that gain"),
                0.99,
                below,
            ));
        }
    }
    for name in ["striping", "3:3:2", "our rule", "dynamic"] {
        for wanted in 0..=RANKS {
            let of = sweep
                .iter()
                .filter(|(key, _)| key.0 == Case::Paper && key.1 == name);
            let points: Vec<_> = of
                .filter_map(|(key, outcome)| {
                    let (reads, us) = of_rank(outcome, wanted, quantile)?;
                    (reads >= READS_MIN).then_some((key.2 as f64, us))
                })
                .collect();
            if !points.is_empty() {
                lines.push(Line {
                    name: format!("{name}, level {wanted}"),
                    points,
                });
            }
        }
    }
    Ok(Comparison {
        paper: figure.paper,
        figure: figure.number,
        title: figure.title,
        notes: note(quick)?,
        rows,
        axes: ("percent of gets", "time of a read, microseconds"),
        x_doubles: false,
        lines,
    })
}

/// Figure 7: mean times of reads by level.
pub(in crate::repro) fn figure_7(figure: &Figure, quick: bool) -> Result<Comparison> {
    by_rank(figure, quick, None)
}

/// Figure 8: 99th percentile of the times of reads by level.
pub(in crate::repro) fn figure_8(figure: &Figure, quick: bool) -> Result<Comparison> {
    by_rank(figure, quick, Some(0.99))
}

/// Figure 9: throughput while the share of gets changes.
pub(in crate::repro) fn figure_9(figure: &Figure, quick: bool) -> Result<Comparison> {
    let all = if quick { 25_000 } else { 50_000 };
    let placements = [
        ("striping", "striping"),
        ("3:3:2", "isolation:3:3:2"),
        ("our rule", "isolation"),
        ("dynamic", "dynamic"),
    ];
    // The text has 10 % of gets in the phase that it calls read-intensive: both readings.
    let readings = [("gets first", [90, 10]), ("puts first", [10, 90])];
    let (mut keys, mut setups) = (Vec::new(), Vec::new());
    for (reading, shares) in readings {
        for (name, placement) in placements {
            let parts = [FIRST_INTERVALS, INTERVALS - FIRST_INTERVALS];
            let phases = parts.iter().zip(shares).map(|(part, read_percent)| Phase {
                operations: all * part / INTERVALS,
                read_percent,
            });
            keys.push((reading, name));
            setups.push(Setup {
                placement: Placement::parse(placement)?,
                virtual_blocks: true,
                phases: phases.collect(),
                intervals: INTERVALS,
                ..setup(quick)?
            });
        }
    }
    let outcomes: BTreeMap<_, _> = keys.into_iter().zip(run_all(&setups)?).collect();
    let (mut rows, mut notes) = (Vec::new(), note(quick)?);
    for (reading, shares) in readings {
        for (phase, share) in shares.iter().enumerate() {
            // The second half of each phase: the dynamic placement has reacted by then.
            let half = match phase {
                0 => FIRST_INTERVALS / 2..FIRST_INTERVALS,
                _ => (FIRST_INTERVALS + INTERVALS) / 2..INTERVALS,
            };
            let of = |name| {
                let outcome: Option<&Outcome> = outcomes.get(&(reading, name));
                let rates = outcome.map_or(&[][..], |it| &it.intervals);
                let rates = rates.get(half.start as usize..half.end as usize);
                let times = rates.unwrap_or_default().iter().map(|rate| 1.0 / rate);
                (half.end - half.start) as f64 / times.sum::<f64>().max(1e-9)
            };
            let better = of("striping").max(of("our rule"));
            rows.push(Row::more_than(
                &format!("{reading}, {share} % gets: dynamic by the better static placement"),
                1.0,
                of("dynamic") / better.max(1e-9),
            ));
            rows.push(match share {
                90 => Row::more_than(
                    &format!("{reading}, 90 % gets: 3:3:2 by striping"),
                    1.0,
                    of("3:3:2") / of("striping"),
                ),
                _ => Row::less_than(
                    &format!("{reading}, 10 % gets: 3:3:2 by striping"),
                    1.0,
                    of("3:3:2") / of("striping"),
                ),
            });
        }
        if let Some(outcome) = outcomes.get(&(reading, "dynamic")) {
            let start = outcome.started_ns;
            let changes = outcome.device.changes.iter().map(|change| {
                let at_ms = change.at_ns as f64 / 1e6 - start as f64 / 1e6;
                let name = if change.is_isolated {
                    "isolation"
                } else {
                    "striping"
                };
                format!(
                    "{name} from {at_ms:.0} ms on (busy {:.2}, waits {:.2}, meetings {:.2})",
                    change.busy, change.wait, change.meetings
                )
            });
            let changes: Vec<_> = changes.collect();
            let boundary = outcome.phase_ends_ns.first().copied().unwrap_or(start) - start;
            notes.push(format!(
                "{reading}: the second phase begins after {} ms; dynamic: {}.",
                boundary / 1_000_000,
                if changes.is_empty() {
                    "no change".into()
                } else {
                    changes.join("; ")
                }
            ));
        }
    }
    let lines = outcomes.iter().filter(|(key, _)| key.0 == "gets first");
    let lines = lines.map(|((_, name), outcome)| Line {
        name: (*name).into(),
        points: (outcome.intervals.iter().enumerate())
            .map(|(number, rate)| (number as f64 + 1.0, *rate))
            .collect(),
    });
    Ok(Comparison {
        paper: figure.paper,
        figure: figure.number,
        title: figure.title,
        notes,
        rows,
        axes: ("interval", "operations a second"),
        x_doubles: false,
        lines: lines.collect(),
    })
}

/// Rules of the search: weights of the paper's groups, and other groups.
const RULES: [&str; 18] = [
    "3:3:2",
    "1:1:1",
    "1:1:2",
    "1:2:5",
    "1:1:6",
    "1:1:14",
    "1:3:12",
    "log=1,flush+level1-+relocated=3",
    "log=1,flush+level1-+relocated=7",
    "log=1,flush+level1-+relocated=15",
    "log=1,flush+level1-+relocated=31",
    "log+flush=1,level1-+relocated=1",
    "log+flush=1,level1-+relocated=3",
    "log+flush=1,level1-+relocated=7",
    "log+level1=1,flush+level2-+relocated=3",
    "log=1,flush+level1=3,level2-+relocated=12",
    "log=1,flush=2,level1=3,level2-+relocated=10",
    "log=1,flush+level1=1,level2-+relocated=6",
];

/// The search for a rule: for three shares of gets, throughput and mean time of gets, divided by
/// striping's. The score is the geometric mean of all gains.
pub(in crate::repro) fn rules(figure: &Figure, quick: bool) -> Result<Comparison> {
    let mut setups = Vec::new();
    for rule in [None].into_iter().chain(RULES.map(Some)) {
        for share in QUICK_SHARES {
            let placement = match rule {
                None => Placement::Striping,
                Some(rule) => Placement::Isolation(Rule::parse(rule)?),
            };
            setups.push(Setup {
                placement,
                phases: vec![Phase {
                    operations: operations(quick),
                    read_percent: share,
                }],
                ..setup(quick)?
            });
        }
    }
    let outcomes = run_all(&setups)?;
    let (striping, others) = outcomes.split_at(QUICK_SHARES.len());
    let mut notes = note(quick)?;
    let mut table = String::from(
        "| rule | rate, 10 % gets | 50 % | 90 % | mean get, 10 % | 50 % | 90 % | score |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let mut scores = Vec::new();
    for (rule, of) in RULES.iter().zip(others.chunks(QUICK_SHARES.len())) {
        let ratio = |part: &dyn Fn(&Outcome) -> f64| -> Vec<f64> {
            of.iter()
                .zip(striping)
                .map(|(it, striping)| part(it) / part(striping))
                .collect()
        };
        let rates = ratio(&rate);
        let means = ratio(&|it| gets(it).mean_us);
        let sum: f64 = rates.iter().map(|it| it.ln()).sum::<f64>()
            - means.iter().map(|it| it.ln()).sum::<f64>();
        let score = (sum / (2 * QUICK_SHARES.len()) as f64).exp();
        scores.push((*rule, score));
        let cells: Vec<_> = rates
            .iter()
            .chain(&means)
            .map(|it| format!("{it:.2}"))
            .collect();
        table.push_str(&format!(
            "| `{rule}` | {} | {score:.3} |\n",
            cells.join(" | ")
        ));
    }
    notes.push(
        "Each rule's operations a second and mean time of a get, divided by those of striping; values in tables, \
         files as GlintDB places them. The score is the geometric mean of all gains."
            .into(),
    );
    notes.push(table);
    let best = scores.iter().map(|(_, score)| *score).fold(0.0, f64::max);
    let paper = scores.first().map_or(0.0, |(_, score)| *score);
    Ok(Comparison {
        paper: figure.paper,
        figure: figure.number,
        title: figure.title,
        notes,
        rows: vec![
            Row::more_than("score of 3:3:2", 1.0, paper),
            Row::more_than("best score", 1.0, best),
        ],
        axes: ("rule, as numbered in the table", "score"),
        x_doubles: false,
        lines: vec![Line {
            name: "score".into(),
            points: (scores.iter().enumerate())
                .map(|(number, (_, score))| (number as f64 + 1.0, *score))
                .collect(),
        }],
    })
}
