//! `convert`, and `--index` of the commands that create keyspaces.

use crate::serving::Server;
use crate::{fails, ok, run_with};
use std::path::Path;

/// The kind of index of a keyspace, as the list of keyspaces shows it.
fn kind(dir: &Path, name: &str) -> String {
    let listed: serde_json::Value =
        serde_json::from_str(&ok(dir, &["keyspaces", "--json"])).unwrap();
    let listed = listed.as_array().unwrap();
    let one = listed.iter().find(|one| one["name"] == name).unwrap();
    one["options"]["index"].as_str().unwrap().to_owned()
}

fn records(count: u32) -> String {
    let line = |n| format!("{{\"key\":\"key{n:05}\",\"value\":\"{n}\"}}\n");
    (0..count).map(line).collect()
}

#[test]
fn convert_goes_there_and_back_and_keeps_records_and_common_options() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let create = [
        "keyspaces",
        "--create",
        "logs",
        "--option",
        "compression=lz4",
    ];
    ok(dir, &[&create[..], &["--option", "size_ratio=4"]].concat());
    let import = ["import", "-k", "logs", "-"];
    assert!(
        run_with(dir, &import, records(3000).as_bytes())
            .status
            .success()
    );
    let before = ok(dir, &["scan", "-k", "logs"]);
    assert_eq!(before.lines().count(), 3000);

    let said = ok(dir, &["convert", "logs", "--index", "btree"]);
    assert!(
        said.starts_with("converted logs from lsm to btree in "),
        "{said}"
    );
    assert!(
        said.contains(": index of ") && said.ends_with(" in 1 file\n"),
        "{said}"
    );
    let listed = ok(dir, &["keyspaces"]);
    let expected = "logs\t3000 records\tindex=btree\tcompression=lz4";
    assert_eq!(listed.lines().nth(1), Some(expected));
    assert_eq!(ok(dir, &["scan", "-k", "logs"]), before);
    let said = ok(dir, &["convert", "logs", "--index", "btree-reshaped"]);
    let words = "converted logs from btree to btree-reshaped in ";
    assert!(said.starts_with(words), "{said}");
    let listed = ok(dir, &["keyspaces"]);
    assert!(listed.contains("reshape=on"), "{listed}");
    let (_, stderr) = fails(dir, &["convert", "logs", "--index", "btree-reshaped"]);
    assert!(stderr.contains("is of kind btree already"), "{stderr}");
    assert_eq!(ok(dir, &["scan", "-k", "logs"]), before);
    ok(dir, &["compact"]);
    assert_eq!(ok(dir, &["scan", "-k", "logs"]), before);

    let back = [
        "convert",
        "logs",
        "--index",
        "lsm",
        "--option",
        "size_ratio=6",
    ];
    let said = ok(dir, &[&back[..], &["--json"]].concat());
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (
            said["from"].as_str(),
            said["to"].as_str(),
            said["keyspace"].as_str()
        ),
        (Some("btree-reshaped"), Some("lsm"), Some("logs"))
    );
    assert!(said["index_bytes"].as_u64() > Some(0) && said["seconds"].is_number());
    let listed = ok(dir, &["keyspaces"]);
    let line = listed.lines().nth(1).unwrap();
    assert!(
        line.contains("size_ratio=6") && line.contains("compression=lz4"),
        "{line}"
    );
    assert_eq!(ok(dir, &["scan", "-k", "logs"]), before);
    ok(dir, &["check"]);
}

#[test]
fn convert_refuses_bad_requests_in_words_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (_, stderr) = fails(dir, &["convert", "default", "--index", "btree"]);
    assert!(stderr.contains("./data is not there"), "{stderr}");
    ok(dir, &["put", "a", "1"]);
    for (words, text) in [
        (&["default", "--index", "lsm"][..], "is of kind lsm already"),
        (
            &["default", "--index", "heap"],
            "`heap` is not one of lsm btree btree-reshaped",
        ),
        (
            &["logs", "--index", "btree"],
            "there is no keyspace \"logs\"",
        ),
        (
            &["default", "--index", "btree", "--option", "size_ratio=4"],
            "size_ratio: 4 is an option of an index of kind lsm",
        ),
        (
            &["default", "--index", "btree", "--option", "index=lsm"],
            "contradicts `--index`",
        ),
        (&["default"], "--index <KIND>"),
    ] {
        let (code, stderr) = fails(dir, &[&["convert"], words].concat());
        assert!(code != 0 && stderr.contains(text), "{words:?}: {stderr}");
        assert_eq!(kind(dir, "default"), "lsm");
    }
    assert_eq!(ok(dir, &["get", "a"]), "1\n");
}

#[test]
fn index_says_which_kind_import_and_serve_create() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("in.jsonl"), records(10)).unwrap();
    ok(dir, &["import", "in.jsonl", "--index", "btree"]);
    assert_eq!(kind(dir, "default"), "btree");
    let logs = [
        "import", "in.jsonl", "-k", "logs", "--create", "--index", "btree",
    ];
    ok(dir, &logs);
    assert_eq!(kind(dir, "logs"), "btree");
    // Records stay where they are until a conversion is asked for.
    let (code, stderr) = fails(dir, &["import", "in.jsonl", "--index", "lsm"]);
    assert_eq!(code, 2, "{stderr}");
    assert!(
        stderr.contains("`glintdb convert default --index lsm`"),
        "{stderr}"
    );
    let (code, stderr) = fails(
        dir,
        &["import", "in.jsonl", "--dir", "no", "--index", "heap"],
    );
    assert!(code != 0 && stderr.contains("`heap`"), "{stderr}");
    assert!(!dir.join("no").exists());

    let server = Server::start(dir, &["--dir", "served", "--index", "btree"]);
    server.say(b"SET a 1\r\nSELECT 1\r\nSET b 2\r\n");
    server.stop();
    let listed = ok(dir, &["keyspaces", "--dir", "served"]);
    for name in ["default", "redis-db1"] {
        let line = format!("{name}\t1 record\tindex=btree");
        assert!(listed.lines().any(|found| found == line), "{listed}");
    }
}

#[test]
fn bench_measures_the_kind_of_index_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let words = [
        "bench",
        "--workloads",
        "fillseq,readrandom",
        "--num",
        "2000",
        "--dir",
        "bench",
        "--index",
        "btree",
        "--option",
        "shelf_runs_settle=2",
        "--json",
    ];
    let figures: serde_json::Value = serde_json::from_str(&ok(dir.path(), &words)).unwrap();
    assert_eq!(figures["correct"].as_bool(), Some(true));
    let listed = ok(dir.path(), &["keyspaces", "--dir", "bench"]);
    assert!(listed.contains("\tindex=btree"), "{listed}");
    let (_, stderr) = fails(dir.path(), &["bench", "--index", "heap"]);
    assert!(stderr.contains("`heap`"), "{stderr}");
}
