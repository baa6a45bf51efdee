//! `flash-bench`: readers and writers on a modelled flash device, and a picture of its LUNs.

mod picture;
mod plot;

use crate::args::FlashBench;
use crate::exit::Failure;
use glintdb_bench::flash::{Outcome, Setup};
use plot::Plot;

pub(super) fn run(arguments: &FlashBench) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    let bench = &arguments.bench;
    let path = match &arguments.plot {
        Some(path) if !bench.list_profiles && !bench.print_profile => path,
        _ => return Ok(bench.run(&mut out, None)?),
    };
    // Wrong arguments are refused before the picture's file is there.
    bench.setups()?;
    let mut plot = Plot::open(path)?;
    let mut look = |setup: &Setup, outcome: &Outcome| {
        let picture = picture::draw(setup, outcome).map_err(|error| error.to_string())?;
        plot.write(&picture)
    };
    Ok(bench.run(&mut out, Some(&mut look))?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use glintdb_flash::emulator::nand::{PROFILE_NAMES, Profile};
    use std::fmt::Write;

    const BEGIN: &str = "<!-- profiles:begin -->\n";
    const END: &str = "<!-- profiles:end -->";

    fn times(times: &[f64]) -> String {
        let text: Vec<String> = times.iter().map(f64::to_string).collect();
        text.join(" / ")
    }

    fn table() -> String {
        let mut table = String::from(
            "| profile | channels x LUNs x planes | page x pages x blocks | read | program | erase | bus MB/s | assumed |\n\
             |---|---|---|---|---|---|---|---|\n",
        );
        for name in PROFILE_NAMES {
            let profile = Profile::named(name).unwrap();
            let (geometry, of) = (&profile.geometry, &profile.times);
            let bus = of.bus_mb_s.map_or("-".into(), |rate| rate.to_string());
            let assumed: Vec<String> = (profile.assumed.iter())
                .map(|name| format!("`{name}`"))
                .collect();
            writeln!(
                table,
                "| `{name}` | {} x {} x {} | {} KiB x {} x {} | {} | {} | {} | {bus} | {} |",
                geometry.channels,
                geometry.luns,
                geometry.planes,
                geometry.page_bytes / 1024,
                geometry.pages,
                geometry.blocks,
                times(&of.read_us),
                times(&of.program_us),
                of.erase_us,
                assumed.join(", ")
            )
            .unwrap();
        }
        table
    }

    #[test]
    fn the_page_has_the_table_of_profiles() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/flash.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (before, rest) = page.split_once(BEGIN).unwrap();
        let (_, behind) = rest.split_once(END).unwrap();
        let made = format!("{before}{BEGIN}{}{END}{behind}", table());
        if std::env::var_os("GLINTDB_BLESS").is_some() {
            std::fs::write(path, &made).unwrap();
        }
        let page = std::fs::read_to_string(path).unwrap();
        assert!(
            page == made,
            "docs/flash.md is not up to date; GLINTDB_BLESS=1 updates it"
        );
    }
}
