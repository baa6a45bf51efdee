//! Tools that look into a database: `check`, `dump`, and what messages about damage say.

use crate::{fails, ok, run, run_with};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
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

/// A database with a table, and a log with commits that are in no table.
fn database_with_every_kind_of_file(dir: &Path) {
    ok(dir, &["put", "the-key", "the \"value\""]);
    ok(dir, &["put", "base64:AP8=", &"v".repeat(2000)]);
    ok(dir, &["compact"]);
    ok(dir, &["put", "another-key", "another-value"]);
    ok(dir, &["delete", "the-key"]);
}

#[test]
fn dump_shows_files_as_names_and_values() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    database_with_every_kind_of_file(dir);
    let data = dir.join("data");
    let dump = |path: &PathBuf| ok(dir, &["dump", path.to_str().unwrap()]);

    let table = dump(&files_of(&data, "table-")[0]);
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].starts_with("table file=table-"), "{table}");
    assert!(lines[0].contains(" entries=2 deletions=0 range_deletions=0 separated_bytes=2000 "));
    assert!(lines[1].starts_with("  put seqno=2 key=0x00ff value_file=log-"));
    assert!(lines[1].ends_with(" value_bytes=2000"), "{table}");
    assert_eq!(
        lines[2..],
        [r#"  put seqno=1 key="the-key" value="the \"value\"""#]
    );

    let logs: String = files_of(&data, "log-").iter().map(dump).collect();
    for line in [
        r#"    put keyspace=0 key="another-key" value="another-value""#,
        r#"    delete keyspace=0 key="the-key""#,
    ] {
        assert!(logs.lines().any(|found| found == line), "{line}\n{logs}");
    }
    assert!(logs.contains("\n  commit offset="), "{logs}");

    let manifest = dump(files_of(&data, "manifest-").last().unwrap());
    assert!(
        manifest.starts_with("manifest file=manifest-"),
        "{manifest}"
    );
    for part in [
        "\n  record offset=",
        "\n    snapshot database=",
        "\n    keyspace_created keyspace=0 name=default index=lsm size_ratio=10 ",
        "\n    table_added keyspace=0 file=table-",
        "\n    flush_point file=log-",
    ] {
        assert!(manifest.contains(part), "{part}\n{manifest}");
    }
    // Rust's Debug output of a struct or an enum has one of these.
    for dumped in [&table, &logs, &manifest] {
        assert!(!dumped.contains([':', '{', '(', '[']), "{dumped}");
    }

    let (code, stderr) = fails(dir, &["dump", "data/LOCK"]);
    assert_eq!((code, stderr.lines().count()), (2, 1), "{stderr}");
}

#[test]
fn dump_with_json_prints_one_whole_object_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    database_with_every_kind_of_file(dir);
    let data = dir.join("data");
    let json = |path: &Path| -> Vec<serde_json::Value> {
        let printed = ok(dir, &["dump", "--json", path.to_str().unwrap()]);
        let lines = printed.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let table = json(&files_of(&data, "table-")[0]);
    assert_eq!(
        (&table[0]["what"], &table[0]["entries"]),
        (&"table".into(), &2.into())
    );
    assert_eq!(
        (&table[1]["key_base64"], &table[1]["value_bytes"]),
        (&"AP8=".into(), &2000.into())
    );
    let expected = serde_json::json!({
        "what": "put", "seqno": 1, "key": "the-key", "value": "the \"value\"",
    });
    assert_eq!(table[2], expected);
    for kind in ["log-", "manifest-"] {
        for path in files_of(&data, kind) {
            let lines = json(&path);
            let name = path.file_name().unwrap().to_str().unwrap();
            assert_eq!(lines[0]["file"], name);
            assert!(
                lines.iter().all(|line| line["what"].is_string()),
                "{lines:?}"
            );
        }
    }
    let listed = json(&data);
    let table = files_of(&data, "table-").remove(0);
    let entry = serde_json::json!({
        "file": table.file_name().unwrap().to_str(),
        "bytes": table.metadata().unwrap().len(),
    });
    assert!(listed.contains(&entry), "{listed:?}");
}

#[test]
fn dump_with_limit_prints_the_first_lines() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    database_with_every_kind_of_file(dir);
    for kind in ["table-", "log-", "manifest-"] {
        let path = files_of(&dir.join("data"), kind).remove(0);
        let path = path.to_str().unwrap();
        let whole = ok(dir, &["dump", path]);
        for limit in 0..=3 {
            let first: String = whole.split_inclusive('\n').take(limit).collect();
            let limited = ok(dir, &["dump", path, "--limit", &limit.to_string()]);
            assert_eq!(limited, first);
        }
    }
    assert_eq!(
        ok(dir, &["dump", "data", "--limit", "2"]).lines().count(),
        2
    );
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
fn check_counts_records_in_the_log_and_in_tables() {
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
    // An import ends with a flush.
    assert_eq!(
        totals(&ok(dir, &["check"])),
        "entries: 3000 in tables + 0 in the log = 3000\n\
         separated values: 1000 of tables + 0 in the log = 1000\n"
    );
    assert_eq!(counts(&report()), [3000, 3000, 0, 1000, 1000, 0]);
    ok(dir, &["put", "small", "value"]);
    ok(dir, &["put", "large", &"v".repeat(700)]);
    assert_eq!(
        totals(&ok(dir, &["check"])),
        "entries: 3000 in tables + 2 in the log = 3002\n\
         separated values: 1000 of tables + 1 in the log = 1001\n"
    );
    assert_eq!(counts(&report()), [3002, 3000, 2, 1001, 1000, 1]);
    ok(dir, &["compact"]);
    assert_eq!(counts(&report()), [3002, 3002, 0, 1001, 1001, 0]);
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

#[test]
fn dump_of_a_damaged_file_names_the_salvage_command() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    database_with_every_kind_of_file(dir);
    let table = files_of(&dir.join("data"), "table-").remove(0);
    let mut bytes = std::fs::read(&table).unwrap();
    // In the first block of entries.
    bytes[4200] ^= 1;
    std::fs::write(&table, bytes).unwrap();
    let name = table.file_name().unwrap().to_str().unwrap();
    let output = run(dir, &["dump", &format!("data/{name}")]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(4), "{stderr}");
    assert!(
        stderr.ends_with("glintdb salvage data NEW_DIR\n"),
        "{stderr}"
    );
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.contains("\n  lost start="), "{stdout}");
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

