//! Fuzzing: every target of `glintdb_testkit::fuzz` in turn, under cargo-fuzz (nightly), or with the program `glint-fuzz`, which needs neither.

use crate::reliability::reports_dir;
use crate::run::{self, Build};
use crate::summary::Counts;
use crate::test::Outcome;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Seconds each target gets unless `--seconds` says otherwise.
const SECONDS: &str = "60";
/// Most files and bytes of a target's corpus that are kept in the repository.
const CORPUS_FILES_MAX: usize = 18;
const CORPUS_BYTES_MAX: u64 = 20 << 10;

fn builtin(build: Build) -> Result<PathBuf, String> {
    run::program("glintdb-testkit", "glint-fuzz", build)
}

#[derive(Default)]
struct Arguments {
    target: Option<String>,
    seconds: Option<String>,
    keep: bool,
    sanitizer: String,
}

fn parse(words: &[String]) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        // Most of what is fuzzed has no `unsafe` in it, and AddressSanitizer costs a half to nine tenths of the speed.
        sanitizer: "none".into(),
        ..Arguments::default()
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().cloned().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--target" => arguments.target = Some(value()?),
            "--seconds" => arguments.seconds = Some(value()?),
            "--sanitizer" => arguments.sanitizer = value()?,
            "--keep" => arguments.keep = true,
            _ => return Err(format!("xtask fuzz: no option `{word}`")),
        }
    }
    Ok(arguments)
}

pub(crate) fn main(words: &[String]) -> Result<bool, String> {
    if words.iter().any(|word| word == "--list") {
        return run::lines(
            Command::new(builtin(Build::Campaign)?).arg("--list"),
            |_| (),
        );
    }
    if words.iter().any(|word| word == "--builtin") {
        let words = words.iter().filter(|word| *word != "--builtin");
        return run::lines(Command::new(builtin(Build::Campaign)?).args(words), |_| ());
    }
    let arguments = parse(words)?;
    if let Some(missing) = missing() {
        return Err(format!(
            "{missing}; `cargo xtask fuzz --builtin` needs neither"
        ));
    }
    let targets = targets(arguments.target.as_deref())?;
    build(arguments.target.as_deref(), &arguments.sanitizer)?;
    if arguments.keep {
        return targets
            .iter()
            .try_fold(true, |ok, target| Ok(keep(target)? && ok));
    }
    campaign(&arguments, &targets)
}

/// The step of `xtask test`: corpora, regressions and some hundred thousand mutations a target.
pub(crate) fn step(seconds: &str) -> Result<Outcome, String> {
    let mut command = Command::new(builtin(Build::Seeded)?);
    command
        .args(["--seconds", seconds, "--seed", "1"])
        .env("GLINTDB_REPORTS", reports_dir());
    let ok = run::lines(&mut command, |_| ())?;
    Ok(Outcome::of(Counts::one(ok)))
}

/// What stands in the way of cargo-fuzz.
fn missing() -> Option<String> {
    let fuzz = run::output(Command::new("cargo").args(["fuzz", "--version"]));
    if fuzz.is_err() {
        return Some("cargo-fuzz is not installed (`cargo install cargo-fuzz`)".into());
    }
    let nightly = run::output(Command::new("cargo").args(["+nightly", "--version"]));
    nightly
        .is_err()
        .then(|| "there is no nightly toolchain (`rustup toolchain install nightly`)".into())
}

struct Target {
    name: String,
    length_max: String,
}

fn targets(only: Option<&str>) -> Result<Vec<Target>, String> {
    let listed = run::output(Command::new(builtin(Build::Campaign)?).arg("--list"))?;
    let targets: Vec<Target> = listed
        .lines()
        .filter_map(|line| {
            let (name, length_max) = line.split_once(' ')?;
            Some(Target {
                name: name.into(),
                length_max: length_max.into(),
            })
        })
        .filter(|target| only.is_none_or(|only| target.name == only))
        .collect();
    match targets.is_empty() {
        true => Err(format!("no target `{}`", only.unwrap_or_default())),
        false => Ok(targets),
    }
}

