//! `advise`: predicts what each kind and shape of index costs, as tables and as a plot.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "predicted sizes, shown to people"
)]

use crate::args::Advise;
use crate::exit::Failure;
use crate::open;
use crate::output::{self, size_text};
use glintdb::advise::{Advice, Prediction, Workload, advise};
use glintdb::{Db, Error, IndexKind, KeyspaceOptions, Options};
use std::path::Path;

/// Records of a database that are read to learn the mean size of its keys and values.
const SAMPLE_RECORDS: usize = 2000;

pub(super) fn run(arguments: &Advise) -> Result<(), Failure> {
    let mut options = Options::default().create_if_missing(false);
    if let Some(memory) = arguments.memory {
        options.set("memory_budget_bytes", &memory.to_string())?;
    }
    let mut keyspace = KeyspaceOptions::default();
    // As the table shows them.
    let mut records = None;
    let (key, value) = (arguments.key_size as f64, arguments.value_size as f64);
    let workload = match (&arguments.dir, arguments.records, arguments.capacity) {
        (Some(dir), ..) => {
            open::present(dir)?;
            let db = options.clone().open(dir)?;
            let workload;
            (workload, records, keyspace) = look_at(&db, &arguments.keyspace)?;
            db.close()?;
            workload
        }
        (None, Some(records), _) => Workload::new(records as f64, key, value),
        (None, None, Some(capacity)) => {
            Workload::of_capacity(capacity as f64, key, value, &options)
        }
        (None, None, None) => {
            return Err(Failure::Usage(
                "advise needs a workload: a database's directory, --capacity or --records"
                    .to_owned(),
            ));
        }
    };
    let mut workload = workload.mix(arguments.read_percent, arguments.scan_percent);
    workload.scan_records = arguments.scan_records.into();
    let advice = advise(&workload, &options, &keyspace)?;
    if let Some(path) = &arguments.plot {
        let picture = draw(&advice)
            .map_err(|error| Error::invalid(format!("it cannot be drawn: {error}")))?;
        std::fs::write(path, picture)
            .map_err(|error| Error::io(format!("write {}", path.display()), error))?;
    }
    if arguments.json {
        let index = ("index", advice.best.options.index_name().to_owned());
        let options = options_to_set(&advice.best).into_iter();
        let set: serde_json::Map<_, _> = std::iter::once(index)
            .chain(options)
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        let advice = serde_json::json!({ "workload": workload, "advice": advice, "set": set });
        return output::json(&advice);
    }
    let records = records.unwrap_or_else(|| format!("{:.0}", workload.records));
    heading(&workload, &records, &options)?;
    shapes(&advice)?;
    kinds(&advice)?;
    output::line(&command(arguments, &keyspace, &advice.best))
}

/// The sizes of a keyspace, its number of records in words, and its options.
fn look_at(db: &Db, name: &str) -> Result<(Workload, Option<String>, KeyspaceOptions), Failure> {
    let keyspace = db.keyspace(name)?;
    let (mut records, mut keys, mut values) = (0.0, 0.0, 0.0);
    for record in keyspace.iter().take(SAMPLE_RECORDS) {
        let (key, value) = record?;
        records += 1.0;
        keys += key.len() as f64;
        values += value.len() as f64;
    }
    if records == 0.0 {
        return Err(Error::invalid(format!("keyspace {name:?} holds no record")).into());
    }
    let all = keyspace.count()?;
    let mut workload = Workload::new(all.keys() as f64, keys / records, values / records);
    let stats = db.stats();
    if let Some(own) = stats.keyspaces.iter().find(|own| own.name == name)
        && own.index_entries > 0
    {
        workload.entry_bytes = Some(own.index_bytes as f64 / own.index_entries as f64);
    }
    Ok((workload, Some(all.to_string()), keyspace.options()))
}

/// The workload in a line.
fn heading(workload: &Workload, records: &str, options: &Options) -> Result<(), Failure> {
    output::line(&format!(
        "{records} records of {:.0} + {:.0} bytes, {} of memory; {} % lookups, {} % scans of {}, {} % writes",
        workload.key_bytes,
        workload.value_bytes,
        size_text(options.memory_budget_bytes as u64),
        workload.read_percent,
        workload.scan_percent,
        workload.scan_records,
        100.0 - workload.read_percent - workload.scan_percent,
    ))
}

