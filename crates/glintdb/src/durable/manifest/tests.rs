//! The manifest, edit by edit and byte by byte: what is read back, what is refused, torn and damaged files, rolling.

use super::file::{read_whole, salvage_records};
use super::*;
use bytes::Bytes;
use glintdb_core::checksum::FileSeed;
use glintdb_core::{FileId, FileKind};
use glintdb_flash::{CreateOptions, DataClass};
use glintdb_simdisk::MemVolume;

fn volume() -> Arc<dyn Volume> {
    MemVolume::new()
}

const DB: DbId = DbId([7; 16]);

fn created(name: &str, id: u32) -> Item {
    Item::KeyspaceCreated {
        id: KeyspaceId(id),
        name: name.to_owned(),
        options: KeyspaceOptions::default(),
    }
}

pub(super) fn live(segment: u64, bytes: i64) -> Item {
    Item::Liveness {
        keyspace: KeyspaceId(0),
        segment: SegmentId(segment),
        bytes,
    }
}

pub(super) fn new_manifest(volume: &Arc<dyn Volume>) -> Manifest {
    let mut state = State::empty();
    state.apply(&created("default", 0)).unwrap();
    Manifest::create(Arc::clone(volume), DB, 1, state, Vec::new()).unwrap()
}

#[test]
fn what_was_committed_is_read_back() {
    let volume = volume();
    let mut manifest = new_manifest(&volume);
    manifest
        .commit(&[
            created("users", 1),
            Item::IndexEdit {
                keyspace: KeyspaceId(1),
                edit: b"edit".to_vec(),
            },
        ])
        .unwrap();
    manifest.commit(&[live(3, 100), live(4, 50)]).unwrap();
    manifest
        .commit(&[live(3, -100), Item::NumbersReserved(512)])
        .unwrap();
    let point = FlushPoint {
        lsn: Lsn::new(SegmentId(4), 4096),
        seqno: SeqNum(9),
    };
    manifest.commit(&[Item::FlushPoint(point)]).unwrap();
    let loaded = read_newest(&*volume).unwrap().loaded.unwrap();
    assert_eq!(loaded.db, DB);
    assert_eq!(&loaded.state, manifest.state());
    assert_eq!(loaded.edits[&KeyspaceId(1)], vec![b"edit".to_vec()]);
    assert_eq!(
        (
            loaded.state.live_bytes(SegmentId(3)),
            loaded.state.live_bytes(SegmentId(4))
        ),
        (0, 50)
    );
    let file = volume.open(FileId::new(FileKind::Manifest, loaded.number));
    assert_eq!(loaded.end, file.unwrap().len().unwrap());
}

#[test]
fn liveness_below_zero_and_a_flush_point_that_goes_back_are_refused_and_change_nothing() {
    let volume = volume();
    let mut manifest = new_manifest(&volume);
    let point = |seqno| {
        Item::FlushPoint(FlushPoint {
            lsn: Lsn::new(SegmentId(1), 4096),
            seqno: SeqNum(seqno),
        })
    };
    manifest.commit(&[live(3, 10), point(5)]).unwrap();
    for wrong in [
        vec![live(3, 5), live(3, -16)],
        vec![point(4)],
        vec![created("default", 1)],
        vec![Item::KeyspaceOptions {
            id: KeyspaceId(1),
            options: KeyspaceOptions::default(),
        }],
    ] {
        let before = manifest.state().clone();
        assert_eq!(
            manifest.commit(&wrong).unwrap_err().kind(),
            ErrorKind::Corruption
        );
        assert_eq!(manifest.state(), &before);
    }
}

fn retired(segment: u64) -> Item {
    Item::SegmentRetired(SegmentId(segment))
}

