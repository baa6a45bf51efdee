//! `export` and `import`: what a copy has, and what is left of an input that cannot be read.

use crate::{fails, ok, run_with};
use std::path::Path;

const SESSION: &str = "{\"key\":\"session\",\"value\":\"ann\",\"expires_ms\":4102444800000}\n";

/// Makes a database with three keyspaces, options, an expiry and bytes of all kinds.
fn varied(dir: &Path) {
    let input = format!(
        "{}{SESSION}{}{}",
        "{\"key\":\"\",\"value\":\"empty key\"}\n",
        "{\"key_base64\":\"/w==\",\"value_base64\":\"gIE=\"}\n",
        // The value begins like a header of the server.
        "{\"key\":\"odd\",\"value_base64\":\"/0dMSU5UVgEAZNovuwMAAHZhbHVl\",\"expires_ms\":0}\n",
    );
    assert!(
        run_with(dir, &["import", "-"], input.as_bytes())
            .status
            .success()
    );
    let logs = ["keyspaces", "--create", "logs", "--option"];
    ok(
        dir,
        &[&logs[..], &["compression=lz4", "--option", "size_ratio=6"]].concat(),
    );
    ok(
        dir,
        &[
            "keyspaces",
            "--change",
            "default",
            "--option",
            "block_bytes=8K",
        ],
    );
    ok(dir, &["put", "-k", "logs", "key", "value"]);
    let session = run_with(
        dir,
        &["import", "-k", "redis-db2", "--create", "-"],
        SESSION.as_bytes(),
    );
    assert!(session.status.success());
    ok(dir, &["keyspaces", "--create", "empty"]);
}

/// What `varied` makes, as `export --all` writes it.
const VARIED: &str = r#"{"keyspace":"default","options":{"block_bytes":"8192"}}
{"key":"","value":"empty key"}
{"key":"odd","value_base64":"/0dMSU5UVgEAZNovuwMAAHZhbHVl","expires_ms":0}
{"key":"session","value":"ann","expires_ms":4102444800000}
{"key_base64":"/w==","value_base64":"gIE="}
{"keyspace":"logs","options":{"compression":"lz4","size_ratio":"6"}}
{"key":"key","value":"value"}
{"keyspace":"redis-db2"}
{"key":"session","value":"ann","expires_ms":4102444800000}
{"keyspace":"empty"}
"#;

#[test]
fn a_copy_of_all_keyspaces_is_identical_in_both_formats() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    varied(dir);
    assert_eq!(ok(dir, &["export", "--all", "-"]), VARIED);
    for format in ["jsonl", "binary"] {
        let printed = ok(dir, &["export", "--all", "--format", format, format]);
        assert_eq!(
            printed,
            format!("exported 6 records of 4 keyspaces to {format}\n")
        );
        let copy = format!("copy-{format}");
        let import = [
            "import", "--all", "--dir", &copy, "--format", format, format,
        ];
        let printed = ok(dir, &import);
        assert!(printed.starts_with("imported 6 records"), "{printed}");
        assert_eq!(ok(dir, &["export", "--all", "--dir", &copy, "-"]), VARIED);
        // Again into the same: nothing changes.
        ok(dir, &import);
        assert_eq!(ok(dir, &["export", "--all", "--dir", &copy, "-"]), VARIED);
    }
}

#[test]
fn a_keyspace_with_records_keeps_its_options_and_import_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(dir, &["put", "-k", "logs", "--create", "old", "value"]);
    let input = b"{\"keyspace\":\"logs\",\"options\":{\"compression\":\"lz4\"}}\n{\"key\":\"new\",\"value\":\"\"}\n";
    let output = run_with(dir, &["import", "--all", "-"], input);
    assert!(output.status.success());
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "keyspace \"logs\" has records and keeps its options; the input has others\n"
    );
    assert_eq!(
        ok(dir, &["export", "--all", "-"]),
        "{\"keyspace\":\"default\"}\n{\"keyspace\":\"logs\"}\n{\"key\":\"new\",\"value\":\"\"}\n{\"key\":\"old\",\"value\":\"value\"}\n"
    );
}

