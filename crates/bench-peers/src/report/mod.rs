//! `bench-peers report`: measures the rows of a fixed matrix and writes figures, pictures and page.
//!
//! Every row is a `run` or `recovery` of this program ([`matrix`] has their arguments); nothing is
//! measured here. The figures are saved after each row, so that a run that is cut off can go on.

mod machine;
mod matrix;
mod render;
mod scale;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use clap::Parser as _;
use glintdb_bench::figures::{FIGURES_FILE, Figures, Measured, Row, Run};
use glintdb_bench::{Report, Result};

use crate::args::{Command, Program, ReportArgs, RunArgs};
use crate::preset::in_this_build;
use crate::{matrix as runs, recovery, table};

/// Seconds of a run beside what the row says: starting, opening, counting, closing.
const OVERHEAD_SECONDS: f64 = 0.5;

/// Seconds until a memory limit is in place.
const LIMIT_SECONDS: f64 = 6.0;

/// Bytes a second at which a data set is filled, on average over the engines.
const FILL_BYTES_PER_SECOND: f64 = 120e6;

/// A row with its command at the scale of this run.
struct Planned {
    row: matrix::Row,
    /// The command as the page shows it.
    text: String,
    command: Command,
}

/// Measures rows and renders them; or lists them, or renders a file that is there. Returns whether
/// every engine answered rightly.
///
/// # Errors
/// If the arguments do not fit what is there, a file cannot be written, or a row could not be
/// measured; the other rows are measured all the same.
pub(crate) fn run(args: &ReportArgs) -> Result<bool> {
    if let Some(file) = &args.render {
        render::render(file)?;
        return Ok(true);
    }
    let plan = plan(args)?;
    if args.list {
        for planned in &plan {
            let line = (
                planned.row.name,
                minutes(estimate(&plan, planned, args.scale)),
            );
            writeln!(
                std::io::stdout(),
                "{:<30} {:>5} min  {}",
                line.0,
                line.1,
                planned.text
            )?;
        }
        return say(&announcement(&plan, args)).map(|()| true);
    }
    let path = args.out.join(FIGURES_FILE);
    let mut figures = begin(args, &path)?;
    let rest = remaining(&plan, &figures, args.resume);
    say(&announcement(&plan, args))?;
    if rest.len() < plan.len() {
        say(&format!(
            "{} of them are measured already",
            plan.len() - rest.len()
        ))?;
    }
    fs::create_dir_all(&args.out)?;
    let mut all_correct = true;
    let mut failed = Vec::new();
    let mut data: Vec<RunArgs> = Vec::new();
    for (place, planned) in rest.iter().enumerate() {
        let name = planned.row.name;
        let left = rest[place..]
            .iter()
            .map(|next| estimate(&plan, next, args.scale))
            .sum();
        say(&format!(
            "row {} of {}: {name}, about {} minutes left",
            place + 1,
            rest.len(),
            minutes(left)
        ))?;
        if let Command::Run(next) = &planned.command {
            remove_other_data(&mut data, next)?;
        }
        match measure(planned) {
            Ok((row, correct)) => {
                all_correct &= correct;
                insert(&mut figures, row);
                figures.save(&path)?;
            }
            Err(error) => {
                say(&format!("{name}: {error}"))?;
                failed.push(name);
            }
        }
    }
    for args in &data {
        runs::remove_data(args)?;
    }
    render::render(&path)?;
    if failed.is_empty() {
        Ok(all_correct)
    } else {
        Err(format!(
            "not measured: {} (--resume tries these again)",
            failed.join(", ")
        )
        .into())
    }
}

/// The rows that were asked for, at the scale that was asked for.
fn plan(args: &ReportArgs) -> Result<Vec<Planned>> {
    if let Some(unknown) = args
        .only
        .iter()
        .find(|name| !matrix::rows().any(|row| row.name == **name))
    {
        let names: Vec<_> = matrix::rows().map(|row| row.name).collect();
        return Err(format!("no row `{unknown}`; there are {}", names.join(" ")).into());
    }
    let wanted = matrix::rows()
        .filter(|row| args.only.is_empty() || args.only.iter().any(|name| name == row.name));
    wanted.map(|row| Planned::new(row, args)).collect()
}

impl Planned {
    fn new(row: matrix::Row, args: &ReportArgs) -> Result<Self> {
        let scaled = scale::scaled(row.args, args.scale);
        let (subcommand, rest) = scaled.split_once(' ').ok_or("a row without arguments")?;
        let engines = in_this_build("--engines", row.engines);
        let repeat = if row.once { 1 } else { args.repeat };
        let text = format!("bench-peers {subcommand} --engines {engines} {rest} --repeat {repeat}");
        let command = Program::try_parse_from(text.split(' '))?.command;
        let command = match command {
            Command::Run(mut run) => {
                // A row that reads leaves its data set to the next one; one that writes does not.
                (run.keep, run.fresh) = (true, true);
                run.dir.clone_from(&args.dir);
                run.check()?;
                Command::Run(run)
            }
            Command::Recovery(mut recovery) => {
                recovery.dir.clone_from(&args.dir);
                Command::Recovery(recovery)
            }
            other => return Err(format!("a row is no {other:?}").into()),
        };
        Ok(Self { row, text, command })
    }

    /// Runs of all engines together.
    fn runs(&self) -> usize {
        match &self.command {
            Command::Run(args) => args.engines.len() * args.repeat,
            Command::Recovery(args) => args.engines.len() * args.repeat,
            _ => 0,
        }
    }
}