#[test]
fn a_retired_segment_is_counted_until_nothing_points_into_it() {
    let volume = volume();
    let mut manifest = new_manifest(&volume);
    let of = |keyspace, segment, bytes| Item::Liveness {
        keyspace: KeyspaceId(keyspace),
        segment: SegmentId(segment),
        bytes,
    };
    let setup = [created("b", 1), live(3, 10), of(1, 3, 5), live(4, 7)];
    manifest.commit(&setup).unwrap();
    // In the edit that moves what was live in it.
    manifest
        .commit(&[live(9, 10), live(3, -4), retired(3)])
        .unwrap();
    for again in 0..2 {
        let state = manifest.state();
        assert_eq!(state.live_segments(), [SegmentId(4), SegmentId(9)]);
        assert!(!state.is_live(SegmentId(3)) && state.live_bytes(SegmentId(3)) == 11);
        let loaded = read_newest(&*volume).unwrap().loaded.unwrap();
        assert_eq!(&loaded.state, state, "{again}");
        manifest.roll(Vec::new()).unwrap();
    }
    manifest.commit(&[live(3, -6)]).unwrap();
    assert!(manifest.state().retired.contains(&SegmentId(3)));
    manifest.commit(&[of(1, 3, -5)]).unwrap();
    assert!(manifest.state().retired.is_empty());
    // A drop takes the last pointers away too.
    manifest.commit(&[of(1, 5, 8), retired(5)]).unwrap();
    let dropped = Item::KeyspaceDropped {
        id: KeyspaceId(1),
        seqno: SeqNum(3),
    };
    manifest.commit(&[dropped]).unwrap();
    assert!(manifest.state().retired.is_empty());
    let loaded = read_newest(&*volume).unwrap().loaded.unwrap();
    assert_eq!(&loaded.state, manifest.state());
}

#[test]
fn segments_without_pointers_are_not_retired_and_retired_ones_get_none() {
    let volume = volume();
    let mut manifest = new_manifest(&volume);
    manifest.commit(&[live(3, 10), retired(3)]).unwrap();
    for wrong in [
        vec![retired(2)],
        vec![retired(3)],
        vec![live(3, 1)],
        vec![live(4, 5), retired(4), live(4, -5), retired(4)],
    ] {
        let before = manifest.state().clone();
        assert_eq!(
            manifest.commit(&wrong).unwrap_err().kind(),
            ErrorKind::Corruption
        );
        assert_eq!(manifest.state(), &before);
    }
}

