//! Runs whose times are computed by hand, and what the command line refuses.

use super::*;
use clap::Parser;
use glintdb_core::clock::Clock;
use glintdb_flash::SystemClock;
use glintdb_flash::emulator::nand::Profile;

/// One channel of two LUNs without a bus. A row of 8 KiB takes 500 us, a read of it 50 us, an erase
/// 3,000 us; a chunk has four rows.
fn small() -> Setup {
    let text = "
        name = 'small'
        about = 'for tests'
        [geometry]
        channels = 1
        luns = 2
        planes = 2
        blocks = 8
        pages = 4
        page_bytes = 4096
        [times]
        read_us = [50]
        program_us = [500]
        erase_us = 3000
    ";
    Setup {
        width: 1,
        bytes: 4 * 8192,
        ..Setup::new(Profile::parse(text, "small").unwrap())
    }
}

fn elapsed_us(setup: &Setup) -> (u64, u64) {
    let outcome = simulate(setup, false).unwrap();
    (
        outcome.reads.elapsed_ns / 1000,
        outcome.writes.elapsed_ns / 1000,
    )
}

#[test]
fn a_reader_and_a_writer_alone_take_the_times_of_the_medium() {
    let writes = Setup {
        readers: 0,
        ..small()
    };
    assert_eq!(elapsed_us(&writes), (0, 3000 + 4 * 500));
    let reads = Setup {
        writers: 0,
        ..small()
    };
    assert_eq!(elapsed_us(&reads), (4 * 50, 0));
    // Two LUNs at once; a lane has both.
    let wide = Setup { width: 2, ..reads };
    assert_eq!(elapsed_us(&wide), (2 * 50, 0));
    // In calls of a row, one after the other, each goes to one LUN.
    let calls = Setup {
        call_bytes: Some(1),
        ..wide
    };
    assert_eq!(elapsed_us(&calls), (4 * 50, 0));
}

#[test]
fn isolated_reads_do_not_wait_for_writes() {
    let shared = Setup {
        bytes: 64 * 8192,
        ..small()
    };
    let isolated = Setup {
        layout: Layout::Isolated,
        ..shared.clone()
    };
    let (reads, writes) = elapsed_us(&isolated);
    assert_eq!((reads, writes), (64 * 50, 16 * 3000 + 64 * 500));
    let behind_writes = elapsed_us(&shared).0;
    assert!(behind_writes > 4 * reads, "{behind_writes}");
    let outcome = simulate(&isolated, true).unwrap();
    let read = |lun: usize| outcome.units[lun].reads;
    let programs = |lun: usize| outcome.units[lun].programs;
    assert_eq!((read(0), read(1), programs(0), programs(1)), (0, 64, 64, 0));
    assert_eq!(outcome.trace.len(), 64 + 64 + 16);
}

#[test]
fn writers_of_a_shared_block_take_turns_with_locks() {
    let own = Setup {
        readers: 0,
        writers: 2,
        width: 1,
        bytes: 8 * 8192,
        ..small()
    };
    // A block each, on a LUN each: the second erase begins when the first has ended.
    assert_eq!(elapsed_us(&own).1, 2 * 3000 + 4 * 500);
    let no_locks = Setup {
        locks: false,
        ..own.clone()
    };
    assert_eq!(elapsed_us(&no_locks).1, 3000 + 4 * 500);
    // One block of both LUNs, in calls of a row.
    let shared = Setup {
        blocks: Blocks::Shared,
        width: 2,
        call_bytes: Some(8192),
        ..own
    };
    assert_eq!(elapsed_us(&shared).1, 3000 + 8 * 500);
    let no_locks = Setup {
        locks: false,
        ..shared.clone()
    };
    assert_eq!(elapsed_us(&no_locks).1, 3000 + 4 * 500);
    for setup in [shared, no_locks] {
        let outcome = simulate(&setup, false).unwrap();
        assert_eq!(outcome.writes.bytes, 8 * 8192);
        assert_eq!(outcome.writes.latencies.summary().unwrap().calls, 8);
    }
}

