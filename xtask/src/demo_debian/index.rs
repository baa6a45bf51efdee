//! The Debian package index as records, and what an import of it must leave behind.

use super::shown;
use crate::run;
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

/// A package: name and stanza.
pub(super) struct Record {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
}

/// The first `records_max` stanzas that apt knows, as records and as text.
pub(super) fn read(records_max: usize) -> Result<(Vec<Record>, Vec<u8>), String> {
    let dumped = run::output(Command::new("apt-cache").arg("dumpavail"))?;
    let mut records = Vec::new();
    let mut text = Vec::new();
    for stanza in dumped.split("\n\n").take(records_max) {
        let stanza = stanza.trim_matches('\n');
        let name = stanza
            .lines()
            .find_map(|line| line.strip_prefix("Package:"));
        let Some(name) = name else { continue };
        text.extend_from_slice(stanza.as_bytes());
        text.extend_from_slice(b"\n\n");
        records.push(Record {
            key: name.trim().as_bytes().to_vec(),
            value: stanza.as_bytes().to_vec(),
        });
    }
    Ok((records, text))
}

/// What a whole import leaves: of stanzas with one name, the last.
pub(super) fn state(records: &[Record]) -> HashMap<&[u8], &[u8]> {
    records
        .iter()
        .map(|record| (&record.key[..], &record.value[..]))
        .collect()
}

/// A killed import must have left exactly the first N records for some N of at least `acknowledged`.
pub(super) fn check_prefix(
    records: &[Record],
    prefix: &str,
    acknowledged: u64,
    exported: &HashMap<Vec<u8>, Vec<u8>>,
) -> Result<(), String> {
    let found = exported
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix(prefix.as_bytes())?, &value[..])))
        .collect::<HashMap<&[u8], &[u8]>>();
    let acknowledged = usize::try_from(acknowledged).unwrap_or(usize::MAX);
    let mut state = HashMap::new();
    let mut wrong = "nothing".to_string();
    for (index, record) in records.iter().enumerate() {
        state.insert(&record.key[..], &record.value[..]);
        let imported = index + 1;
        if imported < acknowledged || state.len() < found.len() {
            continue;
        }
        if state == found {
            return Ok(());
        }
        wrong = format!("record {imported} differs");
        if state.len() > found.len() {
            break;
        }
    }
    if acknowledged == 0 && found.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} records under {prefix}, {acknowledged} acknowledged: no prefix of the input ({wrong})",
        found.len()
    ))
}

/// Reads what `glintdb export --format binary` wrote.
pub(super) fn parse_binary(file: &Path) -> Result<HashMap<Vec<u8>, Vec<u8>>, String> {
    let bytes = std::fs::read(file).map_err(|error| format!("{}: {error}", shown(file)))?;
    let mut rest = &bytes[..];
    let mut take = || -> Option<Vec<u8>> {
        let (length, tail) = rest.split_first_chunk::<4>()?;
        let (part, tail) = tail.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        rest = tail;
        Some(part.to_vec())
    };
    let mut records = HashMap::new();
    while let Some(key) = take() {
        let value = take().ok_or("the export ends in the middle of a record")?;
        records.insert(key, value);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(pairs: &[(&str, &str)]) -> Vec<Record> {
        let record = |(key, value): &(&str, &str)| Record {
            key: key.as_bytes().to_vec(),
            value: value.as_bytes().to_vec(),
        };
        pairs.iter().map(record).collect()
    }

    fn exported(pairs: &[(&str, &str)]) -> HashMap<Vec<u8>, Vec<u8>> {
        let records = records(pairs).into_iter();
        records.map(|record| (record.key, record.value)).collect()
    }

    #[test]
    fn only_prefixes_with_everything_acknowledged_pass() {
        let input = records(&[("a", "1"), ("b", "2"), ("a", "3"), ("c", "4")]);
        let check = |acknowledged, left: &[(&str, &str)]| {
            check_prefix(&input, "p:", acknowledged, &exported(left)).is_ok()
        };
        assert!(check(0, &[]));
        assert!(check(2, &[("p:a", "1"), ("p:b", "2"), ("other", "x")]));
        assert!(check(2, &[("p:a", "3"), ("p:b", "2")]));
        assert!(
            !check(3, &[("p:a", "1"), ("p:b", "2")]),
            "an acknowledged overwrite is lost"
        );
        assert!(!check(1, &[("p:a", "1"), ("p:c", "4")]), "a hole");
        assert!(
            !check(4, &[("p:a", "3"), ("p:b", "2")]),
            "an acknowledged record is lost"
        );
    }
}