/// With checksums that are right: one number more did not fit, or began again at 0.
#[test]
fn numbers_that_leave_no_room_for_more_are_refused() {
    let volume = volume();
    let mut manifest = new_manifest(&volume);
    let point = |seqno| {
        Item::FlushPoint(FlushPoint {
            lsn: Lsn::new(SegmentId(1), 4096),
            seqno: SeqNum(seqno),
        })
    };
    let dropped = |seqno| Item::KeyspaceDropped {
        id: KeyspaceId(1),
        seqno: SeqNum(seqno),
    };
    for wrong in [
        Item::NumbersReserved(u64::MAX - 10),
        Item::NumbersReserved(1 << 63),
        point(SeqNum::MAX.0),
        point(u64::MAX),
        point(1 << 56),
        dropped(1 << 56),
    ] {
        let error = manifest.commit(std::slice::from_ref(&wrong)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{wrong:?}");
    }
    manifest
        .commit(&[Item::NumbersReserved((1 << 63) - 1), point((1 << 55) - 1)])
        .unwrap();
}

/// Any file of that name, whatever it holds.
#[test]
fn a_manifest_with_the_greatest_number_is_corruption() {
    for number in [1 << 63, u64::MAX] {
        let volume = volume();
        drop(new_manifest(&volume));
        let id = FileId::new(FileKind::Manifest, number);
        let options = CreateOptions {
            class: DataClass::Manifest,
            reserve_bytes: 0,
            direct: false,
        };
        let file = volume.create(id, options).unwrap();
        file.write_at(0, b"whatever").unwrap();
        let error = read_newest(&*volume).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert_eq!(error.place().unwrap().0, id.to_string());
    }
}

#[test]
fn a_dropped_keyspace_is_remembered_until_the_flush_point_passes_the_drop() {
    let volume = volume();
    let mut manifest = new_manifest(&volume);
    manifest.commit(&[created("users", 1)]).unwrap();
    manifest
        .commit(&[Item::KeyspaceDropped {
            id: KeyspaceId(1),
            seqno: SeqNum(8),
        }])
        .unwrap();
    let point = |seqno| {
        Item::FlushPoint(FlushPoint {
            lsn: Lsn::new(SegmentId(1), 4096),
            seqno: SeqNum(seqno),
        })
    };
    manifest.commit(&[point(7)]).unwrap();
    assert!(
        read_newest(&*volume)
            .unwrap()
            .loaded
            .unwrap()
            .state
            .dropped
            .contains_key(&KeyspaceId(1))
    );
    manifest.commit(&[point(8)]).unwrap();
    assert!(
        read_newest(&*volume)
            .unwrap()
            .loaded
            .unwrap()
            .state
            .dropped
            .is_empty()
    );
    // The id is not used again.
    assert_eq!(manifest.state().keyspace_next, KeyspaceId(2));
    manifest.roll(Vec::new()).unwrap();
    assert_eq!(
        read_newest(&*volume)
            .unwrap()
            .loaded
            .unwrap()
            .state
            .keyspace_next,
        KeyspaceId(2)
    );
}

/// The bytes of a manifest with three edits, and where each record ends (its padding not counted).
fn sample() -> (Bytes, Vec<usize>) {
    let volume = volume();
    let mut manifest = new_manifest(&volume);
    for segment in 1..4 {
        manifest.commit(&[live(segment, 10)]).unwrap();
    }
    let id = FileId::new(FileKind::Manifest, 1);
    let bytes = read_whole(&*volume, id).unwrap();
    let (_, mut records) = RecordReader::open(id, &bytes).unwrap();
    let mut ends = Vec::new();
    while let Some(record) = records.next_record().unwrap() {
        ends.push(usize::try_from(record.offset).unwrap() + 8 + record.payload.len());
    }
    (bytes, ends)
}

fn read_bytes(bytes: &[u8]) -> Result<Option<Loaded>> {
    let volume = volume();
    let id = FileId::new(FileKind::Manifest, 1);
    let file = volume
        .create(
            id,
            glintdb_flash::CreateOptions {
                class: glintdb_flash::DataClass::Manifest,
                reserve_bytes: 0,
                direct: false,
            },
        )
        .unwrap();
    file.write_at(0, bytes).unwrap();
    read_newest(&*volume).map(|found| found.loaded)
}

#[test]
fn a_manifest_cut_at_any_byte_gives_the_edits_before_the_cut() {
    let (bytes, ends) = sample();
    for cut in 0..=bytes.len() {
        let loaded = read_bytes(&bytes[..cut]).unwrap();
        let whole = ends.iter().filter(|end| **end <= cut).count();
        match loaded {
            None => assert_eq!(whole, 0, "cut at {cut}"),
            Some(loaded) => assert_eq!(loaded.state.liveness.len() + 1, whole, "cut at {cut}"),
        }
    }
}

#[test]
fn every_flipped_bit_is_detected_harmless_or_in_the_last_record() {
    let (bytes, ends) = sample();
    let intact = read_bytes(&bytes).unwrap().unwrap().state;
    let last = ends[ends.len() - 2];
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        match read_bytes(&flipped) {
            Err(error) => assert!(
                matches!(
                    error.kind(),
                    ErrorKind::Corruption | ErrorKind::UnsupportedFormat
                ),
                "bit {bit}: {error}"
            ),
            Ok(Some(loaded)) if loaded.state == intact => {}
            // A bad last record cannot be told from a torn one.
            Ok(_) => assert!(bit / 8 >= last, "bit {bit} goes unnoticed"),
        }
    }
}

#[test]
fn a_new_manifest_that_is_not_whole_gives_way_to_the_old_one() {
    let volume = volume();
    let manifest = new_manifest(&volume);
    let id = FileId::new(FileKind::Manifest, 2);
    let options = glintdb_flash::CreateOptions {
        class: glintdb_flash::DataClass::Manifest,
        reserve_bytes: 0,
        direct: false,
    };
    let file = volume.create(id, options).unwrap();
    assert_eq!(
        read_newest(&*volume).unwrap().loaded.unwrap().number,
        1,
        "empty"
    );
    let whole = read_whole(&*volume, FileId::new(FileKind::Manifest, 1)).unwrap();
    file.write_at(0, &vec![0; whole.len()]).unwrap();
    assert_eq!(
        read_newest(&*volume).unwrap().loaded.unwrap().number,
        1,
        "zeros"
    );
    drop(manifest);
}

