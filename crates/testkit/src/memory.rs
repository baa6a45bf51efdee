//! Loads whose memory is easily forgotten: long keys, many keyspaces, many tables, range deletions.
//! Each stage of a load runs in a process of its own, which reports the most memory that it had.
//!
//! Thread safety: none is needed. The parent starts one process after the other.

use crate::rng::Rng;
use crate::sweep::campaign::resident_bytes_max;
use glintdb::{Db, Keyspace, KeyspaceOptions, Options};
use std::fmt;
use std::path::Path;
use std::process::Command;

/// Memory that a process may take beyond the budget.
pub const ALLOWANCE_BYTES: u64 = 64 << 20;

/// Bytes at the end of a long key that it does not share with the others.
const APART_BYTES: usize = 20;
/// Bytes of each value.
const VALUE_BYTES: usize = 100;
/// Records of a table of the smallest size: as many as are written before its size is looked at.
const TABLE_RECORDS: usize = 16;

/// A load, by what is unusual about it.
#[derive(Clone, Debug)]
pub enum Load {
    /// Keys of `bytes_min` to `bytes_max` bytes, `bytes` in all, that share all but 20 bytes.
    LongKeys {
        /// Bytes of the shortest key.
        bytes_min: usize,
        /// Bytes of the longest key.
        bytes_max: usize,
        /// Bytes of all keys.
        bytes: usize,
        /// Where the bytes are that they do not share.
        apart: Apart,
    },
    /// Keyspaces with as many records each.
    Keyspaces {
        /// Number of keyspaces.
        count: usize,
        /// Records of each.
        records: usize,
    },
    /// Tables of a page.
    Tables {
        /// Number of tables.
        count: usize,
    },
    /// Deletions of ranges that do not touch, and no records.
    RangeDeletions {
        /// Number of deletions.
        count: usize,
    },
}

/// Where long keys differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Apart {
    /// At the front: blocks have nothing to share.
    Front,
    /// At the end.
    End,
}

/// The stages of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Writes everything, and ends as by `kill -9`.
    Write,
    /// Opens the database, which replays the log, reads everything, and compacts.
    Read,
}

impl Stage {
    /// Both, in order.
    pub const ALL: [Stage; 2] = [Stage::Write, Stage::Read];

    /// The name, as a child process is given it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Stage::Write => "write",
            Stage::Read => "read",
        }
    }
}

/// A load under a memory budget.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// What it writes.
    pub load: Load,
    /// `Options::memory_budget_bytes`.
    pub budget_bytes: usize,
}

/// What a stage took.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The most memory that the process had.
    pub peak_bytes: u64,
    /// What the engine counted at the end of each part of the stage.
    pub account: String,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.peak_bytes as f64 / f64::from(1 << 20);
        write!(f, "peak {mib:.1} MiB\n{}", self.account)
    }
}

/// The cases, of `1 / part` of their full size.
#[must_use]
pub fn cases(part: usize) -> Vec<Case> {
    let case = |name, load, budget: usize| Case {
        name,
        load,
        budget_bytes: (budget << 20).div_ceil(part).max(16 << 20),
    };
    let long = |(kib_min, kib_max): (usize, usize), mib: usize, apart| Load::LongKeys {
        bytes_min: kib_min << 10,
        bytes_max: kib_max << 10,
        bytes: (mib << 20) / part,
        apart,
    };
    let (count, records) = (2000 / part, 100);
    vec![
        case("keys-4k", long((4, 4), 390, Apart::End), 64),
        case("keys-64k", long((64, 64), 500, Apart::End), 64),
        case("keys-4k-64k", long((4, 64), 500, Apart::End), 64),
        case("keys-apart-in-front", long((4, 64), 500, Apart::Front), 64),
        case("keyspaces", Load::Keyspaces { count, records }, 64),
        case(
            "tables",
            Load::Tables {
                count: 10_000 / part,
            },
            64,
        ),
        case(
            "range-deletions",
            Load::RangeDeletions {
                count: 2_000_000 / part,
            },
            64,
        ),
    ]
}

/// Runs a stage in a child process. `command` is this program with the arguments that make it call
/// [`child`].
///
/// # Errors
/// In words, if the child fails.
pub fn measure(mut command: Command, stage: Stage) -> Result<Measured, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let ended_as_told = stage == Stage::Write || output.status.success();
    let peak = text
        .lines()
        .find_map(|line| line.strip_prefix("peak_bytes "));
    let peak = peak.and_then(|peak| peak.parse().ok());
    match peak.filter(|_| ended_as_told) {
        Some(peak_bytes) => Ok(Measured {
            peak_bytes,
            account: text.lines().filter(|line| line.contains(':')).fold(
                String::new(),
                |mut account, line| {
                    account.push_str(line);
                    account.push('\n');
                    account
                },
            ),
        }),
        None => Err(format!(
            "{}\n{text}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

/// Does a stage in this process, and prints what it took. Does not return from
/// [`Stage::Write`].
///
/// # Panics
/// If the engine fails, or a record is missing or wrong.
#[allow(clippy::print_stdout, reason = "the parent reads it")]
pub fn child(case: &Case, stage: Stage, dir: &Path) {
    let options = case.options();
    raise_descriptors();
    let db = options.open(dir).unwrap();
    let mut note = |what: &str, db: &Db| println!("{}", account(what, db));
    match stage {
        Stage::Write => {
            case.write(&db);
            note("written", &db);
            println!("peak_bytes {}", resident_bytes_max());
            std::process::abort();
        }
        Stage::Read => {
            note("opened", &db);
            case.read(&db, &mut note);
            // It would take minutes for thousands of keyspaces.
            if !matches!(case.load, Load::Keyspaces { .. }) {
                db.compact().unwrap();
                note("compacted", &db);
            }
            db.close().unwrap();
            println!("peak_bytes {}", resident_bytes_max());
        }
    }
}

/// What the engine counts by part, and the most memory that the process had so far, in MiB.
fn account(what: &str, db: &Db) -> String {
    let stats = db.stats();
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    let parts = stats.memory.parts.iter();
    let parts: Vec<_> = parts
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(name, bytes)| format!("{name} {}", mib(*bytes)))
        .collect();
    let tables: u64 = stats.keyspaces.iter().map(|one| one.index_bytes).sum();
    let files: u64 = stats.keyspaces.iter().map(|one| one.index_files).sum();
    format!(
        "{what}: peak {}; counted {} ({}); {files} tables of {}",
        mib(resident_bytes_max()),
        mib(stats.memory.used_bytes),
        parts.join(", "),
        mib(tables)
    )
}

/// Descriptors are not what is measured.
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let hard = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: hard,
        maximum: hard,
    };
    // Without it the engine reports that there are too few.
    let _reported_by_the_engine = setrlimit(Resource::Nofile, limit);
}

