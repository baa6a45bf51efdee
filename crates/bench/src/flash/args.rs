//! The command line of `flash-bench`.

use super::real_time::run_in_real_time;
use super::report::FlashReport;
use super::setup::{Blocks, Layout, Setup};
use super::simulation::{Outcome, simulate};
use crate::args::parse_count;
use crate::store::Result;
use clap::Args;
use glintdb_flash::emulator::nand::{PROFILE_NAMES, Profile};
use std::io::Write;

/// A run that has ended, with what each LUN did.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// What was run.
    pub setup: &'a Setup,
    /// What came of it.
    pub outcome: &'a Outcome,
    /// Its number, from 0 on.
    pub number: usize,
    /// Number of runs.
    pub of: usize,
}

/// A function that looks at a run.
pub type Look<'a> = dyn FnMut(&Run<'_>) -> Result<()> + 'a;

/// Which runs are looked at. Those keep what each LUN did, which takes memory.
pub enum Looks<'a> {
    /// None.
    None,
    /// The last one.
    Last(&'a mut Look<'a>),
    /// Each one, when it has ended.
    Each(&'a mut Look<'a>),
}

/// Arguments of `glintdb flash-bench`.
#[derive(Debug, Clone, Args)]
pub struct FlashBenchArgs {
    /// Device: a name (see --list-profiles) or a TOML file, whose name has a `/` or ends in .toml.
    #[arg(long, default_value = "westlake-mlc")]
    pub profile: String,
    /// Number of readers; several, comma-separated, give a run each.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    pub readers: Vec<u32>,
    /// Number of writers; several, comma-separated, give a run each.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    pub writers: Vec<u32>,
    /// Number of readers and of as many writers, comma-separated.
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["readers", "writers"])]
    pub threads: Vec<u32>,
    /// LUNs of a virtual block, comma-separated [default: 64, or half of the device's if these are
    /// fewer].
    #[arg(long, value_delimiter = ',')]
    pub width: Vec<u32>,
    /// Which LUNs readers and writers use: all of them (shared), or a half each (isolated);
    /// comma-separated. With both, the ratio of their rates is printed.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "shared,isolated"
    )]
    pub layout: Vec<Layout>,
    /// Whether each writer has a virtual block of its own, or all append to one.
    #[arg(long, value_enum, default_value = "own")]
    pub blocks: Blocks,
    /// Hold no locks. With them, as in oc_bench, one writer at a time takes and erases a virtual
    /// block, and a shared one is written by one call at a time.
    #[arg(long)]
    pub no_locks: bool,
    /// Bytes of a call, such as 128k, rounded up to rows; k, m and g are powers of 1000 [default: a
    /// virtual block].
    #[arg(long, value_parser = parse_count)]
    pub block_size: Option<u64>,
    /// Commands in flight of each thread of a call. Each has as many LUNs as a command may address.
    #[arg(long, default_value_t = 1)]
    pub queue_depth: u32,
    /// Bytes that all readers read together, and that all writers write, rounded up to rows.
    #[arg(long, default_value = "20g", value_parser = parse_count)]
    pub bytes: u64,
    /// Do each run again by the machine's clock, with a thread for each reader and writer, and show
    /// both beside each other. It takes as long as the device would.
    #[arg(long)]
    pub real_time: bool,
    /// List the built-in profiles.
    #[arg(long)]
    pub list_profiles: bool,
    /// Print the profile as TOML, the form of the file that --profile takes.
    #[arg(long, conflicts_with = "list_profiles")]
    pub print_profile: bool,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}

impl FlashBenchArgs {
    /// The runs that are asked for, in order.
    ///
    /// # Errors
    /// There is no such profile, or a value is out of its limits.
    pub fn setups(&self) -> Result<Vec<Setup>> {
        let profile = Profile::find(&self.profile)?;
        let first = Setup::new(profile);
        let widths = match self.width.is_empty() {
            true => vec![first.width],
            false => self.width.clone(),
        };
        let threads: Vec<(u32, u32)> = match self.threads.is_empty() {
            false => self.threads.iter().map(|count| (*count, *count)).collect(),
            true => (self.readers.iter())
                .flat_map(|readers| self.writers.iter().map(|writers| (*readers, *writers)))
                .collect(),
        };
        let mut setups = Vec::new();
        for width in widths {
            for (readers, writers) in &threads {
                for layout in &self.layout {
                    let setup = Setup {
                        readers: *readers,
                        writers: *writers,
                        width,
                        layout: *layout,
                        blocks: self.blocks,
                        locks: !self.no_locks,
                        call_bytes: self.block_size,
                        queue_depth: self.queue_depth,
                        bytes: self.bytes,
                        ..first.clone()
                    };
                    setup.check()?;
                    setups.push(setup);
                }
            }
        }
        Ok(setups)
    }