#[test]
fn rolling_keeps_the_state_and_removes_the_old_file() {
    let volume = volume();
    let mut manifest = new_manifest(&volume);
    manifest.commit(&[live(1, 10)]).unwrap();
    manifest
        .roll(vec![(KeyspaceId(0), b"whole".to_vec())])
        .unwrap();
    manifest
        .commit(&[Item::IndexEdit {
            keyspace: KeyspaceId(0),
            edit: b"more".to_vec(),
        }])
        .unwrap();
    let loaded = read_newest(&*volume).unwrap().loaded.unwrap();
    assert_eq!((loaded.number, volume.list().unwrap().len()), (2, 1));
    assert_eq!(
        loaded.edits[&KeyspaceId(0)],
        vec![b"whole".to_vec(), b"more".to_vec()]
    );
    assert_eq!(&loaded.state, manifest.state());
}

#[test]
fn the_manifest_of_another_database_or_number_is_refused() {
    let (bytes, _) = sample();
    let volume = volume();
    let file = volume
        .create(
            FileId::new(FileKind::Manifest, 5),
            glintdb_flash::CreateOptions {
                class: glintdb_flash::DataClass::Manifest,
                reserve_bytes: 0,
                direct: false,
            },
        )
        .unwrap();
    file.write_at(0, &bytes).unwrap();
    assert_eq!(
        read_newest(&*volume).err().unwrap().kind(),
        ErrorKind::Corruption
    );
}

/// Behind a record that does not parse every eighth byte is tried as the beginning of another, and in a hostile file each claims to be as long as the rest. With the checksum of all that at
/// every try, 8 MiB took 4 TiB of checksums: minutes. (With 64 MiB: the best part of a day.)
#[test]
fn a_search_behind_a_torn_record_does_not_grow_with_what_hostile_lengths_claim() {
    const HOSTILE_BYTES: usize = 8 << 20;
    let length = |bytes: usize| u32::try_from(bytes).unwrap().to_le_bytes();
    let volume = volume();
    let mut manifest = new_manifest(&volume);
    manifest.commit(&[live(3, 100)]).unwrap();
    let id = FileId::new(FileKind::Manifest, 1);
    let sound = read_whole(&*volume, id).unwrap();
    let claim = |bytes: &mut Vec<u8>, end: usize| {
        while bytes.len() < end {
            let rest = (end - bytes.len()).saturating_sub(8);
            bytes.extend(length(rest.max(1)));
            bytes.extend([0xa5; 4]);
        }
    };
    let file = volume.open(id).unwrap();
    let end = sound.len() + HOSTILE_BYTES;
    let mut hostile = sound.to_vec();
    claim(&mut hostile, end);
    file.write_at(0, &hostile).unwrap();
    let loaded = read_newest(&*volume).unwrap().loaded.unwrap();
    assert_eq!(&loaded.state, manifest.state());
    assert_eq!(loaded.end, sound.len() as u64);
    assert_eq!(salvage_records(id, DB, &hostile).len(), 2);

    // A sound record behind it, a long one, is still found.
    let payload = vec![0x5a; 100_000];
    let mut record = length(payload.len()).to_vec();
    record.extend(&payload);
    let checksum = FileSeed::new(DB, id).checksum(end as u64, &record);
    record.splice(4..4, checksum.to_le_bytes());
    file.write_at(end as u64, &record).unwrap();
    let error = read_newest(&*volume).map(drop).unwrap_err();
    assert!(
        error
            .to_string()
            .contains(&format!("one at offset {end} does")),
        "{error}"
    );
}

#[test]
fn a_new_index_of_a_keyspace_voids_its_earlier_edits() {
    let volume: Arc<dyn Volume> = MemVolume::new();
    let mut manifest = new_manifest(&volume);
    let edit = |edit: &[u8]| Item::IndexEdit {
        keyspace: KeyspaceId(0),
        edit: edit.to_vec(),
    };
    let mut options = KeyspaceOptions::default();
    options.lsm.size_ratio = 4;
    let index = |id| Item::KeyspaceIndex {
        id: KeyspaceId(id),
        options: options.clone(),
        edit: b"first".to_vec(),
    };
    manifest.commit(&[edit(b"old")]).unwrap();
    manifest.commit(&[index(0)]).unwrap();
    manifest.commit(&[edit(b"next")]).unwrap();
    let loaded = read_newest(&*volume).unwrap().loaded.unwrap();
    assert_eq!(
        loaded.edits[&KeyspaceId(0)],
        [b"first".to_vec(), b"next".to_vec()]
    );
    assert_eq!(loaded.state.keyspaces[&KeyspaceId(0)].options, options);
    let error = manifest.commit(&[index(7)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
}
