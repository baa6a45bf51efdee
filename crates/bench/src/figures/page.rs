//! The page of figures: Markdown from [`Figures`].

use std::fmt::Write as _;

use super::{FIGURES_FILE, Figures, Measured, Row, SMOKE_SCALE_MAX, Topic};
use crate::report::{bytes, grouped};

/// Share of the machine that other processes may take before a rate is marked.
const OTHERS_SHARE_MAX: f64 = 0.15;

/// Whole seconds from which on a line by second says something.
const SECONDS_MIN: usize = 4;

/// A picture that the page shows, for the program that draws it.
#[derive(Debug, Clone)]
pub struct Picture<'a> {
    /// Name of the file, beside the figures.
    pub file: String,
    /// What the picture shows, in words.
    pub alt: String,
    /// How it is drawn.
    pub kind: PictureKind,
    /// What it is drawn from.
    pub rows: Vec<&'a Row>,
}

/// How a [`Picture`] is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PictureKind {
    /// Each engine's rate as a multiple of the baseline's, a line for each row.
    Ratios,
    /// The rate in each second of the one row, a line for each engine.
    Seconds,
    /// Bytes written against space taken in the one row, a point for each engine.
    Amplification,
}

impl Figures {
    /// Returns the page, for the directory above that of the figures, which is called `dir`. `lost`
    /// is the hand-written section on the rows that are lost. It is in `dir`, so its links to `../`
    /// become links of the page's directory.
    #[must_use]
    pub fn page(&self, dir: &str, lost: Option<&str>) -> String {
        let mut out = String::from("# Figures\n\n");
        if let Some(warning) = self.scale_warning() {
            out += &wrap(&warning);
            out += "\n\n";
        }
        out += &format!(
            "`bench-peers report` makes this page from [{FIGURES_FILE}]({dir}/{FIGURES_FILE}). All \
             rows are of one run, at one\ncommit, on one machine.\n\n"
        );
        self.machine(&mut out);
        self.how_to_read(&mut out);
        self.overview(&mut out);
        if let Some(lost) = lost {
            out += "## What is lost, and why\n\n";
            out += &lost.trim_end().replace("](../", "](");
            out += "\n\n";
        }
        for topic in &self.topics {
            if self.rows_of(topic).next().is_some() {
                self.topic(&mut out, dir, topic);
            }
        }
        self.commands(&mut out);
        out
    }

    /// The pictures below a heading.
    #[must_use]
    pub fn pictures<'a>(&'a self, topic: &'a Topic) -> Vec<Picture<'a>> {
        let baseline = &self.run.baseline;
        let mut pictures = Vec::new();
        let rows = self.rows_of(topic);
        let compared: Vec<&Row> = rows
            .filter(|row| row.measured_by(baseline).is_some() && row.measured.len() > 1)
            .collect();
        if !compared.is_empty() {
            pictures.push(Picture {
                file: format!("{}.svg", slug(&topic.title)),
                alt: format!(
                    "{}: rates as multiples of {}'s",
                    topic.title,
                    self.run.name_of(baseline)
                ),
                kind: PictureKind::Ratios,
                rows: compared,
            });
        }
        let kinds = [
            (PictureKind::Seconds, "seconds", "rates by second"),
            (
                PictureKind::Amplification,
                "amplification",
                "bytes written against space",
            ),
        ];
        for row in self.rows_of(topic) {
            for (kind, suffix, what) in kinds {
                let mut seconds = row.measured.iter().map(|one| &one.report.ops_by_second);
                let wanted = match kind {
                    PictureKind::Seconds => {
                        row.label.sustained && seconds.any(|s| s.len() > SECONDS_MIN)
                    }
                    _ => row.label.curve && !row.measured.is_empty(),
                };
                if wanted {
                    pictures.push(Picture {
                        file: format!("{}-{suffix}.svg", row.name),
                        alt: format!("{}: {what}", row.name),
                        kind,
                        rows: vec![row],
                    });
                }
            }
        }
        pictures
    }