/// The best LSM trees of each height.
fn shapes(advice: &Advice) -> Result<(), Failure> {
    let size = |bytes: f64| size_text(bytes as u64);
    let Some(best) = lsm(advice) else {
        return output::line("\nNo LSM tree fits the memory.");
    };
    output::line(
        "\n  levels_max  size_ratio  pinned_levels   index reads, most   reads, mean   written a byte: log + gc + index   pinned memory         cache   device a operation",
    )?;
    for shape in rows(advice, best) {
        let mark = if shape == best { '*' } else { ' ' };
        let lsm = &shape.options.lsm;
        let line = format!(
            "{mark} {:>10}  {:>10}  {:>13}  {:>18}  {:>12.2}  {:>15.2} + {:>4.2} + {:>5.2}  {:>14}  {:>12}  {:>16.1} µs",
            lsm.levels_max,
            lsm.size_ratio,
            lsm.pinned_levels,
            shape.reads_max,
            shape.reads_mean,
            shape.write_amplification_log,
            shape.write_amplification_gc,
            shape.write_amplification_index,
            size(shape.pinned_bytes),
            size(shape.cache_bytes),
            shape.device_us,
        );
        output::line(&line)?;
    }
    output::line(
        "\n* is the best LSM tree: of the shapes within 1 % of the least device time, the one with the fewest index reads, then the fewest writes.",
    )?;
    output::line(&format!(
        "Filters and fences take {}, memtables and the ring {}. size_ratio is an upper limit for the step from level to level, as far as levels_max allows.",
        size(best.filter_bytes),
        size(best.memtable_bytes)
    ))
}

/// The best index of each kind, and why one is recommended.
fn kinds(advice: &Advice) -> Result<(), Failure> {
    output::line(
        "\n           index   index reads, most   reads, mean   written a byte   in memory     a lookup       a scan      a write   device a operation",
    )?;
    for kind in &advice.kinds {
        let mark = if *kind == advice.best { '*' } else { ' ' };
        let in_memory = kind.filter_bytes + kind.pinned_bytes;
        let written = kind.write_amplification_log
            + kind.write_amplification_gc
            + kind.write_amplification_index;
        output::line(&format!(
            "{mark} {:>14}  {:>18}  {:>12.2}  {:>15.2}  {:>10}  {:>8.1} µs  {:>8.1} µs  {:>8.1} µs  {:>16.1} µs",
            kind.options.index_name(),
            kind.reads_max,
            kind.reads_mean,
            written,
            size_text(in_memory as u64),
            kind.lookup_us,
            kind.scan_us,
            kind.write_us,
            kind.device_us,
        ))?;
    }
    output::line(&format!("\n* is recommended. {}.", advice.reason))
}

/// The command that gives the keyspace the recommended index.
fn command(arguments: &Advise, keyspace: &KeyspaceOptions, best: &Prediction) -> String {
    let dir = arguments.dir.as_deref().unwrap_or(Path::new("./data"));
    let (dir, name) = (output::shell_word(dir), &arguments.keyspace);
    let options: Vec<String> = (options_to_set(best).iter())
        .map(|(name, value)| format!(" --option {name}={value}"))
        .collect();
    let options = options.concat();
    let (now, index) = (keyspace.index_name(), best.options.index_name());
    match (now == index, best.options.index) {
        (true, IndexKind::Lsm) => {
            format!("glintdb keyspaces --dir {dir} --change {name}{options}")
        }
        (true, _) => format!("Keyspace {name:?} has this index already."),
        (false, _) => format!("glintdb convert --dir {dir} {name} --index {index}{options}"),
    }
}

/// The best LSM tree. `None`: none fits the memory.
fn lsm(advice: &Advice) -> Option<&Prediction> {
    let mut kinds = advice.kinds.iter();
    kinds.find(|kind| kind.options.index == IndexKind::Lsm)
}

