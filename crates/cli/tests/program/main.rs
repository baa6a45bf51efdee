//! The program as a user runs it: what it prints, what it leaves, how it ends.
#![allow(clippy::unwrap_used, reason = "tests: what fails ends them")]

mod converting;
mod creating;
mod exchange;
mod options;
mod served;
mod serving;
mod tools;
mod units;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs `glintdb` with these words and this standard input, in `dir`.
fn run_with(dir: &Path, words: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_glintdb"))
        .current_dir(dir)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A program that refuses its arguments does not read.
    stdin.write_all(input).ok();
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn run(dir: &Path, words: &[&str]) -> Output {
    run_with(dir, words, b"")
}

/// Runs, expects success and gives standard output.
fn ok(dir: &Path, words: &[&str]) -> String {
    let output = run(dir, words);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Exit code and standard error.
fn fails(dir: &Path, words: &[&str]) -> (i32, String) {
    let output = run(dir, words);
    let code = output.status.code().unwrap();
    (code, String::from_utf8(output.stderr).unwrap())
}

#[test]
fn records_are_written_read_listed_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for (key, value) in [("user:1", "ada"), ("user:2", "grace"), ("zebra", "stripes")] {
        ok(dir, &["put", key, value]);
    }
    assert_eq!(ok(dir, &["get", "user:1"]), "ada\n");
    assert_eq!(ok(dir, &["get", "--raw", "user:2"]), "grace");
    assert_eq!(
        ok(dir, &["get", "--json", "zebra"]),
        "{\"key\":\"zebra\",\"value\":\"stripes\"}\n"
    );
    assert_eq!(
        ok(dir, &["scan"]),
        "user:1\tada\nuser:2\tgrace\nzebra\tstripes\n"
    );
    assert_eq!(
        ok(
            dir,
            &["scan", "--prefix", "user:", "--reverse", "--keys-only"]
        ),
        "user:2\nuser:1\n"
    );
    assert_eq!(
        ok(dir, &["scan", "--from", "user:2", "--to", "zebra"]),
        "user:2\tgrace\n"
    );
    assert_eq!(ok(dir, &["scan", "--count"]), "3\n");
    assert_eq!(
        ok(dir, &["scan", "--limit", "1", "--json"]),
        "{\"key\":\"user:1\",\"value\":\"ada\"}\n"
    );
    ok(dir, &["delete", "user:1"]);
    ok(dir, &["delete", "--prefix", "z"]);
    assert_eq!(ok(dir, &["scan", "--keys-only"]), "user:2\n");
}

#[test]
fn bytes_that_are_no_text_go_in_and_come_out() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(dir, &["put", "base64:/wA=", "base64:gIE="]);
    assert_eq!(ok(dir, &["scan"]), "\\xff\\x00\t\\x80\\x81\n");
    assert_eq!(
        ok(dir, &["get", "--json", "base64:/wA="]),
        "{\"key_base64\":\"/wA=\",\"value_base64\":\"gIE=\"}\n"
    );
    let output = run_with(dir, &["put", "piped", "-"], b"from\0standard input");
    assert!(output.status.success());
    assert_eq!(
        run(dir, &["get", "--raw", "piped"]).stdout,
        b"from\0standard input"
    );
}

#[test]
fn what_is_exported_is_imported_again_in_both_formats() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let input: String = (0..2500)
        .map(|n| format!("{{\"key\":\"k{n:05}\",\"value\":\"v{n}\"}}\n"))
        .collect();
    let odd = "{\"key_base64\":\"/w==\",\"value\":\"\"}\n";
    std::fs::write(dir.join("in.jsonl"), format!("{input}{odd}")).unwrap();
    let printed = ok(
        dir,
        &[
            "import",
            "in.jsonl",
            "--acknowledge",
            "--batch-records",
            "1000",
        ],
    );
    let acknowledged: Vec<&str> = printed
        .lines()
        .filter(|line| line.starts_with("acknowledged"))
        .collect();
    assert_eq!(
        acknowledged,
        [
            "acknowledged 1000",
            "acknowledged 2000",
            "acknowledged 2501"
        ]
    );
    assert_eq!(ok(dir, &["export", "-"]), format!("{input}{odd}"));
    ok(dir, &["export", "--format", "binary", "out.bin"]);
    ok(
        dir,
        &[
            "import",
            "--dir",
            "copy",
            "--format",
            "binary",
            "--keyspace",
            "there",
            "--create",
            "out.bin",
        ],
    );
    assert_eq!(
        ok(
            dir,
            &["export", "--dir", "copy", "--keyspace", "there", "-"]
        ),
        format!("{input}{odd}")
    );
    let (code, stderr) = fails(dir, &["export", "out.bin"]);
    assert_eq!(
        (code, stderr.lines().count()),
        (5, 1),
        "an existing file is not overwritten: {stderr}"
    );
}