    /// Does the runs, or prints profiles, as the arguments say. Writes each row to `out` as soon as
    /// its run has ended, and then has `looks` look at it.
    ///
    /// # Errors
    /// An argument is wrong, or `out` cannot be written. Errors of `looks`. An I/O error after all
    /// has been written, if all operations of a run have failed.
    pub fn run(&self, out: &mut dyn Write, mut looks: Looks<'_>) -> Result<()> {
        if self.list_profiles {
            return Ok(list_profiles(out)?);
        }
        if self.print_profile {
            return Ok(write!(out, "{}", Profile::find(&self.profile)?.to_toml())?);
        }
        let setups = self.setups()?;
        let profile = &setups.first().ok_or("nothing is to be run")?.profile;
        if !self.json {
            writeln!(out, "{}: {}", profile.name, profile.about)?;
            writeln!(out, "{}", FlashReport::header())?;
        }
        let mut reports: Vec<FlashReport> = Vec::new();
        for (number, setup) in setups.iter().enumerate() {
            let is_last = number + 1 == setups.len();
            let look = match &mut looks {
                Looks::Last(look) if is_last => Some(look),
                Looks::Each(look) => Some(look),
                _ => None,
            };
            let outcome = simulate(setup, look.is_some())?;
            let mut report = FlashReport::new(setup, &outcome);
            if self.real_time {
                report = report.with_real_time(setup, &run_in_real_time(setup)?);
            }
            if !self.json {
                writeln!(out, "{}", report.row())?;
                if let Some(shared) = reports.last().filter(|last| is_pair(last, &report)) {
                    writeln!(out, "{}", ratio(shared, &report))?;
                }
                out.flush()?;
            }
            reports.push(report);
            if let Some(look) = look {
                look(&Run {
                    setup,
                    outcome: &outcome,
                    number,
                    of: setups.len(),
                })?;
            }
        }
        if self.json {
            let object = serde_json::json!({
                "profile": profile,
                "locks": !self.no_locks,
                "queue_depth": self.queue_depth,
                "runs": reports,
            });
            serde_json::to_writer_pretty(&mut *out, &object)?;
            writeln!(out)?;
        }
        match reports.iter().find(|report| !report.has_succeeded()) {
            None => Ok(()),
            Some(report) => Err(all_failed(&profile.name, report).into()),
        }
    }
}

/// The I/O error of a run of which nothing came.
fn all_failed(profile: &str, report: &FlashReport) -> glintdb::Error {
    let run = format!(
        "run on {profile} with {} readers, {} writers and virtual blocks of {} LUNs",
        report.readers, report.writers, report.width
    );
    glintdb::Error::io(run, std::io::Error::other("all operations have failed"))
}

/// Whether two runs differ in nothing but that the second one is isolated.
fn is_pair(first: &FlashReport, second: &FlashReport) -> bool {
    let of = |report: &FlashReport| (report.width, report.readers, report.writers);
    (first.layout, second.layout) == (Layout::Shared, Layout::Isolated) && of(first) == of(second)
}

/// A row with the rates of the second run divided by those of the first.
fn ratio(shared: &FlashReport, isolated: &FlashReport) -> String {
    let times = |part: fn(&FlashReport) -> f64| match part(shared) > 0.0 {
        true => format!("{:.2}x", part(isolated) / part(shared)),
        false => "-".into(),
    };
    format!(
        "{:<31} {:>10} {:>10} {:>10}",
        "isolated / shared",
        times(|report| report.read.mb_per_s),
        times(|report| report.write.mb_per_s),
        times(|report| report.total_mb_per_s)
    )
}

fn list_profiles(out: &mut dyn Write) -> std::io::Result<()> {
    for name in PROFILE_NAMES {
        let Ok(profile) = Profile::named(name) else {
            continue;
        };
        let geometry = &profile.geometry;
        writeln!(
            out,
            "{name:<16} {:>3} channels x {:>2} LUNs x {} planes, {:>5} GB  {}",
            geometry.channels,
            geometry.luns,
            geometry.planes,
            geometry.bytes() / 1_000_000_000,
            profile.about
        )?;
    }
    Ok(())
}
