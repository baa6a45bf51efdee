//! Power cuts and I/O errors at every operation of flushes and compactions.

use super::harness::LsmKind;
use glintdb_indextest::{Kind, full_compaction};

#[test]
fn power_cut_before_the_manifest_leaves_no_effect() {
    glintdb_indextest::power_cut_before_the_manifest_leaves_no_effect::<LsmKind>(
        &LsmKind::small_options(),
        full_compaction,
    );
}

#[test]
fn error_at_every_operation_leaves_nothing_behind() {
    glintdb_indextest::error_at_every_operation_leaves_nothing_behind::<LsmKind>(
        &LsmKind::small_options(),
    );
}
