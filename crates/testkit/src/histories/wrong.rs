//! Wrong behaviour, put between the clients and the engine, to show that the checks would notice it.

/// What is done wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// A get gives what the key held before.
    StaleRead,
    /// A put is acknowledged and never done.
    LostWrite,
    /// A put is acknowledged before it is done.
    EarlyAcknowledgement,
    /// Compare-and-set writes without comparing.
    LostUpdate,
    /// The writes of a batch are done one after the other.
    HalfBatch,
    /// A snapshot shows what came later.
    TornSnapshot,
    /// A serializable transaction runs under snapshot isolation.
    WriteSkew,
}

impl Wrong {
    /// Every one, with its name on the command line.
    pub const ALL: [(&'static str, Wrong); 7] = [
        ("stale-read", Wrong::StaleRead),
        ("lost-write", Wrong::LostWrite),
        ("early-acknowledgement", Wrong::EarlyAcknowledgement),
        ("lost-update", Wrong::LostUpdate),
        ("half-batch", Wrong::HalfBatch),
        ("torn-snapshot", Wrong::TornSnapshot),
        ("write-skew", Wrong::WriteSkew),
    ];

    /// How seldom it happens.
    #[must_use]
    pub fn once_in(self) -> u64 {
        match self {
            Wrong::StaleRead | Wrong::LostWrite => 1_000,
            Wrong::EarlyAcknowledgement | Wrong::LostUpdate | Wrong::WriteSkew => 10,
            Wrong::HalfBatch | Wrong::TornSnapshot => 4,
        }
    }
}
