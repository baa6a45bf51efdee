//! Which units (directories, or LUNs of a modelled device) a file may use, by the class of its
//! data.
//!
//! Thread-safe: plain values. Source: the DapDB paper, section IV.

use crate::volume::DataClass;
use glintdb_core::{Error, Result};
use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;

/// How files are placed on parallel units.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// Every file may use all units.
    #[default]
    Striping,
    /// Each group of classes has units of its own.
    Isolation(Rule),
    /// Striping or isolation, by what the device had to do of late.
    Dynamic(Rule),
}

/// A change of the placement of new files.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PlacementChange {
    /// When, in nanoseconds of the volume's clock.
    pub at_ns: u64,
    /// Whether new files are isolated from then on.
    pub is_isolated: bool,
    /// Part of the time in which the units of the busiest group would program, if files were
    /// isolated. It can be above 1.
    pub busy: f64,
    /// Part of the time of small reads that they waited for programs and erases.
    pub wait: f64,
    /// How often a small read would meet a program if files were isolated, divided by how often it
    /// would if they were striped.
    pub meetings: f64,
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

impl Default for Rule {
    /// `log+flush=1,level1-+relocated=3`: the log and tables of flushes on a quarter of the units,
    /// and deeper levels and moved values on the others. Of the rules that were tried
    /// (docs/papers/dapdb.md) it gains most without a loss of throughput.
    fn default() -> Rule {
        let group = |weight, is_flush: bool| Group {
            weight,
            flush: is_flush,
            levels: (!is_flush).then_some(1..=u8::MAX),
            relocated: !is_flush,
        };
        Rule {
            groups: vec![group(1, true), group(3, false)],
        }
    }
}

