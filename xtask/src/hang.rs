//! A step that hangs is ended, and its log says what its threads were doing: a run that never ends tells nobody anything.

use crate::run;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Seconds that a program may take; 0: as many as it likes.
static LIMIT_SECONDS: AtomicU64 = AtomicU64::new(0);
/// Seconds for a debugger to show a process.
const DEBUGGER_SECONDS: &str = "60";
const FRAMES: u32 = 16;

/// From now on no program takes longer.
pub(crate) fn limit(time: Duration) {
    LIMIT_SECONDS.store(time.as_secs(), Ordering::Relaxed);
}

/// Waits for `ended` as long as the program `process` may take; then says what it does, and ends it and all it has started.
pub(crate) fn watch(process: u32, ended: &Receiver<()>) {
    let limit = Duration::from_secs(LIMIT_SECONDS.load(Ordering::Relaxed));
    if limit.is_zero() {
        return;
    }
    if ended.recv_timeout(limit) != Err(RecvTimeoutError::Timeout) {
        return;
    }
    let processes = with_descendants(process, &parents());
    run::say(&format!(
        "it hangs: not through after {limit:?}; its processes:"
    ));
    for process in &processes {
        run::say(&threads(*process));
    }
    let ids = processes.iter().map(u32::to_string);
    let killed = run::output(Command::new("kill").arg("-KILL").args(ids));
    if let Err(message) = killed {
        run::say(&message);
    }
}

/// Every process, and which one has started it.
fn parents() -> Vec<(u32, u32)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|process| Some((process, parent(process)?)))
        .collect()
}

fn parent(process: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Behind the program's name, which may hold anything: the state, the parent.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
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

/// What the threads of a process do: their stacks where there is a debugger, else their names and where in the kernel they wait.
fn threads(process: u32) -> String {
    let read = |path: &Path| {
        std::fs::read_to_string(path)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let root = Path::new("/proc").join(process.to_string());
    let mut text = format!(
        "--- {process}: {}\n",
        read(&root.join("cmdline")).replace('\0', " ")
    );
    let tasks = std::fs::read_dir(root.join("task"));
    for task in tasks.into_iter().flatten().flatten() {
        let path = task.path();
        let (name, place) = (read(&path.join("comm")), read(&path.join("wchan")));
        text.push_str(&format!("    {name}: {place}\n"));
    }
    if run::on_path("gdb") {
        let mut command = Command::new("timeout");
        command
            .args([DEBUGGER_SECONDS, "gdb", "-batch", "-nx", "-p"])
            .arg(process.to_string())
            .args(["-ex", "set width 0", "-ex"])
            .arg(format!("thread apply all backtrace {FRAMES}"));
        text.push_str(&run::output(&mut command).unwrap_or_else(|message| message));
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

    /// No other test of this crate runs a program through `lines`.
    #[test]
    fn a_program_that_hangs_is_ended_with_what_it_has_started() {
        limit(Duration::from_secs(1));
        let started = std::time::Instant::now();
        let mut command = Command::new("sh");
        let ended = run::lines(command.args(["-c", "sleep 1000 & wait"]), |_| ());
        limit(Duration::ZERO);
        assert_eq!(ended, Ok(false));
        assert!(started.elapsed() < Duration::from_secs(900));
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
        let told = threads(std::process::id());
        drop(over);
        assert!(waits.join().unwrap());
        assert!(told.contains("    waits-for-test: "), "{told}");
    }
}