#[test]
fn a_debian_index_is_imported_by_package() {
    let dir = tempfile::tempdir().unwrap();
    let index = "Package: a\nVersion: 1\n\nPackage: b\nDescription: two\n lines\n";
    let output = run_with(
        dir.path(),
        &[
            "import",
            "--format",
            "dpkg",
            "--key-prefix",
            "pkg:",
            "--json",
            "-",
        ],
        index.as_bytes(),
    );
    assert!(output.status.success());
    let figures: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(figures["records"], 2);
    assert_eq!(
        ok(dir.path(), &["get", "pkg:b"]),
        "Package: b\nDescription: two\n lines\n"
    );
}

#[test]
fn keyspaces_are_created_listed_and_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(dir, &["keyspaces", "--create", "logs"]);
    ok(dir, &["put", "--keyspace", "logs", "a", "1"]);
    let listed: serde_json::Value =
        serde_json::from_str(&ok(dir, &["keyspaces", "--json"])).unwrap();
    let names: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|space| space["name"].clone())
        .collect();
    assert_eq!(names, ["default", "logs"]);
    assert_eq!(fails(dir, &["keyspaces", "--create", "logs"]).0, 2);
    let change = ["keyspaces", "--change", "logs", "--option"];
    let listed = ok(dir, &[&change[..], &["compression=lz4"]].concat());
    assert!(
        listed.contains("logs\t1 record\tcompression=lz4\n"),
        "{listed}"
    );
    // Kept.
    assert_eq!(ok(dir, &["keyspaces"]), listed);
    for (wrong, words) in [
        ("size_ratio", "not NAME=VALUE"),
        ("size_ratio=1", "2 to 100"),
        ("durability=os", "there is no option of this name"),
    ] {
        let (code, stderr) = fails(dir, &[&change[..], &[wrong]].concat());
        assert!(code == 2 && stderr.contains(words), "{code} {stderr}");
    }
    assert_eq!(fails(dir, &["keyspaces", "--option", "size_ratio=4"]).0, 2);
    ok(dir, &["keyspaces", "--drop", "logs"]);
    let (code, stderr) = fails(dir, &["get", "--keyspace", "logs", "a"]);
    assert_eq!((code, stderr.lines().count()), (5, 1), "{stderr}");
}

#[test]
fn keyspaces_counts_overwritten_and_deleted_records_once() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let line = |n: u32| format!("{{\"key\":\"k{n:05}\",\"value\":\"v\"}}\n");
    let input: String = (0..3000).chain(500..2500).chain(0..10).map(line).collect();
    for then in ["stats", "compact"] {
        let output = run_with(dir, &["import", "-"], input.as_bytes());
        assert!(output.status.success());
        ok(dir, &["delete", "k00007"]);
        ok(dir, &["delete", "--prefix", "k001"]);
        // Records are first only in the log, then also in tables.
        assert_eq!(ok(dir, &["keyspaces"]), "default\t2899 records\n");
        let listed = ok(dir, &["keyspaces", "--json"]);
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        assert_eq!(
            (&listed[0]["records"], &listed[0]["records_exact"]),
            (&2899.into(), &true.into())
        );
        ok(dir, &[then]);
        assert_eq!(ok(dir, &["keyspaces"]), "default\t2899 records\n");
        assert_eq!(ok(dir, &["scan", "--count"]), "2899\n");
    }
}

#[test]
fn keyspaces_says_about_how_many_records_a_large_keyspace_has() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let keys = 270_000_u32;
    let line = |n: u32| format!("{{\"key\":\"k{:08}\",\"value\":\"v\"}}\n", n * 7 % keys);
    let input: String = (0..keys).map(line).collect();
    assert!(
        run_with(dir, &["import", "-"], input.as_bytes())
            .status
            .success()
    );
    let listed = ok(dir, &["keyspaces"]);
    let count = listed.strip_prefix("default\tabout ").unwrap();
    let count: u32 = count.strip_suffix(" records\n").unwrap().parse().unwrap();
    assert!(count.abs_diff(keys) <= keys / 10, "{count}");
    let listed: serde_json::Value =
        serde_json::from_str(&ok(dir, &["keyspaces", "--json"])).unwrap();
    assert_eq!(listed[0]["records_exact"], false);
    let advice = advise(&[dir.join("data").to_str().unwrap(), "--memory", "64M"]).0;
    assert!(advice.starts_with("about 2"), "{advice}");
}

