//! Figures of the DapDB paper.

#[cfg(virtual_time)]
pub(super) mod engine;

use super::{Comparison, Figure, Line, Row};
use crate::flash::{FlashReport, Layout, Setup, simulate};
use crate::store::Result;
use glintdb_flash::emulator::nand::Profile;

/// LUNs of a virtual block. With more than 64, readers and writers cannot be isolated.
const WIDTHS: [u32; 2] = [32, 64];
/// Readers, and as many writers.
const THREADS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Rates that isolation multiplies.
struct Gain {
    width: u32,
    threads: u32,
    reads: f64,
    writes: f64,
    both: f64,
}

/// One of the rates.
type Part = fn(&Gain) -> f64;

fn gain(width: u32, threads: u32, bytes: u64) -> Result<Gain> {
    let run = |layout| -> Result<FlashReport> {
        let setup = Setup {
            layout,
            width,
            readers: threads,
            writers: threads,
            bytes,
            ..Setup::new(Profile::named("westlake-mlc")?)
        };
        Ok(FlashReport::new(&setup, &simulate(&setup, false)?))
    };
    let (shared, isolated) = (run(Layout::Shared)?, run(Layout::Isolated)?);
    Ok(Gain {
        width,
        threads,
        reads: isolated.read.mb_per_s / shared.read.mb_per_s,
        writes: isolated.write.mb_per_s / shared.write.mb_per_s,
        both: isolated.total_mb_per_s / shared.total_mb_per_s,
    })
}

/// Figure 4: rates of isolated readers and writers, divided by those of shared LUNs.
pub(in crate::repro) fn figure_4(figure: &Figure, quick: bool) -> Result<Comparison> {
    let bytes = if quick { 8_000_000_000 } else { 20_000_000_000 };
    let mut gains = Vec::new();
    for width in WIDTHS {
        for threads in THREADS {
            gains.push(gain(width, threads, bytes)?);
        }
    }
    let most = |part: Part, of: &dyn Fn(&Gain) -> bool| {
        let parts = gains.iter().filter(|gain| of(gain)).map(part);
        parts.fold(0.0, f64::max)
    };
    let least_both = gains.iter().map(|gain| gain.both).fold(f64::MAX, f64::min);
    let writes_of = |threads| most(|gain| gain.writes, &|gain| gain.threads == threads);
    let rows = vec![
        Row::ratio(
            "reads with two readers and two writers, better width",
            2.53,
            most(|gain| gain.reads, &|gain| gain.threads == 2),
        ),
        Row::ratio(
            "sum of both rates, most",
            2.2,
            most(|gain| gain.both, &|_| true),
        ),
        Row::more_than("sum of both rates, least of all runs", 1.0, least_both),
        Row::more_than("writes with one reader and one writer", 1.0, writes_of(1)),
        Row::less_than(
            "gain of writes with 64 threads, by that with one",
            1.0,
            writes_of(64) / writes_of(1),
        ),
    ];
    let parts: [(&str, Part); 3] = [
        ("reads", |gain| gain.reads),
        ("writes", |gain| gain.writes),
        ("both", |gain| gain.both),
    ];
    let lines = WIDTHS.iter().flat_map(|width| {
        let gains = &gains;
        parts.iter().map(move |(name, part)| Line {
            name: format!("{name}, {width} LUNs"),
            points: (gains.iter())
                .filter(|gain| gain.width == *width)
                .map(|gain| (f64::from(gain.threads), part(gain)))
                .collect(),
        })
    });
    Ok(Comparison {
        paper: figure.paper,
        figure: figure.number,
        title: figure.title,
        notes: vec![
            format!(
                "Rates of readers and writers with half of the LUNs each, divided by their rates on all LUNs, on the \
                 modelled drive of the paper (profile `westlake-mlc`), {} GB each. One row: `glintdb flash-bench \
                 --width 64 --threads 2`.",
                bytes / 1_000_000_000
            ),
            "As in `oc_bench`: a call reads or writes a whole virtual block, each writer has one of its own, and a \
             lock that all writers share is held while one is taken and erased."
                .into(),
            "The paper's text gives the figures of the first two rows, and says of the others that all runs become \
             faster, writes too, and that the gain of writes falls with the number of threads."
                .into(),
        ],
        rows,
        axes: ("readers, and as many writers", "rate, isolated / shared"),
        x_doubles: true,
        lines: lines.collect(),
    })
}