fn build(only: Option<&str>, sanitizer: &str) -> Result<(), String> {
    let mut command = Command::new("cargo");
    command
        .current_dir(run::root())
        .args(["+nightly", "fuzz", "build", "--sanitizer", sanitizer])
        .args(only);
    match run::lines(&mut command, |_| ())? {
        true => Ok(()),
        false => Err("the fuzz targets do not compile".into()),
    }
}

impl Target {
    /// The binary, with limits set.
    fn command(&self) -> Result<Command, String> {
        let host = run::output(Command::new("rustc").args(["+nightly", "--print", "host-tuple"]))?;
        let binary = run::root()
            .join("fuzz/target")
            .join(host.trim())
            .join("release")
            .join(&self.name);
        let mut command = Command::new(binary);
        command
            .current_dir(run::root())
            .args([
                "-rss_limit_mb=2048",
                "-timeout=10",
                "-len_control=0",
                "-print_final_stats=1",
            ])
            .arg(format!("-max_len={}", self.length_max));
        Ok(command)
    }

    /// What fuzzing found so far: outside the repository, for it grows.
    fn work_dir(&self) -> PathBuf {
        run::target_dir().join("fuzz/corpus").join(&self.name)
    }

    fn seeds_dir(&self) -> PathBuf {
        run::target_dir().join("fuzz/seeds").join(&self.name)
    }

    fn kept_dir(&self, part: &str) -> PathBuf {
        run::root().join("fuzz").join(part).join(&self.name)
    }

    /// Every directory with inputs; the first takes new ones.
    fn inputs(&self) -> Vec<PathBuf> {
        let mut dirs = vec![self.work_dir(), self.seeds_dir()];
        dirs.extend(["corpus", "regressions"].map(|part| self.kept_dir(part)));
        dirs.retain(|dir| dir.is_dir());
        dirs
    }
}

fn make(dir: &Path) -> Result<(), String> {
    std::fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))
}

#[derive(Default)]
struct Figures {
    executions: u64,
    coverage: u64,
    failed: bool,
}

/// Fuzzes one target for some time.
fn fuzz(target: &Target, seconds: &str) -> Result<Figures, String> {
    let artifacts = target.kept_dir("artifacts");
    make(&artifacts)?;
    make(&target.work_dir())?;
    let mut command = target.command()?;
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args(target.inputs())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| format!("{}: {error}", target.name))?;
    let mut figures = Figures::default();
    let mut last = Vec::new();
    let stderr = child.stderr.take().into_iter();
    for line in stderr
        .flat_map(|stderr| BufReader::new(stderr).split(b'\n'))
        .map_while(Result::ok)
    {
        let line = String::from_utf8_lossy(&line).into_owned();
        if let Some(number) = number_behind(&line, "stat::number_of_executed_units:") {
            figures.executions = number;
        }
        if let Some(number) = number_behind(&line, " cov:") {
            figures.coverage = number;
        }
        // The interesting lines of a crash are the last ones that are not progress.
        if !line.starts_with('#') && !line.starts_with("stat::") {
            last.push(line);
        }
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    figures.failed = !status.success();
    if figures.failed {
        for line in last.iter().rev().take(40).rev() {
            run::say(&format!("    {line}"));
        }
    }
    Ok(figures)
}

fn number_behind(line: &str, word: &str) -> Option<u64> {
    let rest = line.split(word).nth(1)?.trim_start();
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest.get(..end)?.parse().ok()
}