#[test]
fn advice_is_given_for_figures_and_for_a_database_and_can_be_followed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let plot = dir.join("shapes.svg");
    let plot = plot.to_str().unwrap();
    let sizes = ["--capacity", "1T", "--memory", "16G", "--key-size", "32"];
    let mix = ["--read-percent", "90", "--scan-percent", "5"];
    let text = advise(&[&sizes[..], &mix, &["--plot", plot]].concat()).0;
    assert!(
        text.contains("90 % lookups, 5 % scans of 50, 5 % writes"),
        "{text}"
    );
    assert_eq!(recommended_kind(&text), "lsm", "{text}");
    assert_eq!(recommended_row(&text), command_options(&text), "{text}");
    assert!(std::fs::read_to_string(plot).unwrap().starts_with("<svg"));
    let json = advise(&[&sizes[..], &mix, &["--json"]].concat()).0;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["advice"]["best"]["fits"].as_bool().unwrap());
    assert!(json["advice"]["shapes"].as_array().unwrap().len() > 20);
    assert_eq!(json["advice"]["kinds"].as_array().unwrap().len(), 3);
    let reason = json["advice"]["reason"].as_str().unwrap();
    assert!(
        text.contains(&format!("* is recommended. {reason}.\n")),
        "{text}"
    );
    for (wrong, words) in [
        (&["--memory", "1G"][..], "advise needs a workload"),
        (
            &["--records", "1m", "--read-percent", "120"],
            "read_percent",
        ),
        (&["--capacity", "1X"], "--capacity"),
        (
            &["--records", "9", "--capacity", "1G"],
            "cannot be used with",
        ),
        (&["--records", "900000m", "--memory", "8M"], "no index"),
        (&["./not there"], "is not there"),
        (
            &["--records", "1m", "--plot", "./not there/shapes.svg"],
            "write ./not there/shapes.svg: No such file",
        ),
    ] {
        let (_, stderr) = advise(wrong);
        assert!(stderr.contains(words), "{wrong:?}: {stderr}");
    }

    let input: String = (0..5000)
        .map(|n| format!("{{\"key\":\"k{n:05}\",\"value\":\"v{n}\"}}\n"))
        .collect();
    let data = dir.join("data");
    assert!(
        run_with(dir, &["import", "-"], input.as_bytes())
            .status
            .success()
    );
    let text = advise(&[data.to_str().unwrap(), "--memory", "64M"]).0;
    assert!(text.starts_with("5000 records of 6 + "), "{text}");
    let command = text.lines().last().unwrap();
    let command: Vec<_> = command
        .split(' ')
        .skip(1)
        .filter(|word| *word != "--dir")
        .collect();
    let command: Vec<_> = command
        .into_iter()
        .filter(|word| *word != data.to_str().unwrap())
        .collect();
    assert_eq!(recommended_kind(&text), "lsm", "{text}");
    let listed = ok(dir, &command);
    assert!(listed.contains("pinned_levels="), "{listed}");

    let sizes = ["--records", "10m", "--memory", "32M", "--value-size", "100"];
    let text = advise(&[&sizes[..], &["--read-percent", "0"]].concat()).0;
    assert_eq!(recommended_kind(&text), "btree-reshaped", "{text}");
    let command = "glintdb convert --dir ./data default --index btree-reshaped\n";
    assert!(text.ends_with(command), "{text}");
    let command = ["convert", "default", "--index", "btree-reshaped"];
    ok(dir, &command);
    let text = advise(&[data.to_str().unwrap(), "--memory", "64M"]).0;
    assert!(text.contains("glintdb convert --dir"), "{text}");
}

/// The first three columns of the row of the best LSM tree: `levels_max`, `size_ratio`,
/// `pinned_levels`.
fn recommended_row(table: &str) -> Vec<&str> {
    let mut rows = table.lines().filter(|line| line.starts_with("*  "));
    let row = rows.next().unwrap();
    row.split_whitespace().skip(1).take(3).collect()
}

