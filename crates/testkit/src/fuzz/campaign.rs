//! Corpora on disk, their replay, and random mutations of them without a fuzzer.
//!
//! Thread safety: one thread, for memory is measured by the process.

use super::mutate::mutate;
use super::{Meter, Target};
use crate::rng::Rng;
use std::path::{Path, PathBuf};

/// A case without cargo-fuzz: everything that it is made of.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Seed of the campaign.
    pub seed: u64,
    /// Number of the case.
    pub number: u64,
}

/// The inputs that a target begins with: its seeds, its corpus, its regressions.
pub struct Inputs {
    /// Name (of the file; `seed N`) and bytes.
    pub inputs: Vec<(String, Vec<u8>)>,
}

/// `fuzz/` of this repository.
#[must_use]
pub fn fuzz_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

impl Inputs {
    /// Reads them, in order of their names.
    ///
    /// # Errors
    /// A sentence.
    pub fn of(target: &Target) -> Result<Inputs, String> {
        let mut inputs: Vec<_> = (target.seeds)()
            .into_iter()
            .enumerate()
            .map(|(index, bytes)| (format!("seed {index}"), bytes))
            .collect();
        for part in ["corpus", "regressions"] {
            let dir = fuzz_dir().join(part).join(target.name);
            if !dir.is_dir() {
                continue;
            }
            let sentence = |error: std::io::Error| format!("{}: {error}", dir.display());
            let mut files = Vec::new();
            for entry in std::fs::read_dir(&dir).map_err(sentence)? {
                files.push(entry.map_err(sentence)?.path());
            }
            files.sort();
            for file in files {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                let bytes = std::fs::read(&file).map_err(sentence)?;
                inputs.push((format!("{part}/{name}"), bytes));
            }
        }
        Ok(Inputs { inputs })
    }

    /// The bytes of a case: an input, changed.
    #[must_use]
    pub fn case(&self, target: &Target, case: Case) -> Vec<u8> {
        let name = target
            .name
            .bytes()
            .fold(0, |sum, byte| sum * 31 + u64::from(byte));
        let mut rng = Rng::of(&[case.seed, name, case.number]);
        let mut pick = || &self.inputs[rng.below(self.inputs.len() as u64) as usize].1;
        let (first, other) = (pick(), pick());
        let mut data = first.clone();
        mutate(&mut rng, &mut data, other, target.length_max);
        data
    }

    /// Runs every input as it is.
    ///
    /// # Panics
    /// As the target does; before that it says which input it was.
    pub fn replay(&self, target: &Target, meter: Meter) {
        for (name, bytes) in &self.inputs {
            let what = format!("{} {name}", target.name);
            self.tell(&what, || target.check(bytes, meter));
        }
    }

    /// Does something; where it panics, says what it was.
    pub fn tell(&self, what: &str, work: impl FnOnce()) {
        let _told = Told(what);
        work();
    }
}

/// Says what was being done when a panic comes by.
struct Told<'a>(&'a str);

impl Drop for Told<'_> {
    #[allow(
        clippy::print_stderr,
        reason = "beside the message of the panic, for people"
    )]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("input: {}", self.0);
        }
    }
}