/// Reads ranks of levels: `1`, `1-2` or `1-`.
fn ranks(text: &str) -> Option<RangeInclusive<u8>> {
    let rank = |text: &str| text.parse().ok().filter(|rank| *rank >= 1);
    let ranks = match text.split_once('-') {
        None => rank(text)?..=rank(text)?,
        Some((from, "")) => rank(from)?..=u8::MAX,
        Some((from, until)) => rank(from)?..=rank(until)?,
    };
    (!ranks.is_empty()).then_some(ranks)
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

    /// Reads three weights, such as `3:3:2`, for the groups of [`of_paper`](Self::of_paper); two,
    /// such as `1:1`, for those of [`of_two`](Self::of_two); or a list of groups with
    /// their weights, such as `log+flush=1,level1=2,level2-=5`. A group is `log`, `flush`,
    /// `relocated`, and levels by their rank (`level1`, `level1-2`, `level3-`), joined by `+`.
    /// Classes that no group names go to the first one.
    ///
    /// # Errors
    /// `InvalidArgument`: it is neither; a weight is not 1 to 1000; or a class is in two groups.
    pub fn parse(text: &str) -> Result<Rule> {
        let wrong = |why: &str| {
            Err(Error::invalid(format!(
                "rule {text:?}: {why}; a rule is two or three weights, such as `3:3:2`, or groups with weights, \
                 such as `log+flush=1,level1=2,level2-=5`"
            )))
        };
        let weight = |text: &str| {
            text.parse()
                .ok()
                .filter(|weight| (1..=1000).contains(weight))
        };
        if !text.contains('=') {
            let weights: Option<Vec<u32>> = text.split(':').map(weight).collect();
            return match weights.as_deref() {
                Some([log, tables]) => Ok(Rule::of_two(*log, *tables)),
                Some([log, flush, deeper]) => Ok(Rule::of_paper(*log, *flush, *deeper)),
                Some(_) => wrong("it has not two or three weights"),
                None => wrong("its weights are not 1 to 1000"),
            };
        }
        let mut groups: Vec<Group> = Vec::new();
        for part in text.split(',') {
            let Some((classes, share)) = part.split_once('=') else {
                return wrong("a group has no weight");
            };
            let Some(share) = weight(share) else {
                return wrong("its weights are not 1 to 1000");
            };
            let mut group = Group {
                weight: share,
                flush: false,
                levels: None,
                relocated: false,
            };
            for class in classes.split('+') {
                let is_again = match class {
                    "log" if groups.is_empty() => false,
                    "log" => return wrong("the log belongs to the first group"),
                    "flush" => {
                        std::mem::replace(&mut group.flush, true)
                            || groups.iter().any(|group| group.flush)
                    }
                    "relocated" => {
                        std::mem::replace(&mut group.relocated, true)
                            || groups.iter().any(|group| group.relocated)
                    }
                    levels => {
                        let Some(ranks) = levels.strip_prefix("level").and_then(ranks) else {
                            return wrong("a class is none");
                        };
                        let meets = |group: &Group| {
                            let of_group = group.levels.as_ref();
                            of_group.is_some_and(|other| {
                                other.start() <= ranks.end() && ranks.start() <= other.end()
                            })
                        };
                        let is_again = group.levels.is_some() || groups.iter().any(meets);
                        group.levels = Some(ranks);
                        is_again
                    }
                };
                if is_again {
                    return wrong("a class or stretch of levels is named twice");
                }
            }
            groups.push(group);
        }
        Ok(Rule { groups })
    }

    /// Two groups with these weights: the log; all tables.
    #[must_use]
    pub fn of_two(log: u32, tables: u32) -> Rule {
        let group = |weight, has_tables: bool| Group {
            weight,
            flush: has_tables,
            levels: has_tables.then_some(1..=u8::MAX),
            relocated: has_tables,
        };
        Rule {
            groups: vec![group(log, false), group(tables, true)],
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
    /// Reads `striping`, `isolation` and `dynamic`, which have the [default rule](Rule::default);
    /// and these two with another [rule](Rule::parse), such as the paper's `isolation:3:3:2`.
    ///
    /// # Errors
    /// `InvalidArgument` for anything else.
    pub fn parse(text: &str) -> Result<Placement> {
        let (name, rule) = match text.split_once(':') {
            Some((name, rule)) => (name, Some(rule)),
            None => (text, None),
        };
        let rule = || rule.map_or_else(|| Ok(Rule::default()), Rule::parse);
        match name {
            "striping" if text == name => Ok(Placement::Striping),
            "isolation" => Ok(Placement::Isolation(rule()?)),
            "dynamic" => Ok(Placement::Dynamic(rule()?)),
            _ => Err(Error::invalid(format!(
                "placement {text:?}: it is `striping`, `isolation`, `dynamic`, or one of these two with a rule, such \
                 as `isolation:3:3:2`"
            ))),
        }
    }

    /// The units of each group, of `units` in all.
    ///
    /// # Errors
    /// `InvalidArgument` if a group would have no unit.
    pub(crate) fn split(&self, units: u32) -> Result<Vec<Range<u32>>> {
        let (Placement::Isolation(rule) | Placement::Dynamic(rule)) = self else {
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
                "placement {self}: {} groups with these weights do not each get one of {units} units",
                rule.groups.len()
            ))),
            false => Ok(ranges),
        }
    }

    /// The number of a class's group among those of [`split`](Self::split).
    pub(crate) fn group_of(&self, class: DataClass) -> usize {
        match self {
            Placement::Striping => 0,
            Placement::Isolation(rule) | Placement::Dynamic(rule) => rule.group_of(class),
        }
    }
}

impl fmt::Display for Placement {
    /// As [`parse`](Self::parse) reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::Striping => f.write_str("striping"),
            Placement::Isolation(rule) => write!(f, "isolation:{rule}"),
            Placement::Dynamic(rule) => write!(f, "dynamic:{rule}"),
        }
    }
}

impl fmt::Display for Rule {
    /// As [`parse`](Self::parse) reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let weights: Vec<u32> = self.groups.iter().map(|group| group.weight).collect();
        let is_short = match weights[..] {
            [log, tables] => *self == Rule::of_two(log, tables),
            [log, flush, deeper] => *self == Rule::of_paper(log, flush, deeper),
            _ => false,
        };
        if is_short {
            let weights: Vec<String> = weights.iter().map(u32::to_string).collect();
            return f.write_str(&weights.join(":"));
        }
        for (number, group) in self.groups.iter().enumerate() {
            let mut classes = Vec::new();
            if number == 0 {
                classes.push("log".to_owned());
            }
            if group.flush {
                classes.push("flush".to_owned());
            }
            if let Some(ranks) = &group.levels {
                classes.push(match (*ranks.start(), *ranks.end()) {
                    (from, u8::MAX) => format!("level{from}-"),
                    (from, until) if from == until => format!("level{from}"),
                    (from, until) => format!("level{from}-{until}"),
                });
            }
            if group.relocated {
                classes.push("relocated".to_owned());
            }
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{}={}", classes.join("+"), group.weight)?;
        }
        Ok(())
    }
}

impl FromStr for Placement {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Placement::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use glintdb_core::{FileId, FileKind};

