//! Which units (LUNs) a file may use, by the class of its data.
//!
//! Source: the DapDB paper, section IV.

use crate::volume::DataClass;
use glintdb_core::{Error, Result};
use std::ops::{Range, RangeInclusive};

/// How files are placed on parallel units.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// Every file may use all units.
    #[default]
    Striping,
    /// Each group of classes has units of its own.
    Isolation(Rule),
}

/// Groups of classes that have units of their own. What no group has goes to the first one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The groups; at least one.
    pub groups: Vec<Group>,
}

/// Classes that share units.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Share of the units, at least 1.
    pub weight: u32,
    /// Whether tables of flushes are in it.
    pub flush: bool,
    /// Ranks of the levels below the newest runs that are in it.
    pub levels: Option<RangeInclusive<u8>>,
    /// Whether values that value GC has moved, and the tables that point to them, are in it.
    pub relocated: bool,
}

impl Rule {
    /// The paper's groups with these weights: the log; tables of flushes; all deeper levels. The
    /// paper has 3:3:2.
    #[must_use]
    pub fn of_paper(log: u32, flush: u32, deeper: u32) -> Rule {
        let group = |weight, flush, is_deeper: bool| Group {
            weight,
            flush,
            levels: is_deeper.then_some(1..=u8::MAX),
            relocated: is_deeper,
        };
        Rule {
            groups: vec![
                group(log, false, false),
                group(flush, true, false),
                group(deeper, false, true),
            ],
        }
    }

    /// The group of a class.
    fn group_of(&self, class: DataClass) -> usize {
        let has = |group: &Group| match class {
            DataClass::Flush => group.flush,
            DataClass::Level { rank, .. } => group
                .levels
                .as_ref()
                .is_some_and(|ranks| ranks.contains(&rank)),
            DataClass::Relocated => group.relocated,
            DataClass::Log | DataClass::Manifest | DataClass::Reserve => false,
        };
        self.groups.iter().position(has).unwrap_or(0)
    }
}

impl Placement {
    /// Reads `striping`, `isolation` (the paper's 3:3:2) or `isolation:3:3:2` with other weights.
    ///
    /// # Errors
    /// `InvalidArgument` for anything else.
    pub fn parse(text: &str) -> Result<Placement> {
        let wrong = || {
            Error::invalid(format!(
                "placement {text:?}: it is `striping`, `isolation` or `isolation:3:3:2`, with three weights of 1 to \
                 1000"
            ))
        };
        let weights = match text {
            "striping" => return Ok(Placement::Striping),
            "isolation" => "3:3:2",
            _ => text.strip_prefix("isolation:").ok_or_else(wrong)?,
        };
        let weights: Vec<u32> = weights
            .split(':')
            .map(|weight| {
                weight
                    .parse()
                    .ok()
                    .filter(|weight| (1..=1000).contains(weight))
            })
            .collect::<Option<_>>()
            .ok_or_else(wrong)?;
        let [log, flush, deeper] = weights[..] else {
            return Err(wrong());
        };
        Ok(Placement::Isolation(Rule::of_paper(log, flush, deeper)))
    }

    /// The units of each group, of `units` in all.
    ///
    /// # Errors
    /// `InvalidArgument` if a group would have no unit.
    pub(super) fn split(&self, units: u32) -> Result<Vec<Range<u32>>> {
        let Placement::Isolation(rule) = self else {
            return Ok(std::iter::once(0..units).collect());
        };
        let all: u64 = rule
            .groups
            .iter()
            .map(|group| u64::from(group.weight))
            .sum();
        let (mut before, mut ranges) = (0, Vec::new());
        let share = |weight: u64| u32::try_from(u64::from(units) * weight / all.max(1));
        for group in &rule.groups {
            let from = share(before).unwrap_or(units);
            before += u64::from(group.weight);
            ranges.push(from..share(before).unwrap_or(units));
        }
        match ranges.iter().any(Range::is_empty) || ranges.is_empty() {
            true => Err(Error::invalid(format!(
                "{} groups with these weights do not each get one of {units} units",
                rule.groups.len()
            ))),
            false => Ok(ranges),
        }
    }

    /// The number of a class's group among those of [`split`](Self::split).
    pub(super) fn group_of(&self, class: DataClass) -> usize {
        match self {
            Placement::Striping => 0,
            Placement::Isolation(rule) => rule.group_of(class),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_rule_gives_48_48_and_32_of_128_units() {
        let placement = Placement::parse("isolation:3:3:2").unwrap();
        assert_eq!(placement, Placement::parse("isolation").unwrap());
        assert_eq!(placement.split(128).unwrap(), [0..48, 48..96, 96..128]);
        let group = |class| placement.group_of(class);
        assert_eq!(group(DataClass::Log), 0);
        assert_eq!(group(DataClass::Manifest), 0);
        assert_eq!(group(DataClass::Flush), 1);
        assert_eq!(group(DataClass::Level { rank: 1, of: 3 }), 2);
        assert_eq!(group(DataClass::Relocated), 2);
        assert_eq!(Placement::Striping.split(128).unwrap(), vec![0..128]);
        assert_eq!(Placement::Striping.group_of(DataClass::Flush), 0);
    }

    #[test]
    fn groups_without_units_and_other_texts_are_refused() {
        let placement = Placement::parse("isolation:100:1:1").unwrap();
        let error = placement.split(8).unwrap_err().to_string();
        assert!(error.contains("do not each get one of 8 units"), "{error}");
        for text in [
            "",
            "isolate",
            "isolation:",
            "isolation:3:3",
            "isolation:0:1:1",
            "isolation:1:1:1:1",
            "isolation:a:1:1",
        ] {
            let error = Placement::parse(text).unwrap_err().to_string();
            assert!(error.contains("it is `striping`"), "{text}: {error}");
        }
    }
}
