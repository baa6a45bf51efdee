//! Running other programs: their output goes straight through or into a file, line by line, and each line is shown to a closure.

use crate::child::{Stream, attend};
use crate::hang;
use std::cell::RefCell;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// In a run of `cargo xtask test`, no program of a step takes so long, also where the machine is busy;
const PROGRAM_MAX: Duration = Duration::from_secs(15 * 60);
/// cargo, which may have to build everything, on two cores, before it tests it;
const CARGO_MAX: Duration = Duration::from_secs(25 * 60);
/// a helper of a step: `pip` is the slowest.
const HELPER_MAX: Duration = Duration::from_secs(5 * 60);

thread_local! {
    /// The file for what this thread says and for the output of programs that it runs. `None`: it
    /// goes to the terminal.
    static LOG: RefCell<Option<File>> = const { RefCell::new(None) };
}

/// From now on, what this thread says goes into a file.
pub(crate) fn log_to(path: &Path) -> Result<(), String> {
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    let file = made.and_then(|()| File::create(path));
    let file = file.map_err(|error| format!("{}: {error}", path.display()))?;
    LOG.set(Some(file));
    Ok(())
}

/// Says a line: in this thread's log, else in the terminal.
pub(crate) fn say(line: &str) {
    write(format!("{line}\n").as_bytes(), &mut std::io::stdout());
}

/// Writes to the log, else to `to`. A failure is ignored: the reader may have gone.
fn write(bytes: &[u8], to: &mut impl Write) {
    LOG.with_borrow_mut(|log| match log {
        Some(file) => file.write_all(bytes).ok(),
        None => to.write_all(bytes).and_then(|()| to.flush()).ok(),
    });
}

/// A number that follows from the commit that is checked out; 0 without Git.
pub(crate) fn commit_number() -> u32 {
    let mut command = Command::new("git");
    let id = output(command.current_dir(root()).args(["rev-parse", "HEAD"]));
    let digits = id.ok().and_then(|id| id.get(..8).map(str::to_owned));
    digits.map_or(0, |digits| u32::from_str_radix(&digits, 16).unwrap_or(0))
}

/// Root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Where cargo builds.
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Cargo, at the root.
pub(crate) fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// Runs `command`, standard output through `line`. Whether it ended well.
/// A lane of the reliability campaign finds in the environment where its report belongs, where `command` does not say otherwise.
pub(crate) fn lines(command: &mut Command, mut line: impl FnMut(&str)) -> Result<bool, String> {
    const REPORTS: &str = "GLINTDB_REPORTS";
    if !command.get_envs().any(|(name, _)| name == REPORTS) {
        command.env(REPORTS, crate::reliability::reports_dir());
    }
    let stderr = if LOG.with_borrow(Option::is_some) {
        Stdio::piped()
    } else {
        Stdio::inherit()
    };
    let builds = command.get_program() == cargo().get_program();
    let limit = hang::limit(if builds { CARGO_MAX } else { PROGRAM_MAX });
    attend(
        command.stdout(Stdio::piped()).stderr(stderr),
        limit,
        |stream, bytes| {
            write(bytes, &mut std::io::stdout());
            if stream == Stream::Out {
                line(String::from_utf8_lossy(bytes).trim_end());
            }
        },
    )
}

/// A program of the workspace, up to date. Inside `xtask test` it is built together with all tests: the same features, so nothing is compiled a second time.
pub(crate) fn program(package: &str, name: &str, build: Build) -> Result<PathBuf, String> {
    let mut command = cargo();
    command.args::<&[&str], _>(match build {
        Build::WithTests => &["test", "--workspace", "--no-run", "--quiet"],
        Build::Alone => &["build"],
        Build::Release => &["build", "--release"],
        Build::Campaign => &["build", "--profile", "campaign"],
        Build::Seeded => &[
            "build",
            "--profile",
            "campaign",
            "--no-default-features",
            "--features",
            "seeded-bugs",
        ],
    });
    if build != Build::WithTests {
        command.args(["--package", package, "--bin", name]);
    }
    if !lines(&mut command, |_| ())? {
        return Err(format!("{package} does not compile"));
    }
    let profile = match build {
        Build::WithTests | Build::Alone => "debug",
        Build::Release => "release",
        Build::Campaign | Build::Seeded => "campaign",
    };
    Ok(target_dir().join(profile).join(name))
}

/// How [`program`] builds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    /// With everything else.
    WithTests,
    /// By itself.
    Alone,
    /// By itself, optimised.
    Release,
    /// By itself, optimised, with assertions: for millions of cases.
    Campaign,
    /// As `Campaign`, with the mistakes of the feature `seeded-bugs` compiled in.
    Seeded,
}

/// Runs `command` and hands back what it printed, or what it said on standard error when it failed.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let (mut out, mut error) = (Vec::new(), Vec::new());
    let ok = attend(
        command.stdout(Stdio::piped()).stderr(Stdio::piped()),
        hang::limit(HELPER_MAX),
        |stream, bytes| match stream {
            Stream::Out => out.extend_from_slice(bytes),
            Stream::Error => error.extend_from_slice(bytes),
        },
    )?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if ok {
        Ok(text(&out))
    } else {
        Err(format!("{name} failed: {}", text(&error).trim()))
    }
}

/// Whether a program of this name is on the path.
pub(crate) fn on_path(name: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(name).is_file()))
}

/// A directory for test databases: in memory where there is room, since a disk may do only some hundred syncs a second. Removed when dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Result<Scratch, String> {
        let leaf = format!("glintdb-{name}-{}", std::process::id());
        let shared_memory = Path::new("/dev/shm");
        let places = [
            roomy(shared_memory).then(|| shared_memory.to_path_buf()),
            Some(std::env::temp_dir()),
        ];
        for place in places.into_iter().flatten() {
            let dir = place.join(&leaf);
            if std::fs::create_dir_all(&dir).is_ok() {
                return Ok(Scratch(dir));
            }
        }
        Err("no directory for test databases".into())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// At least 3 GiB free, as `df` tells.
fn roomy(dir: &Path) -> bool {
    let free = output(Command::new("df").arg("--output=avail").arg("-k").arg(dir));
    free.ok()
        .and_then(|text| text.lines().nth(1)?.trim().parse::<u64>().ok())
        .is_some_and(|kib| kib >= 3 << 20)
}