/// The figures to go on with, or new ones.
fn begin(args: &ReportArgs, path: &Path) -> Result<Figures> {
    let (commit, dirty) = machine::commit();
    let run = Run {
        machine: machine::machine(&args.dir),
        commit,
        dirty,
        date: machine::today(),
        scale: args.scale,
        repeat: args.repeat,
        baseline: matrix::BASELINE.to_owned(),
        subject: matrix::SUBJECT.to_owned(),
        engines: matrix::engines(),
    };
    if !path.exists() {
        let (topics, rows) = (matrix::topics(), Vec::new());
        return Ok(Figures { run, topics, rows });
    }
    if !args.resume && args.only.is_empty() {
        return Err(format!(
            "{} is there already: --resume measures the rows that it lacks, --only ROW measures a row again",
            path.display()
        )
        .into());
    }
    let figures = Figures::load(path)?;
    if !figures.run.same_as(&run) {
        return Err(format!(
            "{} is of another commit, machine, scale or number of repetitions: give another --out",
            path.display()
        )
        .into());
    }
    Ok(figures)
}

/// The rows to measure: all, or with `resume` those that the figures lack.
fn remaining<'a>(plan: &'a [Planned], figures: &Figures, resume: bool) -> Vec<&'a Planned> {
    let lacks = |planned: &&Planned| !resume || figures.row(planned.row.name).is_none();
    plan.iter().filter(lacks).collect()
}

/// Measures a row; the second answer is whether every engine answered rightly.
fn measure(planned: &Planned) -> Result<(Row, bool)> {
    let began = Instant::now();
    let name = planned.row.name;
    let mut row = Row {
        name: name.to_owned(),
        label: matrix::label(name).ok_or("a row without a label")?,
        command: planned.text.clone(),
        seconds: 0.0,
        measured: Vec::new(),
        opened: Vec::new(),
    };
    let correct = match &planned.command {
        Command::Run(args) => {
            let mut last: Vec<Report> = Vec::new();
            let correct = runs::run(args, &mut |reports| {
                reports.clone_into(&mut last);
                say(&table::table(&args.engines, reports))
            })?;
            row.measured = Measured::of(&last);
            correct
        }
        Command::Recovery(args) => {
            let (opened, correct) = recovery::measure_all(args, args.value_size[0])?;
            row.opened = opened;
            correct
        }
        other => return Err(format!("a row is no {other:?}").into()),
    };
    row.seconds = began.elapsed().as_secs_f64();
    Ok((row, correct))
}

/// Puts a row in its place, that of the matrix, instead of an earlier one of its name.
fn insert(figures: &mut Figures, row: Row) {
    let place = |name: &str| matrix::rows().position(|row| row.name == name);
    figures.rows.retain(|old| old.name != row.name);
    figures.rows.push(row);
    figures.rows.sort_by_key(|row| place(&row.name));
}

/// Removes the data sets that the next row does not use, and notes those that it does.
fn remove_other_data(data: &mut Vec<RunArgs>, next: &RunArgs) -> Result<()> {
    let (same, other): (Vec<_>, Vec<_>) = data.drain(..).partition(|args| shares_data(args, next));
    for args in &other {
        runs::remove_data(args)?;
    }
    *data = same;
    data.push(next.clone());
    Ok(())
}

fn shares_data(one: &RunArgs, other: &RunArgs) -> bool {
    let of = |args: &RunArgs| (args.num, args.key_size, args.value_size.clone(), args.seed);
    of(one) == of(other)
}

/// Seconds that a row takes, filling its data set included.
fn estimate(plan: &[Planned], planned: &Planned, scale: f64) -> f64 {
    let runs = planned.runs() as f64 * (planned.row.seconds * scale + OVERHEAD_SECONDS);
    let Command::Run(args) = &planned.command else {
        return runs;
    };
    let first = args.workloads.first();
    if first.is_some_and(|workload| workload.is_fill()) {
        return runs;
    }
    let place = plan
        .iter()
        .position(|other| other.row.name == planned.row.name);
    let before = place.and_then(|place| plan.get(place.checked_sub(1)?));
    let leaves_data = before.is_some_and(|before| match &before.command {
        Command::Run(before) => {
            shares_data(before, args) && !before.workloads.iter().any(|workload| workload.writes())
        }
        _ => false,
    });
    let bytes = (args.num * (args.key_size + args.value_size[0]) as u64) as f64;
    let fill = args.engines.len() as f64 * (bytes / FILL_BYTES_PER_SECOND + OVERHEAD_SECONDS);
    let limit = args.limit_mb.map_or(0.0, |_| LIMIT_SECONDS);
    runs + limit + if leaves_data { 0.0 } else { fill }
}

fn announcement(plan: &[Planned], args: &ReportArgs) -> String {
    let runs: usize = plan.iter().map(Planned::runs).sum();
    let seconds = plan
        .iter()
        .map(|planned| estimate(plan, planned, args.scale))
        .sum();
    format!(
        "{} rows, {runs} runs (engines of each row, times {} or, where a row takes long, once) at scale {}: about {} minutes",
        plan.len(),
        args.repeat,
        args.scale,
        minutes(seconds)
    )
}

fn minutes(seconds: f64) -> String {
    format!("{:.1}", seconds / 60.0)
}

fn say(line: &str) -> Result<()> {
    Ok(writeln!(std::io::stderr(), "{line}")?)
}

#[cfg(test)]
mod tests;
