//! A program that runs: what it prints is handed on line by line, and it ends: by itself, or because its time is over. Who runs one goes on in any case, also where the kernel
//! does not end it.
//!
//! Threads: one for each stream, until nobody can write to it any more. Where something that SIGKILL does not end still could, they are left behind.

use crate::hang;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// How often it is looked whether the program has ended.
const LOOK: Duration = Duration::from_millis(10);
/// For what a program that has ended left behind: so long it may go on writing to the streams.
const LEFT_BEHIND_MAX: Duration = Duration::from_secs(20);
/// For the kernel, to end what was killed.
const KILLED_MAX: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 30 });
/// Lines that wait to be handed on.
const LINES_MAX: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stream {
    Out,
    Error,
}

type Line = (Stream, Vec<u8>);

/// Runs `command` for at most `time`, where that is given; its lines, and what is behind the last one, go to `each`. Whether it ended well, and by itself.
pub(crate) fn attend(
    command: &mut Command,
    time: Option<Duration>,
    mut each: impl FnMut(Stream, &[u8]),
) -> Result<bool, String> {
    let begun = Instant::now();
    let mark = hang::mark(command);
    let name = name(command);
    let failed = |error| format!("cannot run {name}: {error}");
    let mut child = command.stdin(Stdio::null()).spawn().map_err(failed)?;
    let lines = lines(&mut child);
    let mut until = time.map(|time| begun + time);
    let mut status: Option<ExitStatus> = None;
    let mut ended = false;
    loop {
        let closed = match lines.recv_timeout(LOOK) {
            Ok((stream, line)) => {
                each(stream, &line);
                false
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => true,
        };
        let now = Instant::now();
        if status.is_none() {
            status = child.try_wait().map_err(|error| error.to_string())?;
            if status.is_some() {
                let left_behind = now + LEFT_BEHIND_MAX;
                until = Some(until.map_or(left_behind, |until| until.min(left_behind)));
            }
        }
        match status {
            Some(status) if closed => return Ok(status.success() && !ended),
            None if closed => std::thread::sleep(LOOK),
            _ => {}
        }
        if until.is_none_or(|until| now < until) {
            continue;
        }
        let seconds = begun.elapsed().as_secs();
        if ended {
            hang::note(format!("{name}: SIGKILL does not end it; left behind"));
            return Ok(false);
        }
        ended = true;
        hang::note(match status {
            None => format!("{name}: ended, for it was not through after {seconds} s"),
            Some(_) => format!("{name}: through, but what it left behind was ended"),
        });
        // Where it has ended its number may be another's.
        let process = status.is_none().then(|| child.id());
        hang::end(process, &mark);
        until = Some(Instant::now() + KILLED_MAX);
    }
}

/// What the program writes, where that is not passed on by itself; ends when nobody can write any more.
fn lines(child: &mut Child) -> Receiver<Line> {
    let (send, lines) = sync_channel(LINES_MAX);
    if let Some(stderr) = child.stderr.take() {
        let send = send.clone();
        std::thread::spawn(move || pass(stderr, Stream::Error, &send));
    }
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || pass(stdout, Stream::Out, &send));
    }
    lines
}

fn pass(from: impl Read, stream: Stream, to: &SyncSender<Line>) {
    let mut reader = BufReader::new(from);
    loop {
        let mut line = Vec::new();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if to.send((stream, line)).is_err() => return,
            Ok(_) => {}
        }
    }
}

/// What is called, and with what.
fn name(command: &Command) -> String {
    const CHARS_MAX: usize = 200;
    let program = std::path::Path::new(command.get_program());
    let program = program.file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ").chars().take(CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the shell's commands end well and by themselves, what they print, and whether that took no longer than is seemly.
    fn shell(script: &str, time: Option<Duration>) -> (bool, String, bool) {
        let begun = Instant::now();
        let mut printed = Vec::new();
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped());
        let ended = attend(&mut command, time, |_, line| {
            printed.extend_from_slice(line)
        });
        let quick = begun.elapsed() < LEFT_BEHIND_MAX + 2 * hang::TELL_MAX;
        let printed = String::from_utf8_lossy(&printed).into_owned();
        (ended.unwrap(), printed, quick)
    }

    #[test]
    fn what_a_program_prints_is_handed_on_to_its_last_byte() {
        let said = |text: &str| text.to_owned();
        assert_eq!(shell("printf 'a\nb'", None), (true, said("a\nb"), true));
        assert_eq!(shell("echo a; exit 1", None), (false, said("a\n"), true));
        let (ended, ..) = shell("exec >/dev/null; sleep 0.1", None);
        assert!(ended, "it may close what it prints to");
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_what_it_has_started() {
        let time = Some(Duration::from_secs(1));
        let ended = shell("echo a; sleep 1000 & wait", time);
        assert_eq!(ended, (false, "a\n".to_owned(), true));
    }

    /// The shell that started it is gone, so it is nobody's descendant.
    #[test]
    fn an_orphan_that_holds_the_pipe_is_ended() {
        let ended = shell("(sleep 1000 &) ; echo a", Some(Duration::from_secs(1)));
        assert_eq!(ended, (false, "a\n".to_owned(), true));
        let ended = shell("(sleep 0.2; echo b) & echo a", None);
        assert_eq!(
            ended,
            (true, "a\nb\n".to_owned(), true),
            "it may take a little"
        );
    }

    /// Without the mark it is not found, as what the kernel does not end cannot be.
    #[test]
    fn what_cannot_be_ended_is_left_behind() {
        let script = "(exec env -i sleep 6 &) ; echo a";
        let ended = shell(script, Some(Duration::from_secs(1)));
        assert_eq!(ended, (false, "a\n".to_owned(), true));
    }
}