/// The options of a keyspace, besides `index`, that lead to this index.
fn options_to_set(best: &Prediction) -> Vec<(&'static str, String)> {
    let lsm = &best.options.lsm;
    match best.options.index {
        IndexKind::Lsm => vec![
            ("levels_max", lsm.levels_max.to_string()),
            ("size_ratio", lsm.size_ratio.to_string()),
            ("pinned_levels", lsm.pinned_levels.to_string()),
        ],
        _ => Vec::new(),
    }
}

/// The rows of the table: for each height the fastest shape; for the best shape every number of
/// pinned levels.
fn rows<'a>(advice: &'a Advice, best: &Prediction) -> Vec<&'a Prediction> {
    let mut rows: Vec<&Prediction> = Vec::new();
    for shape in advice.shapes.iter().filter(|shape| shape.fits) {
        if shape.level_bytes == best.level_bytes {
            rows.push(shape);
        } else if shape.levels != best.levels {
            match rows.iter_mut().find(|row| row.levels == shape.levels) {
                Some(row) if shape.device_us < row.device_us => *row = shape,
                Some(_) => {}
                None => rows.push(shape),
            }
        }
    }
    rows.sort_by_key(|shape| (shape.levels, shape.pinned_levels));
    rows
}

/// The picture of figure 4 of "LSM-Tree-Based Key-Value SSDs", of LSM trees: for each number of
/// pinned levels a line through all heights.
fn draw(advice: &Advice) -> Result<String, Box<dyn std::error::Error>> {
    use plotters::prelude::*;
    let written = |shape: &Prediction| shape.write_amplification_index;
    // Of each height the shape that is written least.
    let mut least: Vec<&Prediction> = Vec::new();
    for shape in advice.shapes.iter().filter(|shape| shape.fits) {
        let same = |other: &&mut &Prediction| {
            (other.levels, other.pinned_levels) == (shape.levels, shape.pinned_levels)
        };
        match least.iter_mut().find(same) {
            Some(other) if written(shape) < written(other) => *other = shape,
            Some(_) => {}
            None => least.push(shape),
        }
    }
    let all_written = || least.iter().map(|shape| written(shape));
    let x_min = all_written().fold(f64::MAX, f64::min) * 0.8;
    let x_max = all_written().fold(0.0, f64::max) * 1.4;
    let y_max = least.iter().map(|shape| shape.reads_max).max().unwrap_or(1);
    let mut picture = String::new();
    let root = SVGBackend::with_string(&mut picture, (900, 520)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(16)
        .x_label_area_size(48)
        .y_label_area_size(56)
        .build_cartesian_2d(
            (x_min..x_max).log_scale(),
            0.0..f64::from(y_max) * 1.1 + 0.5,
        )?;
    chart
        .configure_mesh()
        .max_light_lines(0)
        .x_desc("bytes that the index writes for a byte stored")
        .y_desc("index reads of a lookup, at most (at each point: levels below level 0)")
        .draw()?;
    let pinned_max = least
        .iter()
        .map(|shape| shape.pinned_levels)
        .max()
        .unwrap_or(0);
    for pinned in 0..=pinned_max {
        let line: Vec<_> = least
            .iter()
            .filter(|shape| shape.pinned_levels == pinned)
            .collect();
        let at = |shape: &Prediction| (written(shape), f64::from(shape.reads_max));
        let colour = Palette99::pick(pinned as usize).to_rgba();
        chart
            .draw_series(LineSeries::new(line.iter().map(|shape| at(shape)), &colour))?
            .label(format!("{pinned} levels pinned"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
        chart.draw_series(
            line.iter()
                .map(|shape| Circle::new(at(shape), 3, colour.filled())),
        )?;
        for shape in line {
            let (x, y) = at(shape);
            let label = format!("{}", shape.levels);
            chart.draw_series(std::iter::once(Text::new(
                label,
                (x * 1.012, y),
                ("sans-serif", 12),
            )))?;
        }
    }
    if let Some(best) = lsm(advice) {
        let at = (written(best), f64::from(best.reads_max));
        chart
            .draw_series(std::iter::once(Circle::new(at, 8, BLACK.stroke_width(2))))?
            .label("the best LSM tree")
            .legend(|(x, y)| Circle::new((x + 8, y), 6, BLACK.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE)
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    drop(chart);
    drop(root);
    Ok(picture)
}