#[test]
fn everything_is_read_and_written_and_equal_setups_give_equal_outcomes() {
    let profile = Profile::named("mqsim-mlc").unwrap();
    for blocks in [Blocks::Own, Blocks::Shared] {
        for locks in [true, false] {
            for (readers, writers, width, queue_depth) in [(3, 2, 8, 1), (1, 5, 3, 4)] {
                let setup = Setup {
                    readers,
                    writers,
                    width,
                    queue_depth,
                    blocks,
                    locks,
                    call_bytes: Some(100_000),
                    bytes: 30_000_000,
                    ..Setup::new(profile.clone())
                };
                let run = || simulate(&setup, true).unwrap();
                let (first, second) = (run(), run());
                assert_eq!(first.trace, second.trace);
                assert_eq!(first.units, second.units);
                for side in [&first.reads, &first.writes] {
                    // Parts are rounded up to units of 16 KiB.
                    assert!(
                        (30_000_000..30_200_000).contains(&side.bytes),
                        "{}",
                        side.bytes
                    );
                    assert_eq!(side.failed, 0);
                }
                let of = |is_read| first.ended.iter().filter(move |one| one.is_read == is_read);
                for (side, is_read) in [(&first.reads, true), (&first.writes, false)] {
                    let bytes: u64 = of(is_read).map(|one| one.bytes).sum();
                    assert_eq!(bytes, side.bytes);
                    let last = of(is_read).map(|one| one.at).max().unwrap();
                    // Writes end when the cache has them, and count when they are programmed.
                    assert_eq!(last.cmp(&side.elapsed_ns).is_eq(), is_read);
                    assert!(last <= side.elapsed_ns);
                }
                let programmed: u64 = first.units.iter().map(|unit| unit.programmed_bytes).sum();
                assert_eq!(programmed, first.writes.bytes);
            }
        }
    }
}

#[test]
fn failures_of_the_medium_are_counted_and_the_run_goes_on() {
    let mut setup = Setup {
        bytes: 400 * 8192,
        ..small()
    };
    setup.profile.geometry.blocks = 400;
    setup.profile.faults.read_ppm = 100_000;
    setup.profile.faults.program_ppm = 50_000;
    setup.profile.faults.erase_ppm = 200_000;
    let outcome = simulate(&setup, false).unwrap();
    assert!(
        (20..80).contains(&outcome.reads.failed),
        "{}",
        outcome.reads.failed
    );
    assert!(outcome.writes.failed > 20, "{}", outcome.writes.failed);
    assert!(outcome.failed_erases > 1);
    let failed = |side: &Side| side.failed * 8192;
    // Virtual blocks of one LUN: a command is a unit.
    for side in [&outcome.reads, &outcome.writes] {
        assert_eq!(side.bytes + failed(side), 400 * 8192);
    }
    assert!(
        FlashReport::new(&setup, &outcome)
            .row()
            .contains("failed: ")
    );
}

/// Figure 4 of the DapDB paper: reads become up to 2.53 times as fast, both together up to 2.2
/// times, and both together become faster in every configuration.
#[test]
fn isolation_speeds_reads_up_as_in_the_paper() {
    let rates = |layout, width, threads| {
        let setup = Setup {
            layout,
            width,
            readers: threads,
            writers: threads,
            bytes: 8 << 30,
            ..Setup::new(Profile::named("westlake-mlc").unwrap())
        };
        FlashReport::new(&setup, &simulate(&setup, false).unwrap())
    };
    for (width, threads) in [(64, 1), (64, 4), (32, 2), (32, 8)] {
        let (shared, isolated) = (
            rates(Layout::Shared, width, threads),
            rates(Layout::Isolated, width, threads),
        );
        let reads = isolated.read.mb_per_s / shared.read.mb_per_s;
        let both = isolated.total_mb_per_s / shared.total_mb_per_s;
        assert!((1.5..4.0).contains(&reads), "{width}, {threads}: {reads}");
        assert!((1.2..2.5).contains(&both), "{width}, {threads}: {both}");
    }
}

/// The wall's nanoseconds of a run in real time, and the run.
fn in_real_time(setup: &Setup) -> (u64, Paced) {
    let clock = SystemClock::new();
    let paced = run_in_real_time(setup).unwrap();
    (u64::try_from(clock.monotonic().as_nanos()).unwrap(), paced)
}