#[test]
fn an_input_with_keyspaces_and_one_without_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("all"), "\n{\"keyspace\":\"logs\"}\n").unwrap();
    std::fs::write(dir.join("one"), SESSION).unwrap();
    let cases = [
        (
            &["import", "all"][..],
            "input line 2: keyspace \"logs\" begins; `--all` imports an input with keyspaces",
        ),
        (
            &["import", "--all", "one"],
            "input line 1: a record before any keyspace; without `--all` it goes into the keyspace of `--keyspace`",
        ),
        (
            &["import", "-k", "logs", "--create", "one"],
            "invalid argument: input line 1: keyspace \"logs\" takes no records with an expiry: only the server's keyspaces do, `default` and `redis-db1` to `redis-db1023`",
        ),
    ];
    for (words, message) in cases {
        let (code, stderr) = fails(dir, words);
        assert_eq!(code, 2, "{words:?}");
        assert_eq!(stderr, format!("no record is stored\nglintdb: {message}\n"));
    }
    let (code, stderr) = fails(dir, &["import", "--all", "-k", "logs", "all"]);
    assert!(
        code == 2 && stderr.contains("cannot be used with"),
        "{stderr}"
    );
    for command in ["import", "export"] {
        let (code, stderr) = fails(dir, &[command, "--all", "--format", "dpkg", "all"]);
        assert!(code == 2 && stderr.contains("a package index"), "{stderr}");
    }
    std::fs::write(
        dir.join("wrong"),
        "{\"keyspace\":\"x\",\"options\":{\"size_ratio\":\"1\"}}",
    )
    .unwrap();
    let (code, stderr) = fails(dir, &["import", "--all", "wrong"]);
    assert!(
        code == 2 && stderr.contains("input line 1: ") && stderr.contains("2 to 100"),
        "{stderr}"
    );
}

/// Imports lines `kN` up to `bad`, then that, then one more, in batches of two; standard error.
fn interrupted(dir: &Path, good: usize, bad: &str) -> String {
    let good: String = (0..good)
        .map(|n| format!("{{\"key\":\"k{n}\",\"value\":\"{n}\"}}\n"))
        .collect();
    let input = format!("{good}{bad}\n{{\"key\":\"z\",\"value\":\"\"}}\n");
    let words = ["import", "--acknowledge", "--batch-records", "2", "-"];
    let output = run_with(dir, &words, input.as_bytes());
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn bad_input_is_named_by_one_line_number_with_what_is_stored() {
    for (good, stored, kept) in [
        (0, "no record is stored", 0),
        (
            1,
            "no record is stored; of the batch that was being read, 1 record, nothing is stored",
            0,
        ),
        (2, "the first 2 records are stored", 2),
        (
            5,
            "the first 4 records are stored; of the batch that was being read, 1 record, nothing is stored",
            4,
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let stderr = interrupted(dir.path(), good, "nonsense");
        let line = good + 1;
        assert_eq!(
            stderr,
            format!("{stored}\nglintdb: input line {line}, column 2: expected ident\n")
        );
        assert_eq!(ok(dir.path(), &["scan", "--count"]), format!("{kept}\n"));
    }
}

#[test]
fn a_record_beyond_the_limits_is_named_by_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let long = "k".repeat(65_537);
    let stderr = interrupted(
        dir.path(),
        3,
        &format!("{{\"key\":\"{long}\",\"value\":\"\"}}"),
    );
    assert_eq!(
        stderr,
        "the first 2 records are stored; of the batch that was being read, 1 record, nothing is stored\nglintdb: input line 4: a key of 65537 bytes, 65536 at most\n"
    );
    let expiring = &long[..65_530];
    let record = format!("{{\"key\":\"{expiring}\",\"value\":\"\",\"expires_ms\":4102444800000}}");
    let stderr = interrupted(dir.path(), 0, &record);
    assert_eq!(
        stderr,
        "no record is stored\nglintdb: invalid argument: input line 1: the key has 65530 bytes; one with an expiry has at most 65524\n"
    );
}