/// The first column of the row of the recommended kind.
fn recommended_kind(table: &str) -> &str {
    let rows = table.lines().filter_map(|line| line.strip_prefix("* "));
    let kinds = rows.filter_map(|row| row.split_whitespace().next());
    let mut kinds = kinds.filter(|kind| ["lsm", "btree", "btree-reshaped"].contains(kind));
    let kind = kinds.next().unwrap();
    assert!(kinds.next().is_none(), "{table}");
    kind
}

/// The values of the options in the command that `advise` prints last, in the order of the columns.
fn command_options(table: &str) -> Vec<&str> {
    let command = table.lines().last().unwrap();
    let value = |name: &str| {
        let (_, rest) = command.split_once(&format!("--option {name}=")).unwrap();
        rest.split_whitespace().next().unwrap()
    };
    ["levels_max", "size_ratio", "pinned_levels"]
        .map(value)
        .to_vec()
}

#[test]
fn advise_help_example_recommends_a_row_within_one_percent_of_the_fastest() {
    let example = "--capacity 1T --memory 16G --key-size 16 --value-size 1000 --read-percent 90 --scan-percent 5";
    let dir = tempfile::tempdir().unwrap();
    assert!(ok(dir.path(), &["advise", "--help"]).contains(&format!("glintdb advise {example}\n")));
    let words: Vec<_> = example.split(' ').collect();
    let table = advise(&words).0;
    let device_us = |line: &str| -> Option<f64> {
        line.trim_end()
            .strip_suffix(" µs")?
            .split(' ')
            .next_back()?
            .parse()
            .ok()
    };
    let fastest_us = table.lines().filter_map(device_us).fold(f64::MAX, f64::min);
    let recommended = table.lines().find(|line| line.starts_with("*  ")).unwrap();
    let recommended_us = device_us(recommended).unwrap();
    // The figures are rounded to a tenth.
    assert!(recommended_us <= 1.01 * fastest_us + 0.1, "{table}");
    assert_eq!(recommended_row(&table), command_options(&table), "{table}");
    let json = advise(&[&words[..], &["--json"]].concat()).0;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let set = ["levels_max", "size_ratio", "pinned_levels"]
        .map(|name| json["set"][name].as_str().unwrap().to_owned());
    assert_eq!(recommended_row(&table), set, "{table}");
}

/// What `advise` says on standard output and on standard error.
fn advise(arguments: &[&str]) -> (String, String) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_glintdb"))
        .arg("advise")
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

#[test]
fn stats_check_compact_and_checkpoint_work_on_a_database() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let input: String = (0..5000)
        .map(|n| format!("{{\"key\":\"k{n:05}\",\"value\":\"v{n}\"}}\n"))
        .collect();
    let output = run_with(dir, &["import", "-"], input.as_bytes());
    assert!(output.status.success());
    let stats: serde_json::Value = serde_json::from_str(&ok(dir, &["stats", "--json"])).unwrap();
    assert!(stats.is_object() && !ok(dir, &["stats"]).is_empty());
    ok(dir, &["compact"]);
    assert!(ok(dir, &["check"]).starts_with("clean: "));
    let report: serde_json::Value = serde_json::from_str(&ok(dir, &["check", "--json"])).unwrap();
    assert_eq!(report["clean"], true);
    ok(dir, &["checkpoint", "copy"]);
    assert_eq!(ok(dir, &["scan", "--dir", "copy", "--count"]), "5000\n");
    assert_ne!(
        fails(dir, &["checkpoint", "copy"]).0,
        0,
        "a checkpoint overwrites nothing"
    );
}

#[test]
fn exit_codes_are_those_of_the_help() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert_eq!(fails(dir, &["get", "key"]).0, 5, "no database");
    assert!(!dir.join("data").exists(), "reading made a directory");
    std::fs::create_dir(dir.join("data")).unwrap();
    let (code, stderr) = fails(dir, &["get", "key"]);
    assert_eq!(code, 5, "an empty directory");
    assert!(
        stderr.contains("there is no database in ./data"),
        "{stderr}"
    );
    ok(dir, &["put", "key", "value"]);
    assert_eq!(fails(dir, &["get", "other"]).0, 1);
    assert_eq!(fails(dir, &["get"]).0, 2);
    assert_eq!(fails(dir, &["no-such-command"]).0, 2);
    assert_eq!(fails(dir, &["put", "key", "base64:%"]).0, 2);
    let help = ok(dir, &["--help"]);
    for part in ["Examples:", "Exit codes:", "glintdb serve", "glintdb check"] {
        assert!(help.contains(part), "--help has no `{part}`");
    }
}

