//! Opens one damaged image, reads every key in every way, verifies, closes, and says what came of it.
//!
//! Invariants: 1. an answer without an error is the right one, or all answers together are an exact earlier state that the damage may be taken for. 2. An error names a
//! damaged file and a place in a damaged unit of it. 3. A key whose bytes were not hit can be read. 4. Whatever an open or a read complained of, verification does too.

use super::mutation::{Damage, Mutation};
use super::subjects::{State, Subject};
use super::units::Units;
use bytes::Bytes;
use glintdb::{Db, Error, ErrorKind};
use glintdb_core::FileId;
use glintdb_flash::Volume;
use glintdb_simdisk::{Contents, MemOptions, MemVolume};
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// A key that readers ask for and that never was in any keyspace.
pub(super) const NEVER_THERE: &[u8] = b"never there";

/// What came of a mutation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Outcome {
    /// The database refused to open, and named the file.
    Open,
    /// It opened; reading what was hit was an error, and everything else was right.
    Read,
    /// Every answer was right; checking told of the damage.
    Check,
    /// Nobody needs these bytes.
    Harmless,
    /// The end of the log was taken for torn: an exact earlier state, and nothing that had been acknowledged as durable is missing.
    Tail,
    /// The same, and commits acknowledged as durable are missing: what the formats say cannot be told from a torn write.
    SyncedTail,
    /// Anything else, and why.
    Wrong(String),
}

impl Outcome {
    /// Its column in tables.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::Open => "at open",
            Outcome::Read => "at read",
            Outcome::Check => "by check",
            Outcome::Harmless => "harmless",
            Outcome::Tail => "tail",
            Outcome::SyncedTail => "synced tail",
            Outcome::Wrong(_) => "WRONG",
        }
    }

    /// Every column, in order.
    pub const NAMES: [&'static str; 7] = [
        "at open",
        "at read",
        "by check",
        "harmless",
        "tail",
        "synced tail",
        "WRONG",
    ];
}

/// What the probes of one subject share.
pub struct Prober<'a> {
    subject: &'a Subject,
    units: Units,
    /// Every key of each keyspace, and one that was never there.
    keys: Vec<(&'a str, Vec<Vec<u8>>)>,
}

/// What reading everything gave.
#[derive(Default)]
struct Answers {
    /// (keyspace, key, what was wrong).
    errors: Vec<(Vec<u8>, Error)>,
    /// The first answer that is not the one expected.
    wrong: Option<String>,
}

impl<'a> Prober<'a> {
    /// For a subject. The undamaged image must be faultless.
    #[must_use]
    pub fn new(subject: &'a Subject) -> Prober<'a> {
        let keys = subject.keys.iter().map(|(space, keys)| {
            let mut keys: Vec<Vec<u8>> = keys.iter().cloned().collect();
            keys.push(NEVER_THERE.to_vec());
            (space.as_str(), keys)
        });
        let prober = Prober {
            subject,
            units: Units::of(subject),
            keys: keys.collect(),
        };
        let outcome = prober.look(&subject.image, &Damage::new(), None);
        assert_eq!(
            outcome,
            Outcome::Harmless,
            "{} without damage",
            subject.name
        );
        prober
    }

    /// The database.
    #[must_use]
    pub fn subject(&self) -> &'a Subject {
        self.subject
    }

    /// What comes of a mutation; `None`: it changes nothing.
    #[must_use]
    pub fn probe(&self, mutation: &Mutation) -> Option<Outcome> {
        let (image, damage) = mutation.apply(self.subject)?;
        let looked = std::panic::catch_unwind(AssertUnwindSafe(|| {
            self.look(&image, &damage, Some(mutation))
        }));
        Some(looked.unwrap_or_else(|panic| {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Outcome::Wrong(format!("panic: {}", text.unwrap_or_default()))
        }))
    }

