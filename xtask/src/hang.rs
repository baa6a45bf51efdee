//! A step that hangs is ended, and its log says what its threads were doing: a run that never ends tells nobody anything.
//!
//! Invariant: nothing here waits for a process that hangs. What may (`environ`, a debugger: both wait for a memory map that a thread in the kernel may hold for ever) is left to
//! a program that is given up after some time; of what hangs only `stat`, `comm` and `wchan` are read.

use crate::run;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// `cargo xtask test` has ended after this time, or what still runs is ended.
const RUN_MAX: Duration = Duration::from_secs(75 * 60);
/// After that the step has this time to say so.
const STEP_GRACE: Duration = Duration::from_secs(3 * 60);
/// For telling what all the threads of a program do.
pub(crate) const TELL_MAX: Duration = Duration::from_secs(60);
/// For `grep` and `kill`.
const ASK_MAX: Duration = Duration::from_secs(10);
const FRAMES: u32 = 16;
/// In the environment of whatever is started, and of what that starts.
const MARK: &str = "GLINTDB_XTASK";

/// When the run has to be over; nothing has a limit where there is no such time.
static RUN_END: OnceLock<Instant> = OnceLock::new();
/// What was ended.
static NOTES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// From now on programs have limits.
pub(crate) fn begin_run() {
    RUN_END.get_or_init(|| Instant::now() + RUN_MAX);
}

/// What is left of the run's time.
fn left() -> Option<Duration> {
    let end = RUN_END.get()?;
    Some(end.saturating_duration_since(Instant::now()))
}

/// Whether the run's time is over.
pub(crate) fn over() -> bool {
    left().is_some_and(|left| left.is_zero())
}

/// How long a program may take that would get `time` by itself.
pub(crate) fn limit(time: Duration) -> Option<Duration> {
    left().map(|left| left.min(time))
}

/// How long a step may take, whatever it does.
pub(crate) fn step_limit() -> Duration {
    left().map_or(Duration::MAX, |left| left + STEP_GRACE)
}

/// Says something that is to be said at the end of the run once more.
pub(crate) fn note(text: String) {
    run::say(&text);
    NOTES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(text);
}

/// What was noted since the last call.
pub(crate) fn take_notes() -> Vec<String> {
    std::mem::take(&mut NOTES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Marks what `command` will start.
pub(crate) fn mark(command: &mut Command) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let value = format!("{}-{number}", std::process::id());
    command.env(MARK, &value);
    format!("{MARK}={value}")
}

/// Says what a process, all that it has started and all that bears the mark do, and ends it.
pub(crate) fn end(process: Option<u32>, mark: &str) {
    let until = Instant::now() + TELL_MAX;
    let find = || {
        let mut found = process.map_or(Vec::new(), |process| with_descendants(process, &parents()));
        found.extend(marked(mark));
        found.sort_unstable();
        found.dedup();
        found
    };
    for process in find() {
        run::say(&threads(process, until));
    }
    // Between looking and killing one may have started another.
    for _ in 0..2 {
        kill(&find());
    }
}

/// Ends all that this process has started.
pub(crate) fn end_all() {
    let process = std::process::id();
    let mut found = with_descendants(process, &parents());
    found.retain(|found| *found != process);
    kill(&found);
}

fn kill(processes: &[u32]) {
    let ids = processes.iter().map(u32::to_string);
    ask(Command::new("kill").arg("-KILL").args(ids), ASK_MAX);
}

/// What a program prints; nothing where it takes too long: then it is left to itself.
fn ask(command: &mut Command, time: Duration) -> Option<String> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn().ok()?;
    let mut stdout = child.stdout.take()?;
    let (answer, answered) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stdout.read_to_end(&mut bytes).ok();
        answer.send(bytes).ok()
    });
    let bytes = answered.recv_timeout(time).ok();
    child.kill().ok();
    child.try_wait().ok();
    bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Every process.
fn processes() -> Vec<u32> {
    numbers("/proc")
}

/// Names in a directory that are numbers.
fn numbers(dir: &str) -> Vec<u32> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Every process, and which one has started it.
fn parents() -> Vec<(u32, u32)> {
    let parent = |process: u32| state(&format!("/proc/{process}")).map(|(_, parent)| parent);
    let all = processes().into_iter();
    all.filter_map(|process| Some((process, parent(process)?)))
        .collect()
}

