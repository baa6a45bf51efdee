//! Which directories a database is made in, and what a failed opening leaves in one.

use glintdb::{ErrorKind, Options};
use std::collections::BTreeSet;
use std::path::Path;

fn options() -> Options {
    Options::default()
        .memory_budget_bytes(8 << 20)
        .log_segment_bytes(64 << 10)
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn no_database_is_made_between_foreign_files() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join(".profile"), "").unwrap();
    std::fs::create_dir(home.path().join("music")).unwrap();
    let error = options().open(home.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let message = error.to_string();
    for part in [
        home.path().to_str().unwrap(),
        "\".profile\"",
        "needs an empty directory",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(
        names(home.path()),
        [".profile", "music"].map(String::from).into()
    );
}

#[test]
fn an_empty_directory_and_the_root_of_a_file_system_take_a_database() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("lost+found")).unwrap();
    let db = options().open(directory.path()).unwrap();
    db.put("key", "value").unwrap();
}

#[test]
fn a_database_opens_with_a_stray_file_beside_its_own_and_leaves_it_alone() {
    let directory = tempfile::tempdir().unwrap();
    drop(options().open(directory.path()).unwrap());
    let stray = directory.path().join("notes.txt");
    std::fs::write(&stray, "to do").unwrap();
    let db = options().open(directory.path()).unwrap();
    db.put("key", "value").unwrap();
    drop(db);
    assert!(glintdb::check(directory.path()).unwrap().is_clean());
    assert_eq!(std::fs::read_to_string(stray).unwrap(), "to do");
}

#[test]
fn reading_where_there_is_no_database_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    let empty = directory.path().join("empty");
    let foreign = directory.path().join("foreign");
    std::fs::create_dir(&empty).unwrap();
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("notes.txt"), "to do").unwrap();
    let out = directory.path().join("out");
    for path in [&missing, &empty, &foreign] {
        let kinds = [
            options().create_if_missing(false).open(path).map(drop),
            glintdb::check(path).map(drop),
            glintdb::inspect::files(path).map(drop),
            glintdb::salvage(path, &out, &Default::default()).map(drop),
        ]
        .map(|result| result.unwrap_err().kind());
        assert_eq!(kinds, [ErrorKind::NotFound; 4], "{}", path.display());
    }
    assert_eq!(
        names(directory.path()),
        ["empty", "foreign"].map(String::from).into()
    );
    assert_eq!(names(&empty), BTreeSet::new());
    assert_eq!(names(&foreign), ["notes.txt"].map(String::from).into());
}
