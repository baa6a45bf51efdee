//! `cargo xtask demo-debian`: the Debian package index, one record a package, through everything a user would do with it:
//!
//! 1. `apt-cache dumpavail` → `glintdb import`;
//! 2. `glintdb serve`; `redis-cli` reads a sample back while `redis-benchmark` runs against the same server, without an error;
//! 3. a second import (under another key prefix, in small batches, at durability `os`) is killed with SIGKILL at a random moment, several times;
//! 4. `glintdb check` is clean, every acknowledged record is there, and the server serves it again.

mod index;
mod server;

use crate::run::{self, Build, Scratch};
use crate::summary::Counts;
use crate::test::Outcome;
use index::Record;
use server::Server;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Fewer packages than this mean that `apt-get update` was never run.
const INDEX_RECORDS_MIN: usize = 1000;
/// Second imports that are killed.
const KILLS: u32 = 5;
/// Records read back one by one with `redis-cli`.
const SAMPLE: usize = 40;

type Checked = Result<(), String>;
type Step = fn(&Demo) -> Checked;

pub(crate) fn main(arguments: &[String]) -> Result<bool, String> {
    let mut records_max = usize::MAX;
    let mut release = false;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--release" => release = true,
            "--records" => {
                let number = rest.next().and_then(|text| text.parse().ok());
                records_max = number.ok_or("--records takes a number")?;
            }
            other => return Err(format!("demo-debian does not know `{other}`")),
        }
    }
    let build = if release {
        Build::Release
    } else {
        Build::Alone
    };
    let outcome = demonstrate(records_max, build)?;
    for reason in &outcome.not_run {
        run::say(&format!("not run: {reason}"));
    }
    Ok(outcome.counts.failed == 0)
}

/// The step of `xtask test`, on the binary that the tests have built.
pub(crate) fn step(records: &str) -> Result<Outcome, String> {
    demonstrate(
        records.parse().unwrap_or(INDEX_RECORDS_MIN),
        Build::WithTests,
    )
}

fn demonstrate(records_max: usize, build: Build) -> Result<Outcome, String> {
    for program in ["apt-cache", "redis-cli", "redis-benchmark"] {
        if !run::on_path(program) {
            return Ok(Outcome::skipped(format!(
                "Debian demonstration: {program} is not installed (packages apt and redis-tools)"
            )));
        }
    }
    let (records, text) = index::read(records_max)?;
    if records.len() < INDEX_RECORDS_MIN.min(records_max) {
        return Ok(Outcome::skipped(format!(
            "Debian demonstration: apt-cache knows {} packages; run `apt-get update` once",
            records.len()
        )));
    }
    let demo = Demo::prepare(build, records, &text)?;
    let mut counts = Counts::default();
    let steps: [(&str, Step); 3] = [
        ("import, then export gives the same records", Demo::import),
        (
            "redis-cli reads them back while redis-benchmark runs",
            Demo::serve,
        ),
        ("killed imports keep every acknowledged record", Demo::kill),
    ];
    for (name, step) in steps {
        let start = Instant::now();
        let outcome = step(&demo);
        counts.add(Counts::one(outcome.is_ok()));
        let seconds = start.elapsed().as_secs_f64();
        match outcome {
            Ok(()) => run::say(&format!("demo-debian: {name} ... ok ({seconds:.1} s)")),
            Err(why) => run::say(&format!("demo-debian: {name} ... FAILED\n  {why}")),
        }
    }
    Ok(Outcome::of(counts))
}

struct Demo {
    glintdb: PathBuf,
    scratch: Scratch,
    records: Vec<Record>,
}

impl Demo {
    fn prepare(build: Build, records: Vec<Record>, text: &[u8]) -> Result<Demo, String> {
        let glintdb = run::program("glintdb-cli", "glintdb", build)?;
        let scratch = Scratch::new("debian")?;
        let packages = scratch.path().join("packages");
        std::fs::write(&packages, text)
            .map_err(|error| format!("{}: {error}", packages.display()))?;
        run::say(&format!(
            "demo-debian: {} packages, {} bytes",
            records.len(),
            text.len()
        ));
        Ok(Demo {
            glintdb,
            scratch,
            records,
        })
    }

