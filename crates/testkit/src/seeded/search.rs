//! The search for one mistake, in a process of its own: lanes in turn, the expected one first, until one fails.
//!
//! The process is this program again with the mistake in `GLINTDB_SEEDED_BUG`. It says on standard output which lane begins, and at the end one line of JSON. A panic,
//! whichever thread it is in, ends it with that line; where it dies without one, the lane that began last has killed it.

use super::bugs::Bug;
use super::lanes::{Lane, Steps};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The environment variable that [`glintdb_core::seeded`] reads.
pub const BUG: &str = "GLINTDB_SEEDED_BUG";
/// The program, called so, is the one that searches: `--search DIR LANE,LANE…`.
pub const SEARCH: &str = "--search";
/// A search that hangs by its nature has done nothing for so long.
const HANG: Duration = Duration::from_secs(12);
/// Any other takes at most so long.
const TIME_MAX: Duration = Duration::from_secs(400);

/// What a search found.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Found {
    /// The mistake; empty: none was switched on.
    pub bug: String,
    /// The lane that noticed it; `None`: none did.
    pub lane: Option<Lane>,
    /// Steps of that lane until it did.
    pub steps: u64,
    /// Of the whole search.
    pub seconds: f64,
    /// What the lane said.
    pub message: String,
}

/// Searches with every lane of `lanes`, in a new process; `dir` is its own.
///
/// # Errors
/// The process cannot be started or understood.
pub fn search(bug: Option<&Bug>, lanes: &[Lane], dir: &Path) -> Result<Found, String> {
    let start = Instant::now();
    let sentence = |error: std::io::Error| error.to_string();
    std::fs::create_dir_all(dir).map_err(sentence)?;
    let lanes: Vec<&str> = lanes.iter().map(|lane| lane.name()).collect();
    let mut command = Command::new(std::env::current_exe().map_err(sentence)?);
    command.arg(SEARCH).arg(dir).arg(lanes.join(","));
    match bug {
        Some(bug) => command.env(BUG, bug.name),
        None => command.env_remove(BUG),
    };
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn().map_err(sentence)?;
    let pipe = child.stdout.take().ok_or("no pipe")?;
    let (told, lines) = channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if told.send(line).is_err() {
                break;
            }
        }
    });
    let limit = match bug {
        Some(bug) if bug.hangs => HANG,
        Some(_) => TIME_MAX,
        // It does all that there is, however long the machine takes.
        None => Duration::MAX,
    };
    let mut lane = None;
    let mut found: Option<Found> = None;
    let ended = loop {
        match lines.recv_timeout(limit.saturating_sub(start.elapsed())) {
            Ok(line) => match line.strip_prefix("lane ") {
                Some(name) => lane = Lane::named(name),
                None => found = serde_json::from_str(&line).ok(),
            },
            Err(RecvTimeoutError::Disconnected) => break true,
            Err(RecvTimeoutError::Timeout) => break false,
        }
    };
    if !ended {
        child.kill().map_err(sentence)?;
    }
    let status = child.wait().map_err(sentence)?;
    drop(lines);
    reader.join().map_err(|_| "the reader panicked")?;
    std::fs::remove_dir_all(dir).map_err(sentence)?;
    let found = found.unwrap_or_else(|| without_answer(bug, lane, ended, status));
    Ok(Found {
        bug: bug.map_or_else(String::new, |bug| bug.name.to_owned()),
        seconds: start.elapsed().as_secs_f64(),
        ..found
    })
}

/// The process died, or did nothing more.
fn without_answer(bug: Option<&Bug>, lane: Option<Lane>, ended: bool, status: ExitStatus) -> Found {
    let hangs = bug.is_some_and(|bug| bug.hangs);
    let message = match ended {
        true => format!("the process died: {status}"),
        false => "it does not end".to_owned(),
    };
    Found {
        bug: String::new(),
        lane: lane.filter(|_| ended || hangs),
        steps: 0,
        seconds: 0.0,
        message,
    }
}

static LANE: Mutex<Option<Lane>> = Mutex::new(None);

/// What the process that searches does; it prints its answer.
///
/// # Errors
/// The arguments are not understood.
pub fn search_main(arguments: &[String]) -> Result<(), String> {
    let [dir, lanes] = arguments else {
        return Err(format!("{SEARCH} takes a directory and lanes"));
    };
    std::panic::set_hook(Box::new(|panic| {
        let lane = LANE.lock().ok().and_then(|lane| *lane);
        answer(lane, panic.to_string().replace('\n', ": "));
        std::process::exit(0);
    }));
    for name in lanes.split(',') {
        let lane = Lane::named(name).ok_or_else(|| format!("no lane `{name}`"))?;
        say(&format!("lane {lane}"));
        if let Ok(mut current) = LANE.lock() {
            *current = Some(lane);
        }
        Steps::reset();
        let own = Path::new(dir).join(name);
        std::fs::create_dir_all(&own).map_err(|error| error.to_string())?;
        if let Err(message) = lane.run(&own) {
            answer(Some(lane), message);
            return Ok(());
        }
    }
    answer(None, String::new());
    Ok(())
}

fn answer(lane: Option<Lane>, message: String) {
    let found = Found {
        bug: String::new(),
        lane,
        steps: Steps::so_far(),
        seconds: 0.0,
        message,
    };
    if let Ok(line) = serde_json::to_string(&found) {
        say(&line);
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Where nobody listens any more there is nobody to tell.
    writeln!(out, "{line}").and_then(|()| out.flush()).ok();
}
