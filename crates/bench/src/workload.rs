//! The workloads by name: those of db_bench and of YCSB, and loads that users of other engines have
//! reported trouble with.

use std::str::FromStr;

/// Records of the queue in [`Workload::Queue`].
pub(crate) const QUEUE_RECORDS: u64 = 1000;
/// Most records of a range in [`Workload::RangeDelete`].
pub(crate) const RANGE_RECORDS_MAX: u64 = 10;

/// One measured phase. The doc comments say which operations it is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Workload {
    /// Every record once, in ascending key order.
    FillSeq,
    /// Every record once, in random order.
    FillRandom,
    /// New values for uniformly chosen records.
    Overwrite,
    /// Gets of uniformly chosen records.
    ReadRandom,
    /// Gets of keys that do not exist.
    ReadMissing,
    /// Requests of `multiget_size` uniformly chosen records; counted by key.
    MultiReadRandom,
    /// Seek to a uniformly chosen record and read `scan_length` records forward.
    SeekRandom,
    /// Gets as `readrandom` while one more thread overwrites as fast as it can.
    ReadWhileWriting,
    /// `read_percent` gets, the rest overwrites, in every thread.
    ReadRandomWriteRandom,
    /// Deletes of all records (or the first `ops`), each once, in random order.
    DeleteRandom,
    /// Compacts everything there is, once, on the calling thread and whatever threads the engine has; counted in records.
    Compact,
    /// The same, and values that lie apart from keys are put in the order of these.
    CompactValues,
    /// Gets every record once, those of the load in random order, to fill caches before what is measured next.
    Warmup,
    /// A queue: puts records in key order, and takes the first one that is there when there are
    /// more than 1,000.
    Queue,
    /// A window: puts records in key order, and deletes the record that is a quarter of all behind.
    Window,
    /// Half gets of uniformly chosen records, half deletions of ranges of 1 to
    /// 10 records at uniformly chosen places.
    RangeDelete,
    /// YCSB load: every record once, in random order.
    Load,
    /// YCSB A: half reads, half updates, zipfian.
    A,
    /// YCSB A, while one more thread compacts everything once as [`CompactValues`] does.
    ///
    /// [`CompactValues`]: Workload::CompactValues
    AWhileCompacting,
    /// YCSB B: 95 % reads, 5 % updates, zipfian.
    B,
    /// YCSB C: reads, zipfian.
    C,
    /// YCSB D: 95 % reads of the latest records, 5 % inserts. Reads are at a zipfian distance from what was inserted
    /// last, and behind that from what `load` or `fillrandom` loaded last.
    D,
    /// YCSB E: 95 % scans of 1 to 100 records from a zipfian start, 5 % inserts.
    E,
    /// YCSB F: half reads, half read-modify-writes, zipfian.
    F,
    /// Puts every record once, in random order, under keys of `key_size` bytes that share all but
    /// their last 20; then gets of uniformly chosen ones, a tenth of which are scans instead. Its
    /// records are not those of the other workloads.
    LongKeys,
    /// Puts every record once, in random order, into one of `keyspaces` keyspaces; then gets of
    /// uniformly chosen ones. Its records are not those of the other workloads.
    ManyKeyspaces,
}

impl Workload {
    /// All of them, in the order in which help lists them.
    pub const ALL: [Self; 26] = [
        Self::FillSeq,
        Self::FillRandom,
        Self::Overwrite,
        Self::ReadRandom,
        Self::ReadMissing,
        Self::MultiReadRandom,
        Self::SeekRandom,
        Self::ReadWhileWriting,
        Self::ReadRandomWriteRandom,
        Self::DeleteRandom,
        Self::Compact,
        Self::CompactValues,
        Self::Warmup,
        Self::Load,
        Self::A,
        Self::AWhileCompacting,
        Self::B,
        Self::C,
        Self::D,
        Self::E,
        Self::F,
        Self::Queue,
        Self::Window,
        Self::RangeDelete,
        Self::LongKeys,
        Self::ManyKeyspaces,
    ];

    /// The name that [`FromStr`] takes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::FillSeq => "fillseq",
            Self::FillRandom => "fillrandom",
            Self::Overwrite => "overwrite",
            Self::ReadRandom => "readrandom",
            Self::ReadMissing => "readmissing",
            Self::MultiReadRandom => "multireadrandom",
            Self::SeekRandom => "seekrandom",
            Self::ReadWhileWriting => "readwhilewriting",
            Self::ReadRandomWriteRandom => "readrandomwriterandom",
            Self::DeleteRandom => "deleterandom",
            Self::Compact => "compact",
            Self::CompactValues => "compactvalues",
            Self::Warmup => "warmup",
            Self::Queue => "queue",
            Self::Window => "window",
            Self::RangeDelete => "rangedelete",
            Self::Load => "load",
            Self::A => "a",
            Self::AWhileCompacting => "awhilecompacting",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
            Self::E => "e",
            Self::F => "f",
            Self::LongKeys => "longkeys",
            Self::ManyKeyspaces => "manykeyspaces",
        }
    }

    /// Whether it writes every record of an empty or full database once.
    #[must_use]
    pub fn is_fill(self) -> bool {
        matches!(self, Self::FillSeq | Self::FillRandom | Self::Load)
    }

    /// Whether it puts records of its own and then reads them.
    #[must_use]
    pub fn is_apart(self) -> bool {
        matches!(self, Self::LongKeys | Self::ManyKeyspaces)
    }

    /// Whether it is one call of the engine, and made of no operations.
    #[must_use]
    pub fn is_compaction(self) -> bool {
        matches!(self, Self::Compact | Self::CompactValues)
    }

    /// Whether it deletes records, which gets may then miss.
    #[must_use]
    pub fn deletes(self) -> bool {
        self.goes_through_once() && self != Self::Warmup || self == Self::RangeDelete
    }

    /// Whether it goes through the records once, whatever time it takes.
    #[must_use]
    pub fn goes_through_once(self) -> bool {
        matches!(
            self,
            Self::DeleteRandom | Self::Queue | Self::Window | Self::Warmup
        )
    }

    /// Whether it changes the database, so that its bytes are counted after [`settle`](crate::Store::settle).
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(
            self,
            Self::ReadRandom
                | Self::ReadMissing
                | Self::MultiReadRandom
                | Self::SeekRandom
                | Self::Warmup
                | Self::C
        )
    }
}

impl std::fmt::Display for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim().to_ascii_lowercase();
        let short = text
            .strip_prefix("ycsb")
            .map_or(text.as_str(), |rest| rest.trim_start_matches(['-', '_']));
        Self::ALL
            .into_iter()
            .find(|workload| workload.name() == short)
            .ok_or_else(|| {
                let names: Vec<_> = Self::ALL.iter().map(|w| w.name()).collect();
                format!("unknown workload `{text}`: one of {}", names.join(" "))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_to_themselves() {
        for workload in Workload::ALL {
            assert_eq!(workload.name().parse(), Ok(workload));
        }
        assert_eq!("ycsb-a".parse(), Ok(Workload::A));
        assert_eq!("YCSBe".parse(), Ok(Workload::E));
        let error = "fillrandon".parse::<Workload>().unwrap_err();
        assert!(error.contains("fillrandom"), "{error}");
    }
}
