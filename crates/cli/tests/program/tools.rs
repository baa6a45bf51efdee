//! Tools that look into a database: `check`, `dump`, and what messages about damage say.

use crate::{fails, ok, run, run_with};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The paths of a database's files whose names begin with `kind`, in order.
fn files_of(data: &Path, kind: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(data).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let of_kind = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with(kind) && name.ends_with(".glint")
    };
    let mut paths: Vec<_> = paths.filter(of_kind).collect();
    paths.sort();
    paths
}

#[test]
fn check_names_what_is_damaged_and_ends_with_one() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let input: String = (0..5000)
        .map(|n| format!("{{\"key\":\"k{n:05}\",\"value\":\"v{n}\"}}\n"))
        .collect();
    assert!(
        run_with(dir, &["import", "-"], input.as_bytes())
            .status
            .success()
    );
    ok(dir, &["compact"]);
    let table = files_of(&dir.join("data"), "table-").remove(0);
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&table, bytes).unwrap();
    let name = table.file_name().unwrap().to_string_lossy().into_owned();
    let output = run(dir, &["check"]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains(&name) && printed.contains("NOT clean"),
        "{printed}"
    );
    assert!(
        printed.ends_with("glintdb salvage ./data NEW_DIR\n"),
        "{printed}"
    );
    let output = run(dir, &["check", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["clean"], false);
    assert!(
        report["errors"][0]["file"]
            .as_str()
            .unwrap()
            .contains(&name)
    );
}

#[test]
fn check_counts_imported_records_before_and_after_a_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let input: String = (0..3000)
        .map(|n| {
            let value = "v".repeat(if n % 3 == 0 { 700 } else { 7 });
            format!("{{\"key\":\"k{n:05}\",\"value\":\"{value}\"}}\n")
        })
        .collect();
    let output = run_with(dir, &["import", "-"], input.as_bytes());
    assert!(output.status.success());
    let totals = |printed: &str| -> String { printed.split_inclusive('\n').skip(1).collect() };
    let report =
        || -> serde_json::Value { serde_json::from_str(&ok(dir, &["check", "--json"])).unwrap() };
    let counts = |report: &serde_json::Value| {
        let names = [
            "entries",
            "table_entries",
            "log_entries",
            "values",
            "table_values",
            "log_values",
        ];
        names.map(|name| report[name].as_u64().unwrap())
    };
    assert_eq!(
        totals(&ok(dir, &["check"])),
        "entries: 0 in tables + 3000 in the log = 3000\n\
         separated values: 0 of tables + 1000 in the log = 1000\n"
    );
    assert_eq!(counts(&report()), [3000, 0, 3000, 1000, 0, 1000]);
    ok(dir, &["compact"]);
    assert_eq!(
        totals(&ok(dir, &["check"])),
        "entries: 3000 in tables + 0 in the log = 3000\n\
         separated values: 1000 of tables + 0 in the log = 1000\n"
    );
    assert_eq!(counts(&report()), [3000, 3000, 0, 1000, 1000, 0]);
}

#[test]
fn corruption_messages_name_the_salvage_command_with_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let data = ["--dir", "my data"];
    ok(dir, &[&["put", "key", "value"][..], &data].concat());
    ok(dir, &[&["compact"][..], &data].concat());
    for path in files_of(&dir.join("my data"), "manifest-") {
        std::fs::remove_file(path).unwrap();
    }
    let hint =
        "; to recover the intact records into a new directory: glintdb salvage 'my data' NEW_DIR\n";
    for words in [
        &["get", "key"][..],
        &["put", "key", "value"],
        &["compact"],
        &["stats"],
        &["serve", "--port", "0"],
    ] {
        let (code, stderr) = fails(dir, &[words, &data].concat());
        assert_eq!(
            (code, stderr.lines().count()),
            (4, 1),
            "{words:?}: {stderr}"
        );
        assert!(stderr.ends_with(hint), "{words:?}: {stderr}");
        assert!(
            stderr.contains("expected a manifest beside this file, found none: restore"),
            "{stderr}"
        );
    }
    let (_, stderr) = fails(dir, &["advise", "my data"]);
    assert!(stderr.ends_with(hint), "{stderr}");
    // The command that the message names works.
    assert_eq!(
        run(dir, &["salvage", "my data", "copy"]).status.code(),
        Some(1)
    );
    assert_eq!(ok(dir, &["get", "key", "--dir", "copy"]), "value\n");
    // Other errors name no such command.
    let (_, stderr) = fails(dir, &["get", "key", "--dir", "nowhere"]);
    assert!(!stderr.contains("salvage"), "{stderr}");
}

/// Runs the program with a terminal as standard error, and gives what the terminal was sent.
fn on_a_terminal(dir: &Path, words: &[&str]) -> String {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let side = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_glintdb"))
        .current_dir(dir)
        .env("TERM", "xterm")
        .args(words)
        .stdout(Stdio::null())
        .stderr(side)
        .spawn()
        .unwrap();
    let mut terminal = std::fs::File::from(terminal);
    let mut sent = Vec::new();
    // Ends with an error once the program has closed its side.
    terminal.read_to_end(&mut sent).ok();
    assert!(child.wait().unwrap().success());
    String::from_utf8_lossy(&sent).into_owned()
}

#[test]
fn check_and_compact_show_progress_on_a_terminal_only() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let input: String = (0..3000)
        .map(|n| {
            format!(
                "{{\"key\":\"k{:08}\",\"value\":\"{}\"}}\n",
                n * 7919 % 3000,
                "v".repeat(600)
            )
        })
        .collect();
    assert!(
        run_with(dir, &["import", "-"], input.as_bytes())
            .status
            .success()
    );
    for words in [&["compact", "--values"][..], &["check"]] {
        let output = run(dir, words);
        assert!(output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{words:?}");
    }
    let shown = on_a_terminal(dir, &["check"]);
    assert!(shown.contains(" MiB/"), "bytes of bytes: {shown:?}");
    assert!(
        run_with(dir, &["import", "-"], input.as_bytes())
            .status
            .success()
    );
    let shown = on_a_terminal(dir, &["compact", "--values"]);
    assert!(shown.contains("compacting: tables "), "{shown:?}");
}
