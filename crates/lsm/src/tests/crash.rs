//! Power cuts and I/O errors at every operation of flushes and compactions.

use super::harness::LsmKind;

#[test]
fn power_cut_before_the_manifest_leaves_no_effect() {
    glintdb_indextest::power_cut_before_the_manifest_leaves_no_effect::<LsmKind>();
}

#[test]
fn error_at_every_operation_leaves_nothing_behind() {
    glintdb_indextest::error_at_every_operation_leaves_nothing_behind::<LsmKind>();
}