    /// A sentence for a run that is not of full size.
    #[must_use]
    pub fn scale_warning(&self) -> Option<String> {
        let scale = self.run.scale;
        if scale < SMOKE_SCALE_MAX {
            Some(format!(
                "**Smoke run at scale {scale}: it shows that the program works, and nothing else. Its rates mean nothing.**"
            ))
        } else if (scale - 1.0).abs() > f64::EPSILON {
            Some(format!(
                "**Run at scale {scale}: sizes, durations and memory limits are this part of those of a full run.**"
            ))
        } else {
            None
        }
    }

    fn machine(&self, out: &mut String) {
        let (run, machine) = (&self.run, &self.run.machine);
        let dirty = if run.dirty {
            ", with changes that are not committed"
        } else {
            ""
        };
        let engines = run.engines.iter();
        let engines: Vec<_> = engines
            .map(|engine| format!("{} {}", engine.name, engine.version))
            .collect();
        write_to(
            out,
            format_args!(
                "| | |\n|---|---|\n\
                 | processor | {}, {} cores |\n\
                 | memory | {} |\n\
                 | storage | {} on {} |\n\
                 | kernel | {} |\n\
                 | commit | {}{dirty} |\n\
                 | date | {} |\n\
                 | engines | {} |\n\n",
                machine.cpu,
                machine.cores,
                bytes(machine.memory_bytes),
                machine.file_system,
                machine.disk,
                machine.kernel,
                run.commit,
                run.date,
                engines.join(", "),
            ),
        );
    }

    fn how_to_read(&self, out: &mut String) {
        let run = &self.run;
        let (subject, baseline) = (run.name_of(&run.subject), run.name_of(&run.baseline));
        let repeat = match run.repeat {
            1 => "Each engine runs each row once, one engine after the other.".to_owned(),
            n => format!(
                "Each row is the median of {n} runs of each engine, the engines in turn. Rows that take long run once; \
                 the\n  [commands](#commands) name the number of runs of each row."
            ),
        };
        write_to(
            out,
            format_args!(
                "How to read the tables:\n\n\
                 - Rates are operations a second. *x {baseline}* is the rate divided by {baseline}'s in the same row. Ratios below\n  \
                   1 are bold: {subject} loses there. Differences below 20 % mean nothing.\n\
                 - {repeat}\n\
                 - Short rows use up the slack of the space bound (garbage that {subject} may keep before value GC has to follow\n  \
                   the writer), so the overview names the *sustained* row beside each: its rate is that of the second half of\n  \
                   the seconds measured.\n\
                 - CPU time, bytes written and space include flushing and compaction after the last operation; rates and\n  \
                   latencies do not. *write amp* is bytes written to storage for a byte put, *space amp* is disk use for a byte of\n  \
                   live keys and values at the end and, behind the slash, at the worst moment. *stall* is the longest time in which\n  \
                   no thread finished an operation.\n\
                 - *wr* marks the latencies of writes where the main operation is a read. † marks a run beside which other\n  \
                   processes took more than {:.0} % of the machine.\n\n",
                OTHERS_SHARE_MAX * 100.0
            ),
        );
    }

    /// One line a row: the subject beside the baseline and beside the fastest of the others.
    fn overview(&self, out: &mut String) {
        let run = &self.run;
        let (subject, baseline) = (run.name_of(&run.subject), run.name_of(&run.baseline));
        write_to(
            out,
            format_args!(
                "## Overview\n\n\
                 | row | records | {subject} ops/s | x {baseline} | fastest other | x fastest | \
                 p50/p99/p99.9/max µs: {subject}; {baseline} | CPU µs/op | sustained |\n\
                 |---|---:|---:|---:|---|---:|---|---|---|\n"
            ),
        );
        for topic in &self.topics {
            for row in self.rows_of(topic) {
                self.overview_line(out, row);
            }
        }
        out.push('\n');
    }