/// Everything in a directory: name, length, time of the last change.
fn listing(dir: &Path) -> Vec<(String, u64, std::time::SystemTime)> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, metadata.len(), metadata.modified().unwrap())
    });
    let mut listing: Vec<_> = entries.collect();
    listing.sort();
    listing
}

/// A check wrote to `LOCK` and made a file to try direct I/O.
#[test]
fn check_and_dump_need_no_permission_to_write_and_change_nothing() {
    /// `nobody` on every Linux.
    const NOBODY: u32 = 65_534;
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    database_with_every_kind_of_file(dir);
    let data = dir.join("data");
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let table = files_of(&data, "table-")[0].display().to_string();
    let manifest = files_of(&data, "manifest-")[0].display().to_string();
    let commands: [&[&str]; 4] = [
        &["check"],
        &["dump", &table],
        &["dump", &manifest],
        &["dump", "data"],
    ];
    for with_lock in [true, false] {
        if !with_lock {
            // As in a copy of the database.
            std::fs::remove_file(data.join("LOCK")).unwrap();
        }
        for entry in std::fs::read_dir(&data).unwrap() {
            mode(&entry.unwrap().path(), 0o444);
        }
        mode(dir, 0o755);
        mode(&data, 0o555);
        let before = listing(&data);
        for words in commands {
            let mut command = Command::new(env!("CARGO_BIN_EXE_glintdb"));
            command.current_dir(dir).args(words);
            // Root may write everywhere. Another user may not be allowed to run the program here:
            // then root shows that nothing is changed.
            let output = match rustix::process::geteuid().is_root() {
                true => {
                    (command.uid(NOBODY).gid(NOBODY).output()).unwrap_or_else(|_| run(dir, words))
                }
                false => command.output().unwrap(),
            };
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{words:?}: {stderr}");
        }
        assert_eq!(listing(&data), before);
        mode(&data, 0o755);
    }
    for entry in std::fs::read_dir(&data).unwrap() {
        mode(&entry.unwrap().path(), 0o644);
    }
    assert_eq!(ok(dir, &["get", "another-key"]), "another-value\n");
}

#[test]
fn flash_bench_checks_the_name_of_a_plot_before_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let bench = |plot| {
        let output = run(dir, &["flash-bench", "--bytes", "20m", "--plot", plot]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), output.stdout, stderr)
    };
    for (plot, code, part) in [
        ("units.jpeg", 2, "in .png gives PNG"),
        ("no/such.png", 5, "no/such.png"),
        (".", 5, "directory"),
    ] {
        let (found, stdout, stderr) = bench(plot);
        assert_eq!((found, stdout.len()), (code, 0), "{plot}: {stderr}");
        assert!(stderr.contains(part), "{stderr}");
    }
    assert_eq!(bench("units.png").0, 0);
    let png = std::fs::read(dir.join("units.png")).unwrap();
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n") && png.len() > 1000);
    assert_eq!(bench("units.svg").0, 0);
    let svg = std::fs::read_to_string(dir.join("units.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("mostly erase"));
    // Of wrong arguments no file comes.
    let words = ["flash-bench", "--width", "0", "--plot", "new.png"];
    assert_eq!(fails(dir, &words).0, 2);
    assert!(!dir.join("new.png").exists());
}

#[test]
fn flash_bench_ends_with_an_io_error_if_all_operations_fail() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let profile = ok(dir, &["flash-bench", "--print-profile"]);
    let failing = profile.replace("read_ppm = 0", "read_ppm = 1000000");
    assert_ne!(profile, failing);
    std::fs::write(dir.join("failing.toml"), failing).unwrap();
    let words = [
        "flash-bench",
        "--profile",
        "./failing.toml",
        "--bytes",
        "20m",
    ];
    let output = run(dir, &[&words[..], &["--writers", "0"]].concat());
    assert_eq!(output.status.code(), Some(5));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("failed: "), "{table}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("all operations have failed"), "{stderr}");
    ok(dir, &words);
}

#[test]
fn flash_bench_live_needs_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let words = [
        "flash-bench",
        "--live",
        "--bytes",
        "20m",
        "--plot",
        "new.svg",
    ];
    let output = run(dir.path(), &words);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), output.stdout.len()),
        (Some(2), 0),
        "{stderr}"
    );
    assert!(stderr.contains("--live draws into a terminal"), "{stderr}");
    assert!(!dir.path().join("new.svg").exists());
}
