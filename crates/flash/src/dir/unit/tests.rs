//! Unit tests of [`unit`](super): which directories are accepted, and that a refusal changes
//! nothing.

use super::*;
use std::collections::BTreeMap;

const CREATE: DirOptions = DirOptions {
    direct: crate::DirectIo::Off,
    read_engine: crate::ReadEngine::Sync,
    read_depth: 1,
    begun_batches_max: 0,
    sort_reads: true,
    merge_reads: true,
    kernel_read_ahead: false,
    recycle: true,
    create: true,
    read_only: false,
    idle_buffer_bytes_max: 0,
};

struct Dirs(tempfile::TempDir);

impl Dirs {
    fn new() -> Dirs {
        Dirs(tempfile::tempdir().unwrap())
    }

    fn paths(&self, names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(|name| self.0.path().join(name)).collect()
    }

    /// The names of the directories in the order in which they are opened.
    fn open(&self, names: &[&str]) -> Result<Vec<String>> {
        let opened = open(&self.paths(names), CREATE)?;
        let name = |volume: &Arc<DirVolume>| {
            let name = volume.path().file_name().unwrap();
            name.to_str().unwrap().to_owned()
        };
        Ok(opened.iter().map(name).collect())
    }

    /// Every file with its bytes.
    fn bytes(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        for directory in self.0.path().read_dir().unwrap() {
            let directory = directory.unwrap().path();
            found.insert(directory.clone(), Vec::new());
            for file in directory.read_dir().unwrap() {
                let path = file.unwrap().path();
                found.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
        found
    }

    /// The error of an open, which changes nothing.
    fn refused(&self, names: &[&str]) -> Error {
        let before = self.bytes();
        let error = self.open(names).unwrap_err();
        assert_eq!(self.bytes(), before, "{error}");
        error
    }

    fn assert_refused(&self, names: &[&str], kind: ErrorKind, parts: &[&str]) {
        let error = self.refused(names);
        assert_eq!(error.kind(), kind, "{error}");
        for part in parts {
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}

#[test]
fn directories_are_put_into_their_own_order() {
    let dirs = Dirs::new();
    assert_eq!(dirs.open(&["a", "b", "c"]).unwrap(), ["a", "b", "c"]);
    assert_eq!(dirs.open(&["c", "a", "b"]).unwrap(), ["a", "b", "c"]);
}

#[test]
fn missing_exchanged_and_foreign_directories_are_refused_by_name() {
    let dirs = Dirs::new();
    dirs.open(&["a", "b", "c"]).unwrap();
    dirs.open(&["x", "y"]).unwrap();
    fs::create_dir(dirs.0.path().join("empty")).unwrap();
    dirs.assert_refused(
        &["a", "b"],
        ErrorKind::InvalidArgument,
        &["number 3 is missing"],
    );
    dirs.assert_refused(
        &["a", "c"],
        ErrorKind::InvalidArgument,
        &["number 2 is missing"],
    );
    dirs.assert_refused(
        &["a", "b", "nowhere"],
        ErrorKind::NotFound,
        &["nowhere is not there"],
    );
    dirs.assert_refused(
        &["a", "empty", "c"],
        ErrorKind::NotFound,
        &["empty has no file"],
    );
    dirs.assert_refused(&["empty", "y"], ErrorKind::NotFound, &["empty has no file"]);
    dirs.assert_refused(
        &["a", "b", "c", "x"],
        ErrorKind::InvalidArgument,
        &["x", "different databases"],
    );
    dirs.assert_refused(
        &["a", "y"],
        ErrorKind::InvalidArgument,
        &["different databases"],
    );
    dirs.assert_refused(
        &["a", "b", "./b"],
        ErrorKind::InvalidArgument,
        &["given twice"],
    );
    dirs.assert_refused(
        &["new", "new"],
        ErrorKind::InvalidArgument,
        &["given twice"],
    );
    dirs.assert_refused(&["a"], ErrorKind::InvalidArgument, &["2 to 64"]);
    // A copy has the same identity.
    fs::create_dir(dirs.0.path().join("copy")).unwrap();
    let [from, to] = ["b", "copy"].map(|name| dirs.0.path().join(name).join(NAME));
    fs::copy(from, to).unwrap();
    dirs.assert_refused(
        &["a", "b", "copy"],
        ErrorKind::InvalidArgument,
        &["directory 2 of 3", "one is a copy"],
    );
}

#[test]
fn a_directory_of_several_does_not_open_alone() {
    let dirs = Dirs::new();
    dirs.open(&["a", "b"]).unwrap();
    let path = dirs.0.path().join("b");
    let error = DirVolume::open(&path, CREATE).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("directory 2 of 2"), "{error}");
    let contents = DirVolume::contents(&path).unwrap();
    assert!(matches!(contents, DirContents::Unit(what) if what.contains("dirs:")));
}

#[test]
fn a_database_is_made_in_empty_directories_only() {
    let dirs = Dirs::new();
    for (name, file) in [
        ("notes", "notes.txt"),
        ("single", "log-0000000000000001.glint"),
    ] {
        fs::create_dir(dirs.0.path().join(name)).unwrap();
        fs::write(dirs.0.path().join(name).join(file), "x").unwrap();
    }
    dirs.assert_refused(
        &["a", "notes"],
        ErrorKind::InvalidArgument,
        &["notes", "other files"],
    );
    dirs.assert_refused(
        &["single", "a"],
        ErrorKind::InvalidArgument,
        &["of one directory"],
    );
    let options = DirOptions {
        create: false,
        ..CREATE
    };
    let error = open(&dirs.paths(&["a", "b"]), options).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert_eq!(dirs.bytes().len(), 4);
}

#[test]
fn a_creation_that_was_cut_off_is_taken_up_again() {
    let dirs = Dirs::new();
    let [a, b] = ["a", "b"].map(|name| dirs.0.path().join(name));
    for path in [&a, &b] {
        fs::create_dir(path).unwrap();
    }
    let unit = |index| Unit {
        id: [7; 16],
        index,
        count: 2,
    };
    // The creation ended before all directories had the file: it begins again.
    unit(0).write_new(&a).unwrap();
    fs::write(b.join(NAME_NEW), "torn").unwrap();
    assert_eq!(dirs.open(&["b", "a"]).unwrap(), ["b", "a"]);
    for path in [&a, &b] {
        fs::remove_file(path.join(NAME)).unwrap();
    }
    // When some have the name: the others get it.
    for (index, path) in [(0, &a), (1, &b)] {
        unit(index).write_new(path).unwrap();
    }
    finish(&b).unwrap();
    assert_eq!(dirs.open(&["b", "a"]).unwrap(), ["a", "b"]);
    assert_eq!(Unit::read(&a, NAME).unwrap(), Some(unit(0)));
    assert_eq!(Unit::read(&a, NAME_NEW).unwrap(), None);
}

#[test]
fn every_damaged_byte_of_the_file_is_noticed() {
    let unit = Unit {
        id: [3; 16],
        index: 1,
        count: 2,
    };
    let bytes = unit.encode();
    let path = Path::new("unit");
    assert_eq!(Unit::decode(&bytes, path).unwrap(), unit);
    for at in 0..BYTES {
        let mut damaged = bytes;
        damaged[at] ^= 1;
        assert!(Unit::decode(&damaged, path).is_err(), "byte {at}");
        assert!(Unit::decode(&bytes[..at], path).is_err(), "length {at}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(Unit::decode(&longer, path).is_err());
    let mut newer = bytes;
    newer[8] = 2;
    let error = Unit::decode(&newer, path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedFormat);
}

/// The example of `docs/format/media.md`.
#[test]
fn the_page_shows_the_bytes_that_are_written() {
    let unit = Unit {
        id: *b"0123456789abcdef",
        index: 1,
        count: 2,
    };
    let page = include_str!("../../../../../docs/format/media.md");
    let hex: Vec<String> = unit
        .encode()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    for row in hex.chunks(16) {
        assert!(page.contains(&row.join(" ")), "{}", row.join(" "));
    }
}