    fn look(&self, image: &Contents, damage: &Damage, mutation: Option<&Mutation>) -> Outcome {
        let volume = match MemVolume::of_contents(image, MemOptions::default()) {
            Ok(volume) => volume,
            Err(error) => return Outcome::Wrong(format!("the image is no volume: {error}")),
        };
        let volume = volume as Arc<dyn Volume>;
        let checked = match glintdb::check_volume(&volume) {
            Ok(report) => report,
            Err(error) => return Outcome::Wrong(format!("cannot be checked: {error}")),
        };
        if let Some(error) = self.misnamed(image, damage, &checked.errors) {
            return Outcome::Wrong(format!("check: {error}"));
        }
        let told = !checked.is_clean();
        let opened = self.subject.open(volume);
        let db = match opened {
            Ok(db) => db,
            Err(error) => {
                return match self.misnamed(image, damage, std::slice::from_ref(&error)) {
                    Some(what) => Outcome::Wrong(format!("open: {what}")),
                    None if !told => Outcome::Wrong(format!("check is clean, open says: {error}")),
                    None => Outcome::Open,
                };
            }
        };
        let answers = self.read(&db, self.subject.truth());
        let (answers, state) = if answers.wrong.is_some() {
            match self.earlier(&db) {
                Some(found) => found,
                None => return Outcome::Wrong(answers.wrong.unwrap_or_default()),
            }
        } else {
            (answers, self.subject.states.len() - 1)
        };
        let report = match db.verify() {
            Ok(report) => report,
            Err(error) => return Outcome::Wrong(format!("cannot be verified: {error}")),
        };
        let errors: Vec<Error> = answers
            .errors
            .iter()
            .map(|(_, error)| error.clone())
            .collect();
        for (what, errors) in [("read", &errors), ("verification", &report.errors)] {
            if let Some(error) = self.misnamed(image, damage, errors) {
                return Outcome::Wrong(format!("{what}: {error}"));
            }
        }
        if let Some(key) = self.innocent(damage, &answers) {
            return Outcome::Wrong(key);
        }
        if !errors.is_empty() && report.is_clean() {
            return Outcome::Wrong(format!("verification is clean, a read said: {}", errors[0]));
        }
        if !told && !report.is_clean() {
            let error = &report.errors[0];
            return Outcome::Wrong(format!("check is clean, verification says: {error}"));
        }
        if let Err(error) = db.close() {
            return Outcome::Wrong(format!("close: {error}"));
        }
        self.judge(state, !errors.is_empty(), told, mutation)
    }

    fn judge(
        &self,
        state: usize,
        failed: bool,
        told: bool,
        mutation: Option<&Mutation>,
    ) -> Outcome {
        if state + 1 < self.subject.states.len() {
            if state >= self.subject.durable {
                return Outcome::Tail;
            }
            let single = matches!(mutation, Some(Mutation::Flip { .. }));
            if self.subject.closed && single {
                return Outcome::Wrong(format!(
                    "a closed database went back to state {state} of {}",
                    self.subject.states.len() - 1
                ));
            }
            return Outcome::SyncedTail;
        }
        match (failed, told) {
            (true, _) => Outcome::Read,
            (false, true) => Outcome::Check,
            (false, false) => Outcome::Harmless,
        }
    }

    /// An earlier state that all answers agree with.
    fn earlier(&self, db: &Db) -> Option<(Answers, usize)> {
        let states = self.subject.states.iter().enumerate().rev().skip(1);
        states
            .map(|(index, state)| (self.read(db, state), index))
            .find(|(answers, _)| answers.wrong.is_none())
    }

