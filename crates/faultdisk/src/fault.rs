//! Which operations of the disk fail, and how.
//!
//! Thread safety: as any value.

use std::ops::Range;

/// Kind of operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum On {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes.
    Flush,
}

/// How often a fault strikes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Times {
    /// Once.
    Once,
    /// From then on.
    Sticky,
}

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// EIO; a write leaves nothing behind, a flush makes nothing durable.
    Error,
    /// EIO of a flush, and all that was written since the flush before is gone: a disk whose cache failed. For reads and writes as `Error`.
    ErrorAndLoss,
    /// It says that all is well and does nothing. A read gives zeros.
    Lie,
}

/// A fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What it strikes.
    pub on: On,
    /// Only where the operation touches these bytes; flushes touch all.
    pub range: Option<Range<usize>>,
    /// So many operations that it could strike are let through first.
    pub skip: u64,
    /// How often.
    pub times: Times,
    /// What happens.
    pub effect: Effect,
}

impl Fault {
    /// EIO of the operation of this kind that comes after `skip` others; nothing more.
    #[must_use]
    pub fn once(on: On, skip: u64) -> Fault {
        Fault {
            on,
            range: None,
            skip,
            times: Times::Once,
            effect: Effect::Error,
        }
    }

    /// As [`once`](Self::once), and all later ones.
    #[must_use]
    pub fn sticky(on: On, skip: u64) -> Fault {
        Fault {
            times: Times::Sticky,
            ..Fault::once(on, skip)
        }
    }
}

/// The faults that wait for their time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults(Vec<Fault>);

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// What happens to this operation.
    pub(crate) fn strike(&mut self, on: On, range: &Range<usize>) -> Option<Effect> {
        let mut effect = None;
        self.0.retain_mut(|fault| {
            let touches = |of: &Range<usize>| of.start < range.end && range.start < of.end;
            if effect.is_some() || fault.on != on || !fault.range.as_ref().is_none_or(touches) {
                return true;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                return true;
            }
            effect = Some(fault.effect);
            fault.times == Times::Sticky
        });
        effect
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_strikes_its_kind_in_its_range_when_it_is_its_turn() {
        let mut faults = Faults::default();
        faults.add(Fault {
            range: Some(100..200),
            ..Fault::once(On::Write, 1)
        });
        assert_eq!(faults.strike(On::Read, &(0..500)), None);
        assert_eq!(faults.strike(On::Write, &(0..100)), None);
        assert_eq!(
            faults.strike(On::Write, &(150..151)),
            None,
            "the first is let through"
        );
        assert_eq!(faults.strike(On::Write, &(199..300)), Some(Effect::Error));
        assert_eq!(faults.strike(On::Write, &(150..151)), None, "once");
        faults.add(Fault::sticky(On::Flush, 0));
        for _ in 0..3 {
            assert_eq!(
                faults.strike(On::Flush, &(0..usize::MAX)),
                Some(Effect::Error)
            );
        }
    }
}