/// State and parent of the process or thread in this directory.
fn state(dir: &str) -> Option<(String, u32)> {
    let stat = std::fs::read_to_string(format!("{dir}/stat")).ok()?;
    // Behind the program's name, which may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut words = rest.split_whitespace();
    Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
}

/// Whether a thread of the process waits in the kernel for what no signal ends.
fn stuck(process: u32) -> bool {
    let dir = format!("/proc/{process}/task");
    let mut threads = numbers(&dir).into_iter();
    threads.any(|thread| state(&format!("{dir}/{thread}")).is_some_and(|(state, _)| state == "D"))
}

/// Processes that bear the mark, except for those of which that cannot be asked.
fn marked(mark: &str) -> Vec<u32> {
    let asked = processes().into_iter().filter(|process| !stuck(*process));
    let mut command = Command::new("grep");
    command.args(["-lszxFe", mark]);
    command.args(asked.map(|process| format!("/proc/{process}/environ")));
    let found = ask(&mut command, ASK_MAX).unwrap_or_default();
    found
        .lines()
        .filter_map(|path| path.split('/').nth(2)?.parse().ok())
        .collect()
}

/// The process, what it has started, what that has started, and so on.
fn with_descendants(process: u32, parents: &[(u32, u32)]) -> Vec<u32> {
    let mut found = vec![process];
    let mut looked_at = 0;
    while let Some(&next) = found.get(looked_at) {
        looked_at += 1;
        let children = parents.iter().filter(|(_, parent)| *parent == next);
        found.extend(children.map(|(child, _)| *child));
    }
    found
}

/// What the threads of a process do: their names and where in the kernel they wait, and their stacks where there is a debugger and time for it.
fn threads(process: u32, until: Instant) -> String {
    let read = |dir: &str, name: &str| {
        let text = std::fs::read_to_string(format!("{dir}/{name}")).unwrap_or_default();
        text.trim().to_owned()
    };
    let mut text = format!(
        "--- {process}: {}\n",
        read(&format!("/proc/{process}"), "comm")
    );
    let tasks = format!("/proc/{process}/task");
    for thread in numbers(&tasks) {
        let dir = format!("{tasks}/{thread}");
        let (state, _) = state(&dir).unwrap_or_default();
        let (name, place) = (read(&dir, "comm"), read(&dir, "wchan"));
        text.push_str(&format!("    {name}: {state} {place}\n"));
    }
    let time = until.saturating_duration_since(Instant::now());
    if run::on_path("gdb") && !stuck(process) && !time.is_zero() {
        let mut command = Command::new("gdb");
        command
            .args(["-batch", "-nx", "-p"])
            .arg(process.to_string())
            .args(["-ex", "set width 0", "-ex"])
            .arg(format!("thread apply all backtrace {FRAMES}"));
        let stacks = ask(&mut command, time);
        text.push_str(&stacks.unwrap_or_else(|| "the debugger takes too long".to_owned()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_children_of_children() {
        let parents = [(2, 1), (3, 2), (4, 3), (5, 1), (6, 7)];
        assert_eq!(with_descendants(2, &parents), [2, 3, 4]);
    }

    #[test]
    fn a_program_that_takes_too_long_is_not_waited_for() {
        let started = Instant::now();
        let mut command = Command::new("sleep");
        assert_eq!(ask(command.arg("1000"), Duration::from_millis(100)), None);
        assert!(started.elapsed() < Duration::from_secs(500));
    }

    /// With a debugger or without, and whatever that comes to: the name of a thread that waits is told.
    #[test]
    fn what_a_process_waits_for_is_told() {
        let (over, waiting) = std::sync::mpsc::channel::<()>();
        let (begin, begun) = std::sync::mpsc::channel();
        let waits = std::thread::Builder::new()
            .name("waits-for-test".to_owned())
            .spawn(move || {
                begin.send(()).unwrap();
                waiting.recv().is_err()
            })
            .unwrap();
        // Only then it has its name.
        begun.recv().unwrap();
        // A debugger would stop the thread that reads what it prints.
        let told = threads(std::process::id(), Instant::now());
        drop(over);
        assert!(waits.join().unwrap());
        assert!(told.contains("    waits-for-test: "), "{told}");
    }
}
