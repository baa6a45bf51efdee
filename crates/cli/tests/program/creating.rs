//! What is made where nothing is: databases, keyspaces, and nothing where a command fails.

use crate::{fails, ok, run_with};
use std::path::Path;

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_mistyped_keyspace_is_refused_until_create_is_given() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("in.jsonl"), "{\"key\":\"a\",\"value\":\"1\"}\n").unwrap();
    let put = ["put", "-k", "logs", "b", "2"];
    let import = ["import", "-k", "logs", "in.jsonl"];
    for words in [&put[..], &import] {
        let (code, stderr) = fails(dir, words);
        assert!(
            code == 5 && stderr.contains("./data is not there"),
            "{stderr}"
        );
        assert_eq!(names(dir), ["in.jsonl"]);
    }
    ok(dir, &["put", "key", "value"]);
    for words in [&put[..], &import] {
        assert_eq!(
            fails(dir, words),
            (
                5,
                "glintdb: not found: there is no keyspace \"logs\" in ./data, only default; `--create` makes it\n"
                    .to_owned()
            )
        );
        assert_eq!(ok(dir, &["keyspaces"]), "default\t1 record\n");
    }
    ok(dir, &[&import[..], &["--create"]].concat());
    ok(dir, &put);
    ok(dir, &["put", "-k", "more", "--create", "c", "3"]);
    assert_eq!(ok(dir, &["scan", "-k", "logs"]), "a\t1\nb\t2\n");
    assert_eq!(ok(dir, &["scan", "-k", "more"]), "c\t3\n");
    let fresh = ["put", "--dir", "fresh", "-k", "logs", "--create", "d", "4"];
    ok(dir, &fresh);
    assert_eq!(
        ok(dir, &["get", "--dir", "fresh", "-k", "logs", "d"]),
        "4\n"
    );
}

#[test]
fn commands_that_write_make_no_database_among_foreign_files() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    std::fs::write(home.join("notes.txt"), "to do").unwrap();
    let there = home.to_str().unwrap();
    for words in [
        &["put", "--dir", there, "key", "value"][..],
        &["import", "--dir", there, "/dev/null"],
        &["keyspaces", "--dir", there, "--create", "logs"],
        &["serve", "--dir", there, "--port", "0"],
    ] {
        let (code, stderr) = fails(home, words);
        assert_eq!(code, 2, "{words:?}: {stderr}");
        assert_eq!(
            stderr,
            format!(
                "glintdb: invalid argument: {there} holds no database but other files, \"notes.txt\" for one; a new database needs an empty directory, or one that does not exist yet\n"
            )
        );
        assert_eq!(names(home), ["notes.txt"], "{words:?}");
    }
}

#[test]
fn a_database_is_used_with_a_stray_file_beside_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(dir, &["put", "key", "value"]);
    std::fs::write(dir.join("data/notes.txt"), "to do").unwrap();
    ok(dir, &["put", "more", "value"]);
    assert_eq!(ok(dir, &["scan", "--count"]), "2\n");
    assert_eq!(
        std::fs::read_to_string(dir.join("data/notes.txt")).unwrap(),
        "to do"
    );
}

#[test]
fn a_failed_read_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::create_dir(dir.join("empty")).unwrap();
    std::fs::create_dir(dir.join("foreign")).unwrap();
    std::fs::write(dir.join("foreign/notes.txt"), "to do").unwrap();
    for command in [
        &["get", "key"][..],
        &["scan"],
        &["export", "-"],
        &["export", "--all", "-"],
        &["delete", "key"],
        &["keyspaces"],
        &["stats"],
        &["check"],
        &["compact"],
        &["checkpoint", "copy"],
    ] {
        for database in ["missing", "empty", "foreign"] {
            let words = [&command[..1], &["--dir", database], &command[1..]].concat();
            let (code, stderr) = fails(dir, &words);
            assert_eq!(
                (code, stderr.lines().count()),
                (5, 1),
                "{words:?}: {stderr}"
            );
        }
    }
    let (code, stderr) = fails(dir, &["salvage", "empty", "copy"]);
    assert!(
        code == 5 && stderr.contains("there is no database in empty"),
        "{stderr}"
    );
    assert_eq!(fails(dir, &["dump", "empty"]).0, 5);
    assert_eq!(names(dir), ["empty", "foreign"]);
    assert_eq!(names(&dir.join("empty")), [""; 0]);
    assert_eq!(names(&dir.join("foreign")), ["notes.txt"]);
}

#[test]
fn keys_and_values_may_begin_with_a_hyphen() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(dir, &["put", "t", "-5"]);
    ok(dir, &["put", "-7", "-k", "default", "--not-an-option"]);
    ok(dir, &["put", "--", "-x", "-y"]);
    assert_eq!(ok(dir, &["get", "t"]), "-5\n");
    assert_eq!(ok(dir, &["get", "-7"]), "--not-an-option\n");
    assert_eq!(ok(dir, &["get", "--", "-x"]), "-y\n");
    let range = ["scan", "--keys-only", "--from", "-7", "--to", "-a"];
    assert_eq!(ok(dir, &range), "-7\n");
    assert_eq!(
        ok(dir, &["scan", "--keys-only", "--prefix", "-"]),
        "-7\n-x\n"
    );
    ok(dir, &["delete", "-7"]);
    ok(dir, &["delete", "--prefix", "-x"]);
    assert_eq!(ok(dir, &["scan"]), "t\t-5\n");
    let record = b"{\"key\":\"5\",\"value\":\"\"}";
    let output = run_with(dir, &["import", "--key-prefix", "-", "-"], record);
    assert!(output.status.success());
    assert_eq!(ok(dir, &["scan", "--keys-only"]), "-5\nt\n");
    // A mistyped option is no key.
    let (code, stderr) = fails(dir, &["delete", "--perfix", "t"]);
    assert!(code == 2 && stderr.contains("--perfix"), "{stderr}");
}
