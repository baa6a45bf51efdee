//! Random operations against the model.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// Keys that collide, share prefixes, tie in their normalised prefixes, and end in zero bytes; and now and then the longest allowed.
fn any_key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop::sample::select(vec![0_u8, 1, b'a', 0xff]);
    prop_oneof![
        8 => vec(byte.clone(), 0..4),
        8 => vec(byte.clone(), 0..12),
        8 => (0_u32..400).prop_map(|i| format!("user{i:08}").into_bytes()),
        8 => (0_u32..60, vec(byte, 0..3)).prop_map(|(i, tail)| [format!("tenant/0007/orders/by-date/{i:03}/").as_bytes(), &tail].concat()),
        1 => (0_u8..3).prop_map(|last| { let mut key = vec![b'k'; LONGEST]; key[LONGEST - 1] = last; key }),
    ]
}

/// The engine's limit for keys.
const LONGEST: usize = if cfg!(miri) { 300 } else { 65_536 };

fn any_bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        any_key().prop_map(Bound::Included),
        any_key().prop_map(Bound::Excluded),
        Just(Bound::Unbounded)
    ]
}

fn any_direction() -> impl Strategy<Value = Direction> {
    prop::sample::select(vec![Direction::Forward, Direction::Reverse])
}

const SEQNOS: u64 = 40;

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases: if cfg!(miri) { 1 } else { cases },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn build(puts: &[(Vec<u8>, u64)]) -> (Arc<Memtable>, Model) {
    let (memtable, mut model) = (memtable(), Model::new());
    for (number, (key, seqno)) in puts.iter().enumerate() {
        put(&memtable, &mut model, key, *seqno, number as u64);
    }
    (memtable, model)
}

fn any_puts() -> impl Strategy<Value = Vec<(Vec<u8>, u64)>> {
    let most = if cfg!(miri) { 25 } else { 700 };
    vec((any_key(), 1..SEQNOS), 0..most)
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn prop_gets_and_full_scans_agree_with_the_model(puts in any_puts(), at in 0..SEQNOS) {
        let (memtable, model) = build(&puts);
        check_all(&memtable, &model, [0, at, SeqNum::MAX.0]);
    }

    #[test]
    fn prop_keys_never_inserted_are_not_found(puts in any_puts(), probes in vec(any_key(), 50)) {
        let (memtable, model) = build(&puts);
        for key in &probes {
            prop_assert_eq!(memtable.get(key, SeqNum::MAX).map(owned), model_get(&model, key, SeqNum::MAX));
        }
    }

    #[test]
    fn prop_bounded_scans_agree_with_the_model(
        puts in any_puts(),
        ranges in vec((any_bound(), any_bound(), any_direction(), 0..SEQNOS), 12),
    ) {
        let (memtable, model) = build(&puts);
        for (lower, upper, direction, at) in &ranges {
            let (lower, upper) = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
            let found = scan(&memtable, lower, upper, *direction, SeqNum(*at));
            prop_assert_eq!(found, model_scan(&model, lower, upper, *direction, SeqNum(*at)));
        }
    }

    #[test]
    fn prop_seek_goes_to_the_nearest_key_within_bounds(
        puts in any_puts(),
        lower in any_bound(),
        upper in any_bound(),
        direction in any_direction(),
        at in 0..SEQNOS,
        seeks in vec((any_key(), 0..5_usize), 20),
    ) {
        let (memtable, model) = build(&puts);
        let (lower, upper) = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
        let rows = model_scan(&model, lower, upper, direction, SeqNum(at));
        let mut cursor = memtable.cursor(lower, upper, direction, SeqNum(at));
        for (key, steps) in &seeks {
            cursor.seek(key);
            let from = rows.partition_point(|row| match direction {
                Direction::Forward => row.0 < *key,
                Direction::Reverse => row.0 > *key,
            });
            let mut expected = rows[from..].iter();
            for _ in 0..=*steps {
                match expected.next() {
                    Some(row) => {
                        prop_assert!(cursor.advance());
                        prop_assert_eq!(cursor.key(), &row.0);
                        prop_assert_eq!(cursor.seqno(), row.1);
                        prop_assert_eq!(cursor.value(), row.2.as_ref());
                    }
                    None => prop_assert!(!cursor.advance()),
                }
            }
        }
    }

    #[test]
    fn prop_latest_seqno_in_agrees_with_the_model(
        puts in any_puts(),
        ranges in vec((any_bound(), any_bound(), 0..SEQNOS), 12),
    ) {
        let (memtable, model) = build(&puts);
        for (lower, upper, above) in &ranges {
            let (lower, upper) = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
            let newest = model.keys().filter(|(key, _)| within(key, lower, upper)).map(|(_, Reverse(seqno))| *seqno).max();
            let found = memtable.latest_seqno_in(lower, upper, SeqNum(*above));
            prop_assert_eq!(found, newest.filter(|seqno| seqno.0 > *above));
        }
    }
}