#[test]
fn a_run_in_real_time_waits_for_each_operation_and_counts_how_late() {
    let setup = Setup {
        readers: 0,
        ..small()
    };
    let (wall, paced) = in_real_time(&setup);
    let writes = &paced.outcome.writes;
    // An erase and four programs, one after the other.
    assert!(
        (5_000_000..=wall).contains(&writes.elapsed_ns),
        "{wall}, {writes:?}"
    );
    assert_eq!(paced.late.summary().unwrap().calls, 5);
    assert_eq!((writes.bytes, writes.failed), (4 * 8192, 0));
    // What came late makes the whole later by as much, at least.
    let latest = paced.late.summary().unwrap().max_us;
    let over = (writes.elapsed_ns - 5_000_000) as f64 / 1000.0;
    assert!(over >= latest * 0.98, "{over}, {latest}");
}

#[test]
fn workers_wait_at_the_same_time_in_real_time() {
    let mut setup = Setup {
        readers: 0,
        writers: 2,
        locks: false,
        ..small()
    };
    // Two LUNs, each with a writer: 300 ms together, and 600 one after the other.
    setup.profile.times.erase_us = 300_000.0;
    let (wall, paced) = in_real_time(&setup);
    assert!((300_000_000..550_000_000).contains(&wall), "{wall}");
    assert_eq!(paced.outcome.failed_erases, 0);
}

#[test]
fn every_kind_of_setup_does_in_real_time_what_was_computed() {
    for (readers, writers, blocks, locks, queue_depth) in [
        (2, 3, Blocks::Own, true, 1),
        (1, 3, Blocks::Shared, true, 2),
        (0, 4, Blocks::Shared, false, 3),
    ] {
        let setup = Setup {
            readers,
            writers,
            blocks,
            locks,
            queue_depth,
            width: 2,
            call_bytes: Some(16_384),
            bytes: 48 * 8192,
            ..small()
        };
        let computed = simulate(&setup, false).unwrap();
        let (_, paced) = in_real_time(&setup);
        for (ours, theirs) in [
            (&paced.outcome.reads, &computed.reads),
            (&paced.outcome.writes, &computed.writes),
        ] {
            assert_eq!(ours.bytes, theirs.bytes, "{setup:?}");
            assert_eq!(
                ours.latencies.summary().map(|l| l.calls),
                theirs.latencies.summary().map(|l| l.calls)
            );
        }
    }
}

#[test]
fn real_time_is_beside_the_computed_row() {
    let line = "--bytes 2m --width 8 --layout shared --real-time";
    let table = printed(line).unwrap();
    let rows: Vec<&str> = table.lines().skip(2).collect();
    assert_eq!(rows.len(), 3, "{table}");
    assert!(
        rows[0].starts_with("shared ") && rows[1].starts_with("real time "),
        "{table}"
    );
    assert!(rows[2].contains(" waits ended late by ") && rows[2].ends_with(" computed"));
    let json = printed(&format!("{line} --json")).unwrap();
    let object: serde_json::Value = serde_json::from_str(&json).unwrap();
    let (run, real) = (&object["runs"][0], &object["runs"][0]["real_time"]);
    assert_eq!(run["read"]["bytes"], real["read"]["bytes"]);
    assert!(real["late"]["calls"].as_u64().unwrap() > 0);
    let rate = |name: &str| real[name].as_f64().unwrap();
    assert!(rate("commands_per_s") > 0.0 && rate("computed_commands_per_s") > 0.0);
}

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    bench: FlashBenchArgs,
}

fn printed(line: &str) -> Result<String, String> {
    let words = std::iter::once("flash-bench").chain(line.split_whitespace());
    let program = Program::try_parse_from(words).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    let run = program.bench.run(&mut out, Looks::None);
    run.map_err(|error| error.to_string())?;
    Ok(String::from_utf8(out).unwrap())
}

#[test]
fn pairs_of_runs_have_a_row_with_their_ratio() {
    let table = printed("--bytes 100m --threads 1,2 --width 16,32").unwrap();
    assert_eq!(table.lines().count(), 2 + 4 * 3, "{table}");
    assert_eq!(table.matches("isolated / shared").count(), 4);
    assert_eq!(
        table,
        printed("--bytes 100m --threads 1,2 --width 16,32").unwrap()
    );
    let one = printed("--bytes 100m --layout isolated --readers 2").unwrap();
    assert_eq!(one.lines().count(), 3, "{one}");
    let json = printed("--bytes 100m --json").unwrap();
    let object: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(object["profile"]["name"], "westlake-mlc");
    assert_eq!(object["runs"].as_array().unwrap().len(), 2);
    assert!(object["runs"][1]["read"]["mb_per_s"].as_f64().unwrap() > 100.0);
}

