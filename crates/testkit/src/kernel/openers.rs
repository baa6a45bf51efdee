//! Processes that get in each other's way: locks, permissions, descriptors. Every refusal is a
//! clear error, and the database is as before.
//!
//! Thread safety: none is needed.

use crate::options::OptionSet;
use glintdb::{Db, Error, ErrorKind};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// `nobody` on every Linux.
const NOBODY: u32 = 65_534;
/// Records of the database.
const RECORDS: u32 = 3_000;

/// The child: opens, reads and writes, and prints what came of it.
pub fn child(dir: &Path, set: &OptionSet) -> String {
    let work = || -> Result<(), Error> {
        let db = set.options.clone().create_if_missing(false).open(dir)?;
        check(&db)?;
        db.put("child", "was here")?;
        db.flush()?;
        db.compact()
    };
    match work() {
        Ok(()) => "ok".into(),
        Err(error) => format!("{:?}: {error}", error.kind()),
    }
}

fn value(number: u32) -> Vec<u8> {
    vec![number as u8; 50 + number as usize % 1500]
}

fn check(db: &Db) -> Result<(), Error> {
    for number in 0..RECORDS {
        if db.get(number.to_be_bytes())?.as_deref() != Some(&value(number)[..]) {
            return Err(Error::invalid(format!("record {number} is gone or wrong")));
        }
    }
    Ok(())
}

/// Every case; gives how many there were, and what could not be tried.
///
/// # Errors
/// What was found wrong.
pub fn run(
    dir: &Path,
    set: &OptionSet,
    command: &dyn Fn(&Path) -> Command,
) -> Result<(u64, Vec<String>), String> {
    let db_dir = dir.join("db");
    let open = || set.options.clone().open(&db_dir);
    let sentence = |error: Error| format!("openers: {error:?}");
    let answer = |command: &mut Command| -> Result<String, String> {
        let output = command.output().map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let expect = |what: &str, said: String, wanted: &[&str]| match wanted {
        wanted if wanted.iter().all(|word| said.contains(word)) => Ok(()),
        _ => Err(format!("{what}: expected {wanted:?}, found {said:?}")),
    };
    let mut not_run = Vec::new();

    let db = open().map_err(sentence)?;
    for number in 0..RECORDS {
        db.put(number.to_be_bytes(), value(number))
            .map_err(sentence)?;
        if number % 500 == 0 {
            db.flush().map_err(sentence)?;
        }
    }
    let path = db_dir.display().to_string();
    match open() {
        Err(error) if error.kind() == ErrorKind::Locked => {
            expect(
                "a second open in this process",
                error.to_string(),
                &[&path, "this process"],
            )?;
        }
        other => return Err(format!("a second open in this process: {:?}", other.err())),
    }
    let me = format!("process {}", std::process::id());
    expect(
        "a second process",
        answer(&mut command(&db_dir))?,
        &["Locked", &path, &me],
    )?;
    check(&db).map_err(sentence)?;
    drop(db);
    expect("the next process", answer(&mut command(&db_dir))?, &["ok"])?;

    // A lock file that somebody left, with the number of a process that is still there.
    fs::write(db_dir.join("LOCK"), "1\n").map_err(|error| error.to_string())?;
    expect(
        "a lock file left over",
        answer(&mut command(&db_dir))?,
        &["ok"],
    )?;

    let permissions = |mode| {
        fs::set_permissions(&db_dir, fs::Permissions::from_mode(mode))
            .map_err(|error| error.to_string())
    };
    // Root may everything: somebody else tries. The program must be one that they may run.
    let mut nobody = command(&db_dir);
    nobody.uid(NOBODY).gid(NOBODY);
    permissions(0o755)?;
    match nobody.output() {
        Err(error) => not_run.push(format!("openers without permission: {error}")),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            expect(
                "a directory that may only be read",
                said,
                &["Unavailable", "ermission denied", &path],
            )?;
            permissions(0o700)?;
            let said = answer(&mut nobody)?;
            expect(
                "a directory that may not be entered",
                said,
                &["Unavailable", "ermission denied", &path],
            )?;
        }
    }
    permissions(0o755)?;

    let descriptors = descriptors(&db_dir, command, &answer)?;
    let db = open().map_err(sentence)?;
    check(&db).map_err(sentence)?;
    super::power::verified(&db)?;
    Ok((7 + descriptors, not_run))
}

/// The fewest descriptors with which a database opens.
const DESCRIPTORS_MIN: u64 = 20;

/// A child with fewer and fewer descriptors: it works as long as a database opens, and is then told
/// how many are needed.
fn descriptors(
    db_dir: &Path,
    command: &dyn Fn(&Path) -> Command,
    answer: &dyn Fn(&mut Command) -> Result<String, String>,
) -> Result<u64, String> {
    let limits = [64, 32, 24, 20, 19, 16, 12, 10, 8];
    for limit in limits {
        let child = command(db_dir);
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\"")]);
        limited.arg(child.get_program()).args(child.get_args());
        let said = answer(&mut limited)?;
        let expected = match limit >= DESCRIPTORS_MIN {
            true => said == "ok",
            // The loader of programs needs some too.
            false => {
                said.is_empty() || said.contains("Unavailable") && said.contains("at least 20")
            }
        };
        if !expected {
            return Err(format!("{limit} descriptors: {said:?}"));
        }
    }
    Ok(limits.len() as u64)
}