fn value(n: usize) -> [u8; VALUE_BYTES] {
    [n.to_le_bytes()[0]; VALUE_BYTES]
}

impl Case {
    fn options(&self) -> Options {
        let options = Options::default().memory_budget_bytes(self.budget_bytes);
        options.background_threads(4)
    }

    /// The number of records of a keyspace.
    fn records(&self) -> usize {
        match self.load {
            Load::LongKeys {
                bytes_min,
                bytes_max,
                bytes,
                ..
            } => bytes / ((bytes_min + bytes_max) / 2),
            Load::Keyspaces { records, .. } => records,
            Load::Tables { count } => count * TABLE_RECORDS,
            Load::RangeDeletions { .. } => 0,
        }
    }

    /// The key of a record.
    fn key(&self, n: usize) -> Vec<u8> {
        match self.load {
            Load::LongKeys {
                bytes_min,
                bytes_max,
                apart,
                ..
            } => {
                let mut rng = Rng::of(&[n as u64]);
                let length = bytes_min + rng.below((bytes_max - bytes_min + 1) as u64) as usize;
                let shared = vec![b's'; length - APART_BYTES];
                let number = format!("{:020}", rng.number()).into_bytes();
                match apart {
                    Apart::Front => [number, shared].concat(),
                    Apart::End => [shared, number].concat(),
                }
            }
            _ => format!("key{n:09}").into(),
        }
    }

    fn keyspaces(&self, db: &Db) -> Vec<Keyspace> {
        match self.load {
            Load::LongKeys { .. } | Load::RangeDeletions { .. } => vec![db.default_keyspace()],
            Load::Keyspaces { count, .. } => (0..count)
                .map(|number| {
                    let name = format!("keyspace{number}");
                    db.keyspace_or_create(&name, KeyspaceOptions::default())
                        .unwrap()
                })
                .collect(),
            Load::Tables { .. } => {
                let mut options = KeyspaceOptions::default();
                options.set("table_bytes_target", "4K").unwrap();
                vec![db.keyspace_or_create("tables", options).unwrap()]
            }
        }
    }

    fn write(&self, db: &Db) {
        let keyspaces = self.keyspaces(db);
        for n in 0..self.records() {
            for keyspace in &keyspaces {
                keyspace.put(self.key(n), value(n)).unwrap();
            }
        }
        if let Load::RangeDeletions { count } = self.load {
            for n in 0..count {
                // A prime, so that every second key begins a range once, in scattered order.
                let start = n * 999_999_937 % count * 2;
                let range = self.key(start)..self.key(start + 1);
                keyspaces[0].delete_range(range).unwrap();
            }
        }
    }

    /// Reads everything: by scans both ways, by records that are kept, by gets and by multi-gets.
    fn read(&self, db: &Db, note: &mut impl FnMut(&str, &Db)) {
        let keyspaces = self.keyspaces(db);
        let records = self.records();
        for keyspace in &keyspaces {
            let (mut found, mut iter) = (0, keyspace.iter());
            while iter.next_ref().unwrap().is_some() {
                found += 1;
            }
            assert_eq!(found, records);
        }
        note("scanned", db);
        for keyspace in &keyspaces {
            assert_eq!(keyspace.iter().rev().map(Result::unwrap).count(), records);
        }
        note("scanned back", db);
        for keyspace in keyspaces.iter().step_by(keyspaces.len().div_ceil(100)) {
            for n in (0..records).step_by(records.div_ceil(1000).max(1)) {
                let found = keyspace.get(self.key(n)).unwrap();
                assert_eq!(found.as_deref(), Some(&value(n)[..]));
            }
        }
        note("got", db);
        let numbers: Vec<usize> = (0..records).step_by(records.div_ceil(500).max(1)).collect();
        let keys: Vec<Vec<u8>> = numbers.iter().map(|&n| self.key(n)).collect();
        let values = keyspaces[0].multi_get(&keys);
        for (n, found) in numbers.into_iter().zip(values) {
            assert_eq!(found.unwrap().as_deref(), Some(&value(n)[..]));
        }
        note("got together", db);
    }
}