fn campaign(arguments: &Arguments, targets: &[Target]) -> Result<bool, String> {
    let seeds = run::target_dir().join("fuzz/seeds");
    if !run::lines(
        Command::new(builtin(Build::Campaign)?)
            .arg("--seeds")
            .arg(seeds),
        |_| (),
    )? {
        return Err("the seeds could not be written".into());
    }
    let seconds = arguments.seconds.as_deref().unwrap_or(SECONDS);
    let start = Instant::now();
    let mut counts = String::new();
    let mut failures = Vec::new();
    let mut total = 0;
    for target in targets {
        let figures = fuzz(target, seconds)?;
        run::say(&format!(
            "fuzz: {:16} {:9} executions, coverage {}{}",
            target.name,
            figures.executions,
            figures.coverage,
            if figures.failed { ", FAILED" } else { "" }
        ));
        total += figures.executions;
        let comma = if counts.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        write!(
            counts,
            "{comma}\n    \"executions {}\": {}",
            target.name, figures.executions
        )
        .ok();
        write!(
            counts,
            ",\n    \"coverage {}\": {}",
            target.name, figures.coverage
        )
        .ok();
        if figures.failed {
            failures.push(format!(
                "\"{}: see fuzz/artifacts/{}\"",
                target.name, target.name
            ));
        }
    }
    let elapsed = start.elapsed().as_secs_f64();
    run::say(&format!(
        "fuzz: {total} executions in {elapsed:.0} s, {} failures",
        failures.len()
    ));
    if std::env::var_os("GLINTDB_REPORTS").is_some() {
        let dir = reports_dir();
        make(&dir)?;
        let report = format!(
            "{{\n  \"lane\": \"fuzz\",\n  \"command\": \"cargo xtask fuzz --seconds {seconds}\",\n  \"seconds\": {elapsed:.3},\n  \"threads\": 1,\n  \"counts\": {{{counts}\n  }},\n  \"failures\": [{}],\n  \"not_run\": []\n}}\n",
            failures.join(", ")
        );
        std::fs::write(dir.join("fuzz.json"), report).map_err(|error| error.to_string())?;
    }
    Ok(failures.is_empty())
}

/// Makes the corpus of the repository anew from all inputs: the smallest set with the same coverage, cut to what a repository should hold.
fn keep(target: &Target) -> Result<bool, String> {
    let merged = run::target_dir().join("fuzz/merged").join(&target.name);
    std::fs::remove_dir_all(&merged).ok();
    make(&merged)?;
    let mut command = target.command()?;
    command
        .arg("-set_cover_merge=1")
        .arg(&merged)
        .args(target.inputs());
    command.stderr(Stdio::null());
    if !run::lines(&mut command, |_| ())? {
        return Ok(false);
    }
    let sentence = |error: std::io::Error| error.to_string();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&merged).map_err(sentence)? {
        let entry = entry.map_err(sentence)?;
        files.push((entry.metadata().map_err(sentence)?.len(), entry.path()));
    }
    // Longer inputs do more; but all of them have to fit.
    files.sort_by_key(|(length, path)| (std::cmp::Reverse(*length), path.clone()));
    let corpus = target.kept_dir("corpus");
    std::fs::remove_dir_all(&corpus).ok();
    make(&corpus)?;
    let (mut kept, mut bytes) = (0, 0);
    for (length, path) in files {
        if kept < CORPUS_FILES_MAX && bytes + length <= CORPUS_BYTES_MAX {
            let name = path.file_name().unwrap_or_default();
            std::fs::copy(&path, corpus.join(name)).map_err(sentence)?;
            kept += 1;
            bytes += length;
        }
    }
    run::say(&format!(
        "fuzz: {:16} {kept} inputs kept, {bytes} bytes",
        target.name
    ));
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::number_behind;

    #[test]
    fn figures_of_libfuzzer_are_read() {
        let line = "#4194304\tpulse  cov: 812 ft: 2210 corp: 331/41Kb lim: 1024 exec/s: 1398101 rss: 498Mb";
        assert_eq!(number_behind(line, " cov:"), Some(812));
        let line = "stat::number_of_executed_units: 4194304";
        assert_eq!(
            number_behind(line, "stat::number_of_executed_units:"),
            Some(4_194_304)
        );
        assert_eq!(number_behind(line, " cov:"), None);
    }
}
