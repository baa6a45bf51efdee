//! What is held in memory, by counting. `crates/testkit/tests/engine/memory.rs` measures processes.

use crate::support::open;
use glintdb::KeyspaceOptions;
use glintdb_simdisk::MemVolume;

/// Each keyspace had a node in the arena of every generation. A thousand filled the smallest one,
/// so that each commit found its generation full and was followed by a flush.
#[test]
fn keyspaces_without_writes_do_not_fill_the_memtables() {
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    for n in 0..1200 {
        let name = format!("keyspace{n}");
        db.create_keyspace(&name, KeyspaceOptions::default())
            .unwrap();
    }
    let before = db.stats();
    for n in 0..200_u32 {
        db.put(n.to_be_bytes(), "value").unwrap();
    }
    let flushes = |stats: &glintdb::Stats| stats.keyspaces[0].flushes;
    assert_eq!(flushes(&db.stats()), flushes(&before));
    assert_eq!(
        db.get(7_u32.to_be_bytes()).unwrap().as_deref(),
        Some(&b"value"[..])
    );
}