    /// Reads every key of every keyspace by get, multi-get, forward and backward scan, and compares.
    fn read(&self, db: &Db, expected: &State) -> Answers {
        let mut answers = Answers::default();
        let names: BTreeSet<String> = db.keyspaces().into_iter().collect();
        if !names.iter().eq(expected.keys()) {
            answers.wrong = Some(format!(
                "keyspaces are {names:?}, expected {:?}",
                expected.keys()
            ));
            return answers;
        }
        for (name, keys) in &self.keys {
            let Some(expected) = expected.get(*name) else {
                continue;
            };
            let space = match db.keyspace(name) {
                Ok(space) => space,
                Err(error) => {
                    answers.wrong = Some(format!("keyspace {name}: {error}"));
                    return answers;
                }
            };
            let mut answer =
                |how: &str, key: &[u8], found: Result<Option<Bytes>, Error>| match found {
                    Ok(found) => {
                        let right = expected.get(key).map(Vec::as_slice);
                        if found.as_deref() != right && answers.wrong.is_none() {
                            answers.wrong = Some(format!(
                                "{name}: {how} of {:?} gave {} instead of {}",
                                String::from_utf8_lossy(key),
                                shown(found.as_deref()),
                                shown(right)
                            ));
                        }
                    }
                    Err(error) => answers.errors.push((key.to_vec(), error)),
                };
            for key in keys {
                answer("get", key, space.get(key));
            }
            for (key, found) in keys.iter().zip(space.multi_get(keys)) {
                answer("multi-get", key, found);
            }
            let mut scan =
                |how: &str,
                 entries: &mut dyn Iterator<Item = glintdb::Result<(Bytes, Bytes)>>,
                 expected: &mut dyn Iterator<Item = (&Vec<u8>, &Vec<u8>)>| {
                    loop {
                        match (entries.next(), expected.next()) {
                            (None, None) => return,
                            (Some(Err(error)), _) => {
                                answers.errors.push((Vec::new(), error));
                                return;
                            }
                            (Some(Ok((key, value))), Some((right_key, right)))
                                if key == *right_key && value == *right => {}
                            (found, right) => {
                                let found = found.and_then(Result::ok);
                                answers.wrong.get_or_insert(format!(
                                    "{name}: {how} gave {} instead of {}",
                                    shown(found.as_ref().map(|(key, _)| &**key)),
                                    shown(right.map(|(key, _)| key.as_slice()))
                                ));
                                return;
                            }
                        }
                    }
                };
            scan("scan", &mut space.iter(), &mut expected.iter());
            scan(
                "backward scan",
                &mut space.iter().rev(),
                &mut expected.iter().rev(),
            );
        }
        answers
    }

    /// The first error that is not corruption of a damaged place.
    fn misnamed(&self, image: &Contents, damage: &Damage, errors: &[Error]) -> Option<String> {
        errors
            .iter()
            .find(|error| !self.names(image, damage, error))
            .map(|error| format!("not what is damaged: {error}"))
    }

    fn names(&self, image: &Contents, damage: &Damage, error: &Error) -> bool {
        if error.kind() == ErrorKind::UnsupportedFormat {
            // A version number was hit; the file stands in the sentence.
            let text = error.to_string();
            return damage
                .iter()
                .any(|(target, _)| text.contains(&target.name()));
        }
        let (ErrorKind::Corruption, Some((file, offset))) = (error.kind(), error.place()) else {
            return false;
        };
        damage.iter().any(|(target, range)| {
            file == target.name()
                && (range.contains(&offset)
                    || range.is_empty()
                    || range.end - range.start > 4096
                    || (self.units.touched(*target, range))
                        .any(|unit| unit.range.contains(&offset)))
        }) || (damage.iter().any(|(target, _)| target.kind() == "manifest")
            && (file_is_unnamed(error) || is_gone(image, file)))
    }

    /// A key that cannot be read although its bytes were not hit.
    fn innocent(&self, damage: &Damage, answers: &Answers) -> Option<String> {
        let hit = |key: &[u8]| {
            key.is_empty()
                || damage.iter().any(|(target, range)| {
                    self.units
                        .touched(*target, range)
                        .any(|unit| unit.keys.as_ref().is_none_or(|keys| keys.contains(key)))
                })
        };
        let (key, error) = answers.errors.iter().find(|(key, _)| !hit(key))?;
        Some(format!(
            "{:?} was not hit, and cannot be read: {error}",
            String::from_utf8_lossy(key)
        ))
    }
}

/// Whether the error says that no manifest is intact: it then names the newest one, or another file
/// of the directory, but not the damaged one.
fn file_is_unnamed(error: &Error) -> bool {
    let text = error.to_string();
    text.contains("expected an intact manifest") || text.contains("expected a manifest beside")
}

/// A manifest without its last records names files that those have taken away, and all that can be said is that they are not there (`docs/format/manifest.md`, "What a
/// write can leave behind").
fn is_gone(image: &Contents, file: &str) -> bool {
    FileId::parse(file).is_some_and(|id| !image.files.contains_key(&id))
}

fn shown(bytes: Option<&[u8]>) -> String {
    match bytes {
        None => "nothing".into(),
        Some(bytes) => {
            let head = &bytes[..bytes.len().min(24)];
            format!(
                "{:?} ({} bytes)",
                String::from_utf8_lossy(head),
                bytes.len()
            )
        }
    }
}