#[test]
fn a_database_in_use_is_locked() {
    let dir = tempfile::tempdir().unwrap();
    let db = glintdb::Db::open(dir.path().join("data")).unwrap();
    db.put("key", "value").unwrap();
    let (code, stderr) = fails(dir.path(), &["get", "key"]);
    assert_eq!((code, stderr.lines().count()), (3, 1), "{stderr}");
    db.close().unwrap();
    assert_eq!(ok(dir.path(), &["get", "key"]), "value\n");
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    let input: String = (0..20_000)
        .map(|n| format!("{{\"key\":\"k{n:05}\",\"value\":\"{}\"}}\n", "v".repeat(50)))
        .collect();
    assert!(
        run_with(dir.path(), &["import", "-"], input.as_bytes())
            .status
            .success()
    );
    let mut child = Command::new(env!("CARGO_BIN_EXE_glintdb"))
        .current_dir(dir.path())
        .arg("scan")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn serve_says_where_it_listens_answers_and_ends_well_at_sigterm() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_glintdb"))
        .current_dir(dir.path())
        .args(["serve", "--port", "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on ").unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    client
        .write_all(b"SET served yes\r\nGET served\r\n")
        .unwrap();
    let mut answer = [0; 13];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+OK\r\n$3\r\nyes\r");
    let killed = Command::new("kill")
        .arg(child.id().to_string())
        .status()
        .unwrap();
    assert!(killed.success() && child.wait().unwrap().success());
    assert_eq!(ok(dir.path(), &["get", "served"]), "yes\n");
}

#[test]
fn serve_beyond_this_machine_needs_a_password() {
    let dir = tempfile::tempdir().unwrap();
    let (code, stderr) = fails(dir.path(), &["serve", "--bind", "0.0.0.0", "--port", "0"]);
    assert_eq!((code, stderr.lines().count()), (2, 1), "{stderr}");
    assert!(stderr.contains("without a password"), "{stderr}");
    assert!(!dir.path().join("data").exists());
}

#[test]
fn serve_makes_no_database_where_its_port_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let (code, stderr) = fails(dir.path(), &["serve", "--port", &port]);
    assert_eq!(code, 5, "{stderr}");
    assert!(stderr.contains("cannot listen on 127.0.0.1"), "{stderr}");
    assert!(!dir.path().join("data").exists());
}

#[test]
fn bench_gives_its_figures_as_json() {
    let dir = tempfile::tempdir().unwrap();
    let words = [
        "bench",
        "--workloads",
        "fillseq,readrandom",
        "--num",
        "2000",
        "--dir",
        "bench",
        "--json",
    ];
    let figures: serde_json::Value = serde_json::from_str(&ok(dir.path(), &words)).unwrap();
    assert_eq!(
        (figures["engine"].as_str(), figures["correct"].as_bool()),
        (Some("glintdb"), Some(true))
    );
    assert_eq!(figures["results"].as_array().unwrap().len(), 2);
}

#[test]
fn what_is_intact_of_a_damaged_database_is_salvaged() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for key in ["a", "b", "c"] {
        ok(dir, &["put", key, "intact"]);
    }
    ok(dir, &["delete", "b"]);
    ok(dir, &["compact"]);
    let complete = ok(dir, &["salvage", "data", "copy"]);
    assert!(complete.contains("\ncomplete: 2 records"), "{complete}");
    assert_eq!(
        ok(dir, &["scan", "--dir", "copy"]),
        "a\tintact\nc\tintact\n"
    );
    assert!(ok(dir, &["check", "--dir", "copy"]).starts_with("clean"));
    let (code, message) = fails(dir, &["salvage", "data", "copy"]);
    assert!(code == 2 && message.contains("already exists"), "{message}");

    for entry in std::fs::read_dir(dir.join("data")).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().contains("manifest-") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let output = run(dir, &["salvage", "data", "again", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["complete"], &report["records"]),
        (&false.into(), &2.into())
    );
    assert_eq!(
        ok(dir, &["scan", "--dir", "again"]),
        "a\tintact\nc\tintact\n"
    );
    let (code, _) = fails(dir, &["salvage", "nowhere", "other"]);
    assert_eq!(code, 5);
}