#[test]
fn a_run_of_failures_only_is_an_io_error_behind_its_report() {
    let dir = tempfile::tempdir().unwrap();
    let run = |writers: u32, json: &str| {
        let mut profile = Profile::named("mqsim-mlc").unwrap();
        profile.faults.read_ppm = 1_000_000;
        let path = dir.path().join("failing.toml");
        std::fs::write(&path, profile.to_toml()).unwrap();
        let line = format!(
            "x --profile {} --bytes 10m --width 8 --layout shared --writers {writers} {json}",
            path.display()
        );
        let program = Program::try_parse_from(line.split_whitespace()).unwrap();
        let mut out = Vec::new();
        let result = program.bench.run(&mut out, Looks::None);
        (result, String::from_utf8(out).unwrap())
    };
    let (result, table) = run(0, "");
    let error = result.unwrap_err().downcast::<glintdb::Error>().unwrap();
    assert_eq!(error.kind(), glintdb::ErrorKind::Io);
    let text = error.to_string();
    assert!(text.contains("1 readers, 0 writers"), "{text}");
    assert!(table.contains("failed: "), "{table}");
    let (result, json) = run(0, "--json");
    assert!(result.is_err());
    let object: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(object["runs"][0]["read"]["bytes"], 0);
    // The writer's operations succeed.
    let (result, table) = run(1, "");
    assert!(result.is_ok() && table.contains("failed: "), "{table}");
}

#[test]
fn the_last_run_or_each_is_looked_at() {
    let words = "x --bytes 50m --threads 1,2".split_whitespace();
    let bench = Program::try_parse_from(words).unwrap().bench;
    let looked = |each: bool| {
        let mut seen = Vec::new();
        let mut look = |run: &Run<'_>| {
            let bytes: u64 = run.outcome.ended.iter().map(|one| one.bytes).sum();
            assert!(bytes >= 100_000_000 && !run.outcome.trace.is_empty());
            seen.push((run.number, run.of, run.setup.readers));
            Ok(())
        };
        let looks = match each {
            true => Looks::Each(&mut look),
            false => Looks::Last(&mut look),
        };
        bench.run(&mut std::io::sink(), looks).unwrap();
        seen
    };
    assert_eq!(looked(false), [(3, 4, 2)]);
    assert_eq!(looked(true), [(0, 4, 1), (1, 4, 1), (2, 4, 2), (3, 4, 2)]);
}

#[test]
fn profiles_are_listed_and_printed() {
    let list = printed("--list-profiles").unwrap();
    assert!(
        list.lines().count() >= 18 && list.contains("z-nand "),
        "{list}"
    );
    let toml = printed("--profile z-nand --print-profile").unwrap();
    let parsed = Profile::parse(&toml, "printed").unwrap();
    assert_eq!(parsed, Profile::named("z-nand").unwrap());
}

#[test]
fn nonsense_is_refused_in_words() {
    for (line, part) in [
        ("--profile westlake", "no profile \"westlake\"; there are:"),
        ("--profile no/such.toml", "no/such.toml"),
        ("--readers 0 --writers 0", "neither a reader nor a writer"),
        ("--readers 2000", "2000 readers; at most 1024"),
        ("--width 0", "a virtual block of 0 LUNs"),
        ("--width 129 --layout shared", "the device has 128"),
        ("--width 65", "have 64 of the 128 each"),
        ("--queue-depth 0", "queue depth of 0"),
        ("--bytes 0", "0 bytes"),
        ("--block-size 0", "calls of 0 bytes"),
        ("--bytes 900000000g", "at most 2^32 units"),
        ("--threads 2 --readers 1", "cannot be used with"),
        ("--layout mixed", "possible values: shared, isolated"),
        ("--bytes lots", "not a count"),
    ] {
        let error = printed(line).unwrap_err();
        assert!(error.contains(part), "{line}: {error}");
    }
}
