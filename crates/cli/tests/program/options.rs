//! `--option NAME=VALUE` of the commands that write.

use crate::serving::Server;
use crate::{fails, ok};

#[test]
fn commands_that_write_take_options_of_the_database() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("in"), "{\"key\":\"b\",\"value\":\"2\"}\n").unwrap();
    let small = [
        "--option",
        "log-segment-bytes=64K",
        "--option",
        "background_threads=1",
    ];
    for words in [
        &["put", "a", "1"][..],
        &["import", "in"],
        &["delete", "a"],
        &["compact"],
        &["keyspaces"],
        &["keyspaces", "--create", "logs"],
        &["keyspaces", "--drop", "logs"],
    ] {
        ok(dir, &[words, &small].concat());
    }
    assert_eq!(ok(dir, &["scan"]), "b\t2\n");
    let both = [
        "keyspaces",
        "--create",
        "logs",
        "--option",
        "compression=lz4",
    ];
    let listed = ok(dir, &[&both[..], &small].concat());
    assert!(
        listed.contains("logs\t0 records\tcompression=lz4\n"),
        "{listed}"
    );
    let server = Server::start(dir, &["--option", "memory_budget_bytes=32M"]);
    assert!(
        server.ready.contains("memory budget 32.00 MiB"),
        "{}",
        server.ready
    );
    server.stop();
}

#[test]
fn wrong_options_are_refused_as_bench_refuses_them() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("in"), "").unwrap();
    for (option, words) in [
        ("read_depth", "`read_depth` is not NAME=VALUE"),
        (
            "read_deep=4",
            "option read_deep: there is no option of this name; the names are ",
        ),
        (
            "durability=sync",
            "option durability: there is no option of this name",
        ),
        (
            "read_depth=deep",
            "option read_depth: `deep` is not a number, or is too large",
        ),
    ] {
        let message = |command: &[&str]| {
            let (code, stderr) = fails(dir, &[command, &["--option", option]].concat());
            assert!(code == 2 && stderr.contains(words), "{command:?}: {stderr}");
            stderr
        };
        let bench = message(&["bench", "--num", "10"]);
        for command in [
            &["put", "a", "1"][..],
            &["import", "in"],
            &["delete", "a"],
            &["compact"],
            &["keyspaces"],
            &["serve", "--port", "0"],
        ] {
            assert_eq!(message(command), bench, "{command:?}");
        }
    }
    let (code, stderr) = fails(dir, &["put", "a", "1", "--option", "size-ratio=4"]);
    assert_eq!(code, 2);
    assert_eq!(
        stderr,
        "glintdb: `size-ratio=4` is an option of a keyspace; `glintdb keyspaces --create NAME` and `--change NAME` set those\n"
    );
    let (code, stderr) = fails(dir, &["keyspaces", "--option", "size_ratio=4"]);
    assert!(
        code == 2 && stderr.contains("needs --create NAME"),
        "{stderr}"
    );
    assert!(
        !dir.join("data").exists(),
        "a refused command made a database"
    );
}

#[test]
fn a_killed_database_without_its_ring_opens_with_the_option_that_its_error_names() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let server = Server::start(dir, &[]);
    server.say(b"SET key value\r\n");
    // With SIGKILL.
    drop(server);
    if std::fs::remove_file(dir.join("data/ring")).is_err() {
        // On this file system the ring is no file.
        return;
    }
    let (code, stderr) = fails(dir, &["put", "more", "value"]);
    assert_eq!(code, 4);
    assert!(stderr.contains("accept_missing_ring"), "{stderr}");
    let accept = ["--option", "accept_missing_ring=true"];
    ok(dir, &[&["put", "more", "value"][..], &accept].concat());
    assert_eq!(ok(dir, &["get", "more"]), "value\n");
}