    fn overview_line(&self, out: &mut String, row: &Row) {
        let run = &self.run;
        let Some(own) = row.measured_by(&run.subject) else {
            return;
        };
        let theirs = row.measured_by(&run.baseline);
        let fastest = row.fastest_beside(&run.subject);
        let ratio = |to: Option<&str>| {
            let ratio = to.and_then(|to| row.ratio(&run.subject, to));
            ratio.map_or_else(|| "-".to_owned(), bold_if_lost)
        };
        let pair = |of: &dyn Fn(&Measured) -> String| match theirs {
            Some(theirs) => format!("{}; {}", of(own), of(theirs)),
            None => of(own),
        };
        write_to(
            out,
            format_args!(
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
                row.label.title,
                grouped(own.report.num as f64),
                rate(row, own),
                ratio(Some(&run.baseline)),
                fastest.unwrap_or("-"),
                ratio(fastest),
                pair(&|one| one.report.latency.brief()),
                pair(&|one| format!("{:.1}", one.report.cpu_us_per_op)),
                self.beside(row),
            ),
        );
    }

    /// The sustained row beside a short one, with its ratio.
    fn beside(&self, row: &Row) -> String {
        let run = &self.run;
        let Some(name) = &row.label.beside else {
            return if row.label.sustained { "itself" } else { "" }.to_owned();
        };
        let Some(long) = self.row(name) else {
            return format!("`{name}`, not measured");
        };
        let ratio = long.ratio(&run.subject, &run.baseline);
        format!(
            "[`{name}`](#{}): {}",
            slug(&long.label.topic),
            ratio.map_or_else(|| "-".to_owned(), bold_if_lost)
        )
    }

    fn topic(&self, out: &mut String, dir: &str, topic: &Topic) {
        write_to(out, format_args!("## {}\n\n", topic.title));
        if !topic.about.is_empty() {
            write_to(out, format_args!("{}\n\n", wrap(&topic.about)));
        }
        for picture in self.pictures(topic) {
            let (alt, file) = (picture.alt, picture.file);
            write_to(out, format_args!("![{alt}]({dir}/{file})\n\n"));
        }
        if self.rows_of(topic).any(|row| !row.measured.is_empty()) {
            write_to(
                out,
                format_args!(
                    "| row | engine | ops/s | x {} | p50/p99/p99.9/max µs | CPU µs/op | write amp | space amp | stall ms | all runs |\n\
                     |---|---|---:|---:|---|---:|---:|---:|---:|---|\n",
                    self.run.name_of(&self.run.baseline)
                ),
            );
            for row in self.rows_of(topic) {
                for (place, measured) in row.measured.iter().enumerate() {
                    self.measured_line(out, row, measured, place == 0);
                }
            }
            out.push('\n');
        }
        if self.rows_of(topic).any(|row| !row.opened.is_empty()) {
            self.opened(out, topic);
        }
    }

    fn measured_line(&self, out: &mut String, row: &Row, measured: &Measured, first: bool) {
        let report = &measured.report;
        let mut latency = report.latency.brief();
        if let Some(writes) = &report.write_latency {
            latency += &format!(" wr {}", writes.brief());
        }
        let optional = |x: Option<f64>| x.map_or_else(|| "-".to_owned(), |x| format!("{x:.2}"));
        let space = match (report.space_amp, report.space_amp_max) {
            (Some(end), Some(most)) => format!("{end:.2}/{most:.2}"),
            (end, _) => optional(end),
        };
        let (least, most) = (measured.ops_per_s_min, measured.ops_per_s_max);
        let all = match (row.label.sustained, measured.runs) {
            (true, _) => format!("{} in the whole run", grouped(report.ops_per_s)),
            (false, 1) => "one".to_owned(),
            (false, _) => format!("{} to {}", grouped(least), grouped(most)),
        };
        write_to(
            out,
            format_args!(
                "| {} | {} | {} | {} | {latency} | {:.1} | {} | {space} | {:.1} | {all} |\n",
                if first { &row.label.title } else { "" },
                report.engine,
                rate(row, measured),
                optional(row.ratio(&report.engine, &self.run.baseline)),
                report.cpu_us_per_op,
                optional(report.write_amp_host),
                report.longest_stall_ms,
            ),
        );
    }

