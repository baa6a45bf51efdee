//! Databases over several directories, and on the modelled device.

use crate::serving::Server;
use crate::{fails, ok};
use std::fs;

const DIRS: &str = "dirs:one,two";

#[test]
fn every_command_takes_several_directories() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(dir, &["put", "--dir", DIRS, "key", "value"]);
    // In another order too.
    assert_eq!(ok(dir, &["get", "--dir", "dirs:two,one", "key"]), "value\n");
    assert!(ok(dir, &["check", "--dir", DIRS]).starts_with("clean: "));
    let stats = ok(dir, &["stats", "--dir", DIRS]);
    assert!(
        stats.contains("units:\n") && stats.contains("/one:\n"),
        "{stats}"
    );
    let files = ok(dir, &["dump", DIRS]);
    let log = files.lines().find(|line| line.starts_with("log-")).unwrap();
    let log = log.split('\t').next().unwrap();
    let dumped = ok(dir, &["dump", &format!("{DIRS}/{log}")]);
    assert!(dumped.starts_with("segment "), "{dumped}");
    ok(dir, &["checkpoint", "--dir", DIRS, "copy"]);
    assert_eq!(ok(dir, &["get", "--dir", "copy", "key"]), "value\n");
    ok(dir, &["salvage", DIRS, "out"]);
    assert_eq!(ok(dir, &["get", "--dir", "out", "key"]), "value\n");
}

#[test]
fn wrong_directories_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(dir, &["put", "--dir", DIRS, "key", "value"]);
    ok(dir, &["put", "--dir", "dirs:x,y", "key", "value"]);
    let refused = |words: &[&str], code: i32, part: &str| {
        let (found, error) = fails(dir, words);
        assert!(
            found == code && error.contains(part),
            "{words:?}: {found}, {error}"
        );
    };
    for command in ["get", "serve", "check"] {
        let with = |of: &'static str| match command {
            "get" => vec!["get", "--dir", of, "key"],
            _ => vec![command, "--dir", of],
        };
        refused(
            &with("two"),
            2,
            "two is directory 2 of 2 of one database: give all of them",
        );
        refused(&with("dirs:one,y"), 2, "different databases");
        refused(&with("dirs:one,one"), 2, "one is given twice");
        refused(&with("dirs:one"), 2, "2 to 64");
        refused(&with("dirs:one,"), 2, "`dirs:PATH,PATH`");
    }
    refused(
        &["get", "--dir", "dirs:one,nowhere", "key"],
        5,
        "nowhere is not there",
    );
    refused(
        &["serve", "--volume", "dirs:one,nowhere"],
        5,
        "nowhere is not there",
    );
    assert!(!dir.join("nowhere").exists());
    refused(
        &["serve", "--volume", "block:/dev/vda"],
        2,
        "is not `dirs:PATH,PATH`",
    );
    refused(&["serve", "--volume", "emulator:nand"], 2, "no profile");
    refused(
        &["serve", "--volume", DIRS, "--placement", "spread"],
        2,
        "it is `striping`",
    );
    let isolated = ["serve", "--volume", DIRS, "--placement", "isolation"];
    refused(&isolated, 2, "do not each get one of 2 units");
    let dynamic = ["serve", "--volume", DIRS, "--placement", "dynamic"];
    refused(&dynamic, 2, "is for a modelled device");
    refused(
        &["bench", "--volume", DIRS, "--num", "10"],
        2,
        "one is not empty",
    );
    refused(
        &["serve", "--volume", DIRS, "--dir", "x"],
        2,
        "cannot be used with",
    );
}

#[test]
fn serve_places_files_and_runs_on_the_modelled_device() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let words = ["--volume", DIRS, "--placement", "isolation:1:1"];
    let server = Server::start(dir, &words);
    assert!(
        server.ready.contains("serves dirs:one,two"),
        "{}",
        server.ready
    );
    assert_eq!(server.say(b"SET key value\r\n"), b"+OK\r\n");
    server.stop();
    let has_log = |name: &str| {
        let mut names = fs::read_dir(dir.join(name)).unwrap();
        names.any(|entry| {
            entry
                .unwrap()
                .file_name()
                .to_str()
                .unwrap()
                .starts_with("log-")
        })
    };
    assert!(has_log("one") && !has_log("two"));
    assert_eq!(ok(dir, &["get", "--dir", DIRS, "key"]), "value\n");
    let server = Server::start(dir, &["--volume", "emulator:z-nand:bytes"]);
    assert!(
        server.ready.contains("the modelled device z-nand"),
        "{}",
        server.ready
    );
    assert_eq!(
        server.say(b"SET key value\r\nGET key\r\n"),
        b"+OK\r\n$5\r\nvalue\r\n"
    );
    server.stop();
    assert_eq!(ok(dir, &["get", "--dir", "bytes", "key"]), "value\n");
}

#[test]
fn bench_reports_each_directory_and_class() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let run = |volume: &str| {
        let words = [
            "bench",
            "--volume",
            volume,
            "--num",
            "2000",
            "--json",
            "--workloads",
            "fillrandom,readrandom",
        ];
        let report: serde_json::Value = serde_json::from_str(&ok(dir, &words)).unwrap();
        assert_eq!(report["correct"], true);
        let count = |of: &str| report["units"][of].as_array().unwrap().len();
        assert!(count("classes") >= 2, "{report}");
        let log = &report["units"]["classes"][0];
        assert!(
            log["name"] == "log" && log["written_bytes"].as_u64().unwrap() > 0,
            "{log}"
        );
        (
            count("units"),
            report["results"][0]["disk_use_bytes"].clone(),
        )
    };
    let (units, _) = run(DIRS);
    assert_eq!(units, 2);
    assert!(dir.join("two/unit").exists());
    assert_eq!(run("emulator:z-nand").0, 32);
}