    fn data(&self) -> PathBuf {
        self.scratch.path().join("data")
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.glintdb);
        command.arg(name).arg("--dir").arg(self.data());
        command
    }

    /// Everything in the default keyspace.
    fn export(&self) -> Result<HashMap<Vec<u8>, Vec<u8>>, String> {
        let file = self.scratch.path().join("export");
        run::output(
            self.command("export")
                .args(["--quiet", "--format", "binary"])
                .arg(&file),
        )?;
        let exported = index::parse_binary(&file);
        std::fs::remove_file(&file).ok();
        exported
    }

    fn packages(&self) -> PathBuf {
        self.scratch.path().join("packages")
    }

    fn import(&self) -> Checked {
        let printed = run::output(
            self.command("import")
                .args(["--quiet", "--format", "dpkg"])
                .arg(self.packages()),
        )?;
        run::say(&format!("demo-debian: {}", printed.trim_end()));
        let exported = self.export()?;
        let wanted = index::state(&self.records);
        if exported.len() != wanted.len() {
            return Err(format!(
                "{} records exported, {} expected",
                exported.len(),
                wanted.len()
            ));
        }
        match wanted
            .iter()
            .find(|(key, value)| exported.get(&key[..]).map(Vec::as_slice) != Some(*value))
        {
            Some((key, _)) => Err(format!("{}: another value", String::from_utf8_lossy(key))),
            None => Ok(()),
        }
    }

    fn serve(&self) -> Checked {
        let server = Server::start(self.command("serve"))?;
        let mut benchmark = server.benchmark()?;
        let mut rounds = 0;
        let finished = loop {
            self.read_sample(&server, "", rounds)?;
            rounds += 1;
            let ended = benchmark.try_wait().map_err(|error| error.to_string())?;
            if ended.is_some() {
                break benchmark
                    .wait_with_output()
                    .map_err(|error| error.to_string())?;
            }
        };
        let stdout = String::from_utf8_lossy(&finished.stdout);
        let printed = format!("{stdout}{}", String::from_utf8_lossy(&finished.stderr));
        if !finished.status.success() || printed.to_lowercase().contains("err") {
            return Err(format!("redis-benchmark: {printed}"));
        }
        for line in stdout
            .lines()
            .filter(|line| line.contains("requests per second"))
        {
            let line = line.rsplit('\r').next().unwrap_or(line);
            run::say(&format!("demo-debian: {line}"));
        }
        run::say(&format!(
            "demo-debian: {rounds} samples of {SAMPLE} packages read back meanwhile"
        ));
        server.stop()
    }

    /// Reads some records with `redis-cli` and compares them.
    fn read_sample(&self, server: &Server, prefix: &str, round: usize) -> Checked {
        let wanted = index::state(&self.records);
        let names: Vec<&[u8]> = self.records.iter().map(|record| &record.key[..]).collect();
        let step = (names.len() / SAMPLE).max(1);
        for name in names.iter().skip(round % step).step_by(step).take(SAMPLE) {
            let key = format!("{prefix}{}", String::from_utf8_lossy(name));
            let found = server.cli(&["GET", &key])?;
            // redis-cli ends what it prints with one line end.
            let found = found.strip_suffix(b"\n").unwrap_or(&found);
            if wanted.get(*name).copied() != Some(found) {
                return Err(format!(
                    "redis-cli GET {key}: not the stanza that was imported"
                ));
            }
        }
        Ok(())
    }

    fn kill(&self) -> Checked {
        let wanted = index::state(&self.records);
        let mut seed = std::process::id();
        for round in 0..KILLS {
            // A linear congruential step; any spread over the import's length will do.
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let stop_after = (u64::from(seed) * self.records.len() as u64) >> 32;
            let prefix = format!("again{round}:");
            let acknowledged = self.killed_import(&prefix, stop_after)?;
            let check = run::output(self.command("check").arg("--json"))?;
            let exported = self.export()?;
            index::check_prefix(&self.records, &prefix, acknowledged, &exported)?;
            let lost = wanted
                .iter()
                .find(|(key, value)| exported.get(&key[..]).map(Vec::as_slice) != Some(*value));
            if let Some((key, _)) = lost {
                return Err(format!(
                    "{}: lost from the first import",
                    String::from_utf8_lossy(key)
                ));
            }
            let clean = check.contains("\"clean\": true");
            run::say(&format!(
                "demo-debian: killed after {acknowledged} acknowledged records; check clean: {clean}"
            ));
            if !clean {
                return Err(format!("glintdb check: {check}"));
            }
        }
        let server = Server::start(self.command("serve"))?;
        self.read_sample(&server, "", 0)?;
        server.stop()
    }

    /// Imports everything under `prefix` and kills the process once `stop_after` records are acknowledged; the number that was acknowledged in the end.
    fn killed_import(&self, prefix: &str, stop_after: u64) -> Result<u64, String> {
        let mut child = self
            .command("import")
            .args([
                "--quiet",
                "--format",
                "dpkg",
                "--acknowledge",
                "--batch-records",
                "20",
            ])
            .args(["--key-prefix", prefix])
            .arg(self.packages())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("glintdb import: {error}"))?;
        let stdout = child.stdout.take().ok_or("no pipe")?;
        let mut acknowledged = 0;
        let mut killed = false;
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Some(number) = line.strip_prefix("acknowledged ") {
                acknowledged = number.parse().map_err(|_| format!("odd line: {line}"))?;
            }
            if acknowledged > stop_after && !killed {
                child.kill().map_err(|error| error.to_string())?;
                killed = true;
            }
        }
        child.wait().map_err(|error| error.to_string())?;
        Ok(acknowledged)
    }
}

/// Waits until `done` says so; `false` after ten seconds.
fn wait_until(mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(10) {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Where a file is written, for messages.
fn shown(path: &Path) -> String {
    std::io::stdout().flush().ok();
    path.display().to_string()
}