    fn opened(&self, out: &mut String, topic: &Topic) {
        write_to(
            out,
            format_args!(
                "| row | engine | open, ms | x {} | all runs | first get, µs | records found |\n\
                 |---|---|---:|---:|---|---:|---:|\n",
                self.run.name_of(&self.run.baseline)
            ),
        );
        for row in self.rows_of(topic) {
            let baseline = row
                .opened
                .iter()
                .find(|one| one.engine == self.run.baseline);
            for (place, one) in row.opened.iter().enumerate() {
                write_to(
                    out,
                    format_args!(
                        "| {} | {} | {:.1} | {} | {:.1} to {:.1} | {:.0} | {} of {} |\n",
                        if place == 0 { &row.label.title } else { "" },
                        one.engine,
                        one.open_ms,
                        baseline.map_or_else(
                            || "-".to_owned(),
                            |other| format!("{:.2}", one.open_ms / other.open_ms)
                        ),
                        one.open_ms_min,
                        one.open_ms_max,
                        one.first_read_us,
                        grouped(one.found as f64),
                        grouped(one.records as f64),
                    ),
                );
            }
        }
        out.push('\n');
    }

    fn commands(&self, out: &mut String) {
        *out += "## Commands\n\n\
                 Each command measures one row, with the data set freshly filled. `bench-peers report` measures all of them;\n\
                 the column *seconds* is the time that the row took in this run.\n\n\
                 | row | name | runs | seconds | command |\n|---|---|---:|---:|---|\n";
        for topic in &self.topics {
            for row in self.rows_of(topic) {
                let measured = row.measured.iter().map(|one| one.runs);
                let runs = measured.chain(row.opened.iter().map(|one| one.runs)).min();
                write_to(
                    out,
                    format_args!(
                        "| {} | `{}` | {} | {:.0} | `{}` |\n",
                        row.label.title,
                        row.name,
                        runs.unwrap_or(0),
                        row.seconds,
                        row.command
                    ),
                );
            }
        }
    }
}

/// The rate as a cell shows it, with what makes it doubtful.
pub(super) fn rate(row: &Row, measured: &Measured) -> String {
    let report = &measured.report;
    let mut text = grouped(row.rate(measured));
    if let (Some(per_s), "readwhilewriting") = (report.writes_per_s, report.workload.as_str()) {
        text += &format!(" (+{} wr)", grouped(per_s));
    }
    if report.others_cpu_share > OTHERS_SHARE_MAX {
        text += " †";
    }
    if !report.is_correct() {
        text += " **WRONG ANSWERS**";
    }
    text
}

fn bold_if_lost(ratio: f64) -> String {
    match ratio < 1.0 {
        true => format!("**{ratio:.2}**"),
        false => format!("{ratio:.2}"),
    }
}

/// The anchor that a heading gets.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter_map(|c| match c {
        ' ' | '-' => Some('-'),
        c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

/// Prose in lines of at most 120 characters.
pub(super) fn wrap(text: &str) -> String {
    const COLUMNS_MAX: usize = 120;
    let mut out = String::new();
    let mut columns = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if columns > 0 && columns + 1 + length > COLUMNS_MAX {
            out.push('\n');
            columns = 0;
        } else if columns > 0 {
            out.push(' ');
            columns += 1;
        }
        out += word;
        columns += length;
    }
    out
}

fn write_to(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _infallible = out.write_fmt(text);
}
