//! One child, from its start to its death, and what it told meanwhile.
//!
//! Thread safety: the pipe is read by a thread that ends with the child.

use super::WRITERS;
use super::child::{ACKNOWLEDGEMENT_BYTES, CHECKPOINT, READY};
use std::io::Read;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A child opens its database within this time.
const OPEN_MAX: Duration = Duration::from_secs(60);

/// What a child told.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Commits that each writer acknowledged, in order.
    pub acknowledged: Vec<Vec<u64>>,
    /// A checkpoint was begun (false), or was whole (true).
    pub checkpoint: Option<bool>,
    /// How long the child took to open the database; `None`: it did not live to see that.
    pub open: Option<Duration>,
}

/// When a child is killed.
#[derive(Clone, Copy, Debug)]
pub enum Death {
    /// So long after its start, open or not.
    AfterStart(Duration),
    /// So long after the database is open.
    AfterOpen(Duration),
}

/// Starts a child and kills it.
///
/// # Errors
/// It ended by itself, did not open the database, or acknowledged out of order.
pub fn live(command: &mut Command, death: Death) -> Result<Told, String> {
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start the child: {error}"))?;
    let pipe = child.stdout.take().ok_or("no pipe")?;
    let (ready, opened) = channel();
    let reader = listen(pipe, ready, start);
    let waited = wait(&opened, death);
    kill(&mut child)?;
    waited?;
    let told = reader
        .join()
        .map_err(|_| "the reader of the pipe panicked")?;
    for (writer, numbers) in told.acknowledged.iter().enumerate() {
        if !numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]) {
            return Err(format!("writer {writer} acknowledged out of order"));
        }
    }
    Ok(told)
}

fn wait(opened: &Receiver<()>, death: Death) -> Result<(), String> {
    let life = match death {
        Death::AfterStart(life) => life,
        Death::AfterOpen(life) => {
            if opened.recv_timeout(OPEN_MAX).is_err() {
                return Err("the child did not open the database within a minute".into());
            }
            life
        }
    };
    std::thread::sleep(life);
    Ok(())
}

fn listen(mut pipe: ChildStdout, ready: Sender<()>, start: Instant) -> JoinHandle<Told> {
    std::thread::spawn(move || {
        let mut told = Told {
            acknowledged: vec![Vec::new(); WRITERS as usize],
            ..Told::default()
        };
        let mut bytes = [0; ACKNOWLEDGEMENT_BYTES];
        while pipe.read_exact(&mut bytes).is_ok() {
            let [a, b, c, d, rest @ ..] = bytes;
            let number = u64::from_le_bytes(rest);
            match u32::from_le_bytes([a, b, c, d]) {
                READY => {
                    told.open = Some(start.elapsed());
                    ready.send(()).ok();
                }
                CHECKPOINT => told.checkpoint = Some(number == 1),
                writer => {
                    if let Some(numbers) = told.acknowledged.get_mut(writer as usize) {
                        numbers.push(number);
                    }
                }
            }
        }
        told
    })
}

/// SIGKILL; a child that has ended by itself has failed.
fn kill(child: &mut Child) -> Result<(), String> {
    if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
        return Err(format!("the child ended by itself: {status}"));
    }
    child.kill().map_err(|error| format!("kill: {error}"))?;
    child.wait().map_err(|error| error.to_string())?;
    Ok(())
}
