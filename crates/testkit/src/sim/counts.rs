//! What was tried.

use crate::report::Report;

/// What a run, or many, tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Histories run.
    pub histories: u64,
    /// Operations in them.
    pub operations: u64,
    /// Operations of volumes that change something, before which crashes were tried.
    pub steps: u64,
    /// Crashes tried: each is one step and one choice of survivors.
    pub crash_points: u64,
    /// Of these, in the middle of recovering from another one.
    pub nested: u64,
    /// Of these, left an image identical to one checked before; its state was compared, the image not opened again.
    pub identical: u64,
    /// Of these, kills of the process; the others are power cuts.
    pub kills: u64,
    /// Of these, images taken beside running background threads.
    pub racing: u64,
    /// Checkpoints opened after a crash.
    pub checkpoints: u64,
    /// Errors injected.
    pub errors_injected: u64,
}

impl Counts {
    /// Name and number of each.
    #[must_use]
    pub fn named(&self) -> [(&'static str, u64); 10] {
        [
            ("histories", self.histories),
            ("operations", self.operations),
            ("I/O steps", self.steps),
            ("crash points", self.crash_points),
            ("crash points in recovery", self.nested),
            ("crash points with an image seen before", self.identical),
            ("crash points that are kills", self.kills),
            ("crash points beside background threads", self.racing),
            ("checkpoints opened after a crash", self.checkpoints),
            ("I/O errors injected", self.errors_injected),
        ]
    }

    /// Adds what another run tried.
    pub fn add(&mut self, other: &Counts) {
        self.histories += other.histories;
        self.operations += other.operations;
        self.steps += other.steps;
        self.crash_points += other.crash_points;
        self.nested += other.nested;
        self.identical += other.identical;
        self.kills += other.kills;
        self.racing += other.racing;
        self.checkpoints += other.checkpoints;
        self.errors_injected += other.errors_injected;
    }

    /// Adds everything to a report.
    pub fn report(&self, report: &mut Report) {
        for (name, number) in self.named() {
            report.count(name, number);
        }
    }
}