    #[test]
    fn the_papers_rule_gives_48_48_and_32_of_128_units() {
        let placement = Placement::parse("isolation:3:3:2").unwrap();
        assert_eq!(placement.split(128).unwrap(), [0..48, 48..96, 96..128]);
        let group = |class| placement.group_of(class);
        assert_eq!(group(DataClass::Log), 0);
        assert_eq!(group(DataClass::Manifest), 0);
        assert_eq!(group(DataClass::Flush), 1);
        assert_eq!(group(DataClass::Level { rank: 1, of: 3 }), 2);
        assert_eq!(group(DataClass::Relocated), 2);
        let dynamic = Placement::parse("dynamic:1:1:6").unwrap();
        assert_eq!(dynamic, Placement::Dynamic(Rule::of_paper(1, 1, 6)));
        assert_eq!(Placement::Striping.split(128).unwrap(), vec![0..128]);
        assert_eq!(Placement::Striping.group_of(DataClass::Flush), 0);
    }

    #[test]
    fn rules_of_any_groups_are_read() {
        let rule = Rule::parse("log+flush=1,level1=2,level2-+relocated=5").unwrap();
        let group = |class| rule.group_of(class);
        let level = |rank| DataClass::Level { rank, of: 4 };
        assert_eq!((group(DataClass::Log), group(DataClass::Flush)), (0, 0));
        assert_eq!(
            (group(level(1)), group(level(2)), group(level(9))),
            (1, 2, 2)
        );
        assert_eq!(group(DataClass::Relocated), 2);
        let placement = Placement::Isolation(rule);
        assert_eq!(placement.split(128).unwrap(), [0..16, 16..48, 48..128]);
        let default = Rule::parse("log+flush=1,level1-+relocated=3").unwrap();
        assert_eq!(default, Rule::default());
        let isolation = Placement::parse("isolation").unwrap();
        assert_eq!(isolation, Placement::Isolation(default));
        let paper = Rule::parse("log=3,flush=3,level1-+relocated=2").unwrap();
        assert_eq!(paper, Rule::parse("3:3:2").unwrap());
    }

    #[test]
    fn two_weights_part_the_log_from_tables() {
        let placement = Placement::parse("isolation:1:1").unwrap();
        assert_eq!(placement.split(2).unwrap(), [0..1, 1..2]);
        for class in [
            DataClass::Flush,
            DataClass::Level { rank: 3, of: 4 },
            DataClass::Relocated,
            DataClass::of_found(FileId::new(FileKind::Tree, 1)),
        ] {
            assert_eq!(placement.group_of(class), 1, "{class:?}");
        }
        assert_eq!(placement.group_of(DataClass::Log), 0);
        assert_eq!(placement.group_of(DataClass::Manifest), 0);
    }

    #[test]
    fn a_placement_is_written_as_it_is_read() {
        for text in [
            "striping",
            "isolation:3:3:2",
            "isolation:1:2",
            "dynamic:log+flush=1,level1=2,level2-3=1,level4-+relocated=5",
        ] {
            assert_eq!(Placement::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn rules_that_cannot_be_are_refused() {
        for (text, why) in [
            ("3:3:1:1", "not two or three weights"),
            ("3", "not two or three weights"),
            ("0:1:1", "not 1 to 1000"),
            ("a:1:1", "not 1 to 1000"),
            ("log=0,flush=1", "not 1 to 1000"),
            ("log,flush=1", "no weight"),
            ("flush=1,log=1", "first group"),
            ("log=1,flush=1,flush=1", "twice"),
            ("log=1,level1-2=1,level2-=1", "twice"),
            ("log=1,level1+level2=1", "twice"),
            ("log=1,level2-1=1", "a class is none"),
            ("log=1,level0=1", "a class is none"),
            ("log=1,tables=1", "a class is none"),
        ] {
            let error = Rule::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn groups_without_units_and_other_texts_are_refused() {
        let placement = Placement::parse("isolation:100:1:1").unwrap();
        let error = placement.split(8).unwrap_err().to_string();
        assert!(error.contains("do not each get one of 8 units"), "{error}");
        for text in ["", "isolate", "isolate:3:3:2", "striping:1:1:1"] {
            let error = Placement::parse(text).unwrap_err().to_string();
            assert!(error.contains("it is `striping`"), "{text}: {error}");
        }
        for text in ["isolation:", "isolation:3", "dynamic:0:1:1"] {
            let error = Placement::parse(text).unwrap_err().to_string();
            assert!(error.contains("a rule is"), "{text}: {error}");
        }
    }
}
