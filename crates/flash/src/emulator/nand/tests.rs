//! Schedules computed by hand, what the medium refuses, and the device against figures of a real
//! one (`docs/flash.md`).

use super::*;
use glintdb_core::{Error, ErrorKind};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const MS: Ns = 1_000_000;

/// Two channels of two LUNs; every time is easy to add up. A row is two pages of 4 KiB: 8 us each
/// over the bus.
fn small() -> Profile {
    let text = "
        name = 'small'
        about = 'for tests'
        [geometry]
        channels = 2
        luns = 2
        planes = 2
        blocks = 4
        pages = 4
        page_bytes = 4096
        [times]
        read_us = [50, 60]
        program_us = [500, 900]
        erase_us = 3000
        bus_mb_s = 512
    ";
    Profile::parse(text, "small").unwrap()
}

fn chunk(lun: u32, block: u32) -> Chunk {
    Chunk { lun, block }
}

fn program(lun: u32, block: u32, row: u32) -> NandOp {
    let chunk = chunk(lun, block);
    NandOp::Program { chunk, row }
}

fn read(lun: u32, offset: u64, bytes: u64) -> NandOp {
    let chunk = chunk(lun, 0);
    NandOp::Read {
        chunk,
        offset,
        bytes,
    }
}

fn done_us(device: &mut Device, op: NandOp, at_us: u64) -> u64 {
    device.submit(op, at_us * 1000).unwrap().done / 1000
}

#[test]
fn programs_share_the_bus_of_a_channel() {
    let mut device = Device::new(small()).unwrap();
    // LUNs 0 and 2 are on channel 0, LUN 1 is on channel 1.
    assert_eq!(done_us(&mut device, program(0, 0, 0), 0), 16 + 500);
    assert_eq!(done_us(&mut device, program(2, 0, 0), 0), 16 + 16 + 500);
    assert_eq!(done_us(&mut device, program(1, 0, 0), 0), 16 + 500);
    // The LUN is busy; then an upper page.
    assert_eq!(done_us(&mut device, program(0, 0, 1), 100), 516 + 16 + 900);
}

#[test]
fn reads_sense_pages_and_then_use_the_bus() {
    let mut device = Device::new(small()).unwrap();
    assert_eq!(done_us(&mut device, read(0, 0, 4096), 0), 50 + 8);
    // Both planes at once; the second row has upper pages, and is sensed when the first has left.
    assert_eq!(
        done_us(&mut device, read(1, 0, 16384), 0),
        50 + 16 + 60 + 16
    );
    // Sensed at 150; the bus is free.
    assert_eq!(done_us(&mut device, read(2, 0, 4096), 100), 150 + 8);
    // A read that is sensed earlier takes the bus before one that came before it.
    assert_eq!(done_us(&mut device, read(0, 8192, 4096), 200), 260 + 8);
    assert_eq!(done_us(&mut device, read(2, 0, 4096), 200), 250 + 8);
}

#[test]
fn a_read_waits_for_a_program_and_an_erase() {
    let mut device = Device::new(small()).unwrap();
    device.submit(program(0, 0, 0), 0).unwrap();
    assert_eq!(done_us(&mut device, read(0, 0, 4096), 20), 516 + 58);
    device
        .submit(NandOp::Erase { chunk: chunk(0, 1) }, MS)
        .unwrap();
    assert_eq!(done_us(&mut device, read(0, 0, 4096), 1000), 4000 + 58);
    let stats = device.units().next().unwrap();
    assert_eq!((stats.reads, stats.programs, stats.erases), (2, 1, 1));
    assert_eq!(stats.read_wait_ns, (496 + 3000) * 1000);
    assert_eq!(stats.write_wait_ns, stats.read_wait_ns);
    assert_eq!(stats.busy_ns, (516 + 58 + 3000 + 58) * 1000);
    assert_eq!((stats.read_bytes, stats.programmed_bytes), (8192, 8192));
}

#[test]
fn a_read_is_done_before_a_program_whose_data_is_on_its_way() {
    let mut profile = small();
    // 100 us for a row.
    profile.link.write_mb_s = Some(81.92);
    let mut device = Device::new(profile).unwrap();
    assert_eq!(done_us(&mut device, program(0, 0, 0), 0), 100 + 16 + 500);
    assert_eq!(done_us(&mut device, read(0, 0, 4096), 10), 10 + 58);
    // It would not be over when the program begins.
    assert_eq!(done_us(&mut device, read(0, 0, 4096), 50), 616 + 58);
}

#[test]
fn a_read_interrupts_a_program_that_may_be_suspended() {
    let mut profile = small();
    profile.suspend.program_us = Some(20.0);
    let mut device = Device::new(profile).unwrap();
    let first = device.submit(program(0, 0, 0), 0).unwrap();
    let second = device.submit(program(0, 0, 1), 0).unwrap();
    assert_eq!((first.done / 1000, second.done / 1000), (516, 516 + 916));
    // Suspended at 100, read until 178, then the program goes on.
    assert_eq!(done_us(&mut device, read(0, 0, 4096), 100), 120 + 58);
    assert_eq!(device.done(&first) / 1000, 516 + 78);
    assert_eq!(device.done(&second) / 1000, 516 + 916 + 78);
    // While another read is under way, a read waits for it.
    assert_eq!(done_us(&mut device, read(0, 0, 4096), 150), 178 + 20 + 58);
    // An erase is not interrupted, and comes behind what was delayed.
    let erase = NandOp::Erase { chunk: chunk(0, 1) };
    let free = 516 + 916 + 78 + 78;
    assert_eq!(done_us(&mut device, erase, 200), free + 3000);
    assert_eq!(
        done_us(&mut device, read(0, 0, 4096), free + 1),
        free + 3000 + 58
    );
    assert_eq!(device.units().next().unwrap().suspends, 2);
    // In its transfer, a program cannot be interrupted.
    device.submit(program(1, 0, 0), 10 * MS).unwrap();
    assert_eq!(
        done_us(&mut device, read(1, 0, 4096), 10_001),
        10_016 + 20 + 58
    );
}

#[test]
fn planes_read_alone_if_the_profile_says_so() {
    let mut profile = small();
    profile.rules.planes_read_alone = true;
    let mut device = Device::new(profile).unwrap();
    assert_eq!(done_us(&mut device, read(0, 0, 4096), 0), 58);
    // The other plane: only the bus is shared.
    assert_eq!(done_us(&mut device, read(0, 4096, 4096), 0), 58 + 8);
    assert_eq!(done_us(&mut device, read(0, 0, 4096), 0), 58 + 58);
    assert_eq!(done_us(&mut device, program(0, 0, 0), 0), 116 + 16 + 500);
}

#[test]
fn a_cache_acknowledges_programs_until_it_is_full() {
    let mut profile = small();
    profile.cache.bytes = 2 * 8192;
    profile.link.write_mb_s = Some(819.2);
    let mut device = Device::new(profile.clone()).unwrap();
    let mut at = |lun| device.submit(program(lun, 0, 0), 0).unwrap();
    // 10 us each over the link.
    let [first, second, third] = [at(0), at(1), at(3)];
    assert_eq!((first.acknowledged, first.done), (10_000, 526_000));
    assert_eq!((second.acknowledged, second.done), (20_000, 536_000));
    // It has to wait for the first one.
    assert_eq!(third.acknowledged, 526_000);
    assert_eq!(third.done, 526_000 + 16_000 + 500_000 + 10_000 - 10_000);
    assert_eq!(device.flushed(1000), third.done);
    profile.cache.power_loss_protection = true;
    let mut device = Device::new(profile).unwrap();
    device.submit(program(0, 0, 0), 0).unwrap();
    assert_eq!(device.flushed(1000), 1000);
}

#[test]
fn the_link_limits_the_device() {
    let mut profile = small();
    profile.link.read_mb_s = Some(40.96);
    let mut device = Device::new(profile).unwrap();
    // 100 us each over the link, overlapped with the bus.
    assert_eq!(done_us(&mut device, read(0, 0, 4096), 0), 100);
    assert_eq!(done_us(&mut device, read(1, 0, 4096), 0), 200);
    assert_eq!(done_us(&mut device, read(2, 0, 4096), 0), 300);
}

fn refused(device: &mut Device, op: NandOp, part: &str) {
    let error = device.submit(op, 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains(part), "{error}");
}

#[test]
fn the_medium_refuses_what_flash_does_not_allow() {
    let mut profile = small();
    profile.rules.open_chunks_of_lun_max = 2;
    profile.rules.open_chunks_max = 3;
    profile.rules.erases_free = false;
    profile.rules.erases_open = false;
    profile.rules.rows_unreadable = 1;
    let mut device = Device::new(profile).unwrap();
    refused(
        &mut device,
        program(0, 0, 1),
        "out of order, the next one is 0",
    );
    device.submit(program(0, 0, 0), 0).unwrap();
    refused(
        &mut device,
        program(0, 0, 0),
        "out of order, the next one is 1",
    );
    refused(
        &mut device,
        NandOp::Erase { chunk: chunk(0, 0) },
        "it is open",
    );
    refused(
        &mut device,
        NandOp::Erase { chunk: chunk(0, 1) },
        "it is free",
    );
    device.submit(program(0, 1, 0), 0).unwrap();
    refused(
        &mut device,
        program(0, 2, 0),
        "2 chunks are open, 2 of them of this LUN",
    );
    device.submit(program(1, 0, 0), 0).unwrap();
    refused(&mut device, program(2, 0, 0), "3 chunks are open");
    assert_eq!(device.state(chunk(0, 0)).unwrap(), ChunkState::Open);
    assert_eq!(device.readable_rows(chunk(0, 0)).unwrap(), 0);
    for row in 1..4 {
        device.submit(program(0, 0, row), 0).unwrap();
    }
    assert_eq!(device.state(chunk(0, 0)).unwrap(), ChunkState::Closed);
    assert_eq!(device.readable_rows(chunk(0, 0)).unwrap(), 4);
    refused(&mut device, program(0, 0, 4), "must be erased before row 4");
    device
        .submit(NandOp::Erase { chunk: chunk(0, 0) }, 0)
        .unwrap();
    assert_eq!(device.state(chunk(0, 0)).unwrap(), ChunkState::Free);
    assert_eq!(device.wear(chunk(0, 0)).unwrap(), 1);
    device.retire(chunk(0, 0)).unwrap();
    refused(&mut device, program(0, 0, 0), "offline");
    refused(&mut device, read(0, 0, 4096), "offline");
    refused(&mut device, NandOp::Erase { chunk: chunk(0, 0) }, "offline");
    // The other chunk of this LUN is open still, so there is room for one.
    device.submit(program(0, 2, 0), 0).unwrap();
    refused(
        &mut device,
        program(4, 0, 0),
        "the device has 4 LUNs of 4 blocks",
    );
    refused(&mut device, read(1, 100, 4096), "whole sectors");
    refused(&mut device, read(1, 0, 0), "whole sectors");
    refused(&mut device, read(1, 7 * 4096, 8192), "reaches beyond");
}

#[test]
fn reads_of_unwritten_pages_take_as_long() {
    let mut device = Device::new(small()).unwrap();
    assert_eq!(device.state(chunk(0, 0)).unwrap(), ChunkState::Free);
    assert_eq!(done_us(&mut device, read(0, 0, 4096), 0), 58);
}

#[test]
fn the_medium_fails_as_often_as_the_profile_says_and_the_same_way_each_time() {
    let mut profile = small();
    profile.geometry.blocks = 4000;
    profile.faults = Faults {
        seed: 7,
        factory_bad_ppm: 100_000,
        read_ppm: 50_000,
        program_ppm: 50_000,
        erase_ppm: 50_000,
        endurance: 0,
    };
    let run = || {
        let mut device = Device::new(profile.clone()).unwrap();
        let (mut bad, mut failed, mut after) = (0, [0_u32; 3], 0);
        for block in 0..4000 {
            let chunk = chunk(1, block);
            if device.state(chunk).unwrap() == ChunkState::Offline {
                bad += 1;
                continue;
            }
            let (offset, bytes) = (0, 4096);
            let ops = [
                NandOp::Read {
                    chunk,
                    offset,
                    bytes,
                },
                NandOp::Program { chunk, row: 0 },
                NandOp::Erase { chunk },
            ];
            for (kind, op) in ops.into_iter().enumerate() {
                match device.submit(op, 0) {
                    Ok(ticket) => failed[kind] += u32::from(ticket.has_failed),
                    Err(_) => after += 1,
                }
            }
        }
        (bad, failed, after)
    };
    let (bad, failed, after) = run();
    assert!((330..470).contains(&bad), "{bad}");
    assert!(
        failed.iter().all(|failed| (130..240).contains(failed)),
        "{failed:?}"
    );
    assert_eq!(after, failed[1], "an erase of a chunk that has failed");
    assert_eq!(run(), (bad, failed, after));
}

#[test]
fn a_worn_out_chunk_goes_offline() {
    let mut profile = small();
    profile.faults.endurance = 3;
    let mut device = Device::new(profile).unwrap();
    let erase = NandOp::Erase { chunk: chunk(0, 0) };
    for _ in 0..3 {
        assert!(!device.submit(erase, 0).unwrap().has_failed);
    }
    // It takes its time all the same.
    let last = device.submit(erase, 0).unwrap();
    assert_eq!((last.has_failed, last.done), (true, 4 * 3 * MS));
    assert_eq!(device.state(chunk(0, 0)).unwrap(), ChunkState::Offline);
}

/// Milliseconds until a virtual block was read or written as liblightnvm does it: each lane does
/// one command after another.
fn stripe_ms(device: &mut Device, block: &VirtualBlock, reads: bool) -> f64 {
    let mut lanes: Vec<_> = (0..block.lanes())
        .map(|lane| block.commands(0..block.units(), lane))
        .collect();
    let mut ready: BinaryHeap<Reverse<(Ns, usize)>> =
        (0..lanes.len()).map(|lane| Reverse((0, lane))).collect();
    let bytes = device.profile().geometry.row_bytes();
    let mut end = 0;
    while let Some(Reverse((now, lane))) = ready.pop() {
        end = end.max(now);
        let Some(command) = lanes[lane].next() else {
            continue;
        };
        let dones = command.units.map(|unit| {
            let (chunk, row) = block.place(unit);
            let offset = u64::from(row) * bytes;
            let op = match reads {
                true => NandOp::Read {
                    chunk,
                    offset,
                    bytes,
                },
                false => NandOp::Program { chunk, row },
            };
            device.submit(op, now).unwrap().done
        });
        ready.push(Reverse((dones.max().unwrap(), lane)));
    }
    end as f64 / MS as f64
}

/// Figures of a real drive, in `docs/flash.md`.
#[test]
fn the_westlake_profile_is_as_fast_as_the_real_drive() {
    let profile = Profile::named("westlake-mlc").unwrap();
    let mut device = Device::new(profile.clone()).unwrap();
    let one = VirtualBlock::new(&profile, [0], 0);
    assert_eq!(one.bytes(), 16 << 20);
    let close = |ms: f64, computed: f64| assert!((ms - computed).abs() < 0.5, "{ms} ms");
    // Measured: 861 ms.
    // 860.1 without the link, which takes 4.2 us for a row.
    close(stripe_ms(&mut device, &one, false), 862.2);
    // The eight LUNs of a channel in lock step; measured: 1,281 ms.
    let mut device = Device::new(profile.clone()).unwrap();
    let channel = VirtualBlock::new(&profile, (0..128).step_by(16), 0);
    assert_eq!((channel.chunks.len(), channel.lanes()), (8, 1));
    close(stripe_ms(&mut device, &channel, false), 1238.1);
    // All LUNs are limited by the buses: 8 x 512 x 2 pages of 52.433 us. Measured: 448 ms.
    let mut device = Device::new(profile.clone()).unwrap();
    let all = VirtualBlock::new(&profile, 0..128, 0);
    let ms = stripe_ms(&mut device, &all, true);
    assert!((429.5..431.0).contains(&ms), "{ms} ms");
    // One erase; and four commands of 32 chunks, one after the other.
    let erase = |chunk| NandOp::Erase { chunk };
    let mut device = Device::new(profile.clone()).unwrap();
    assert_eq!(device.submit(erase(chunk(0, 0)), 0).unwrap().done, 3 * MS);
    let mut device = Device::new(profile.clone()).unwrap();
    let mut now = 0;
    for command in all.erases(&profile) {
        let dones = command
            .iter()
            .map(|chunk| device.submit(erase(*chunk), now).unwrap().done);
        now = dones.max().unwrap();
    }
    assert_eq!(now, 12 * MS);
}

#[test]
fn a_virtual_block_is_striped_over_its_chunks() {
    let mut profile = small();
    profile.rules.sectors_of_command_max = 6;
    // Units of two sectors, so three to a command: lanes of three chunks and of one.
    let block = VirtualBlock::new(&profile, 0..4, 2);
    assert_eq!(
        (block.bytes(), block.units(), block.lanes()),
        (4 * 4 * 8192, 16, 2)
    );
    assert_eq!(block.place(6), (chunk(2, 2), 1));
    let commands = |units, lane| -> Vec<_> {
        block
            .commands(units, lane)
            .map(|command| command.units)
            .collect()
    };
    assert_eq!(commands(0..16, 0), [0..3, 4..7, 8..11, 12..15]);
    assert_eq!(commands(0..16, 1), [3..4, 7..8, 11..12, 15..16]);
    assert_eq!(commands(1..6, 0), [1..3, 4..6]);
    assert_eq!(commands(1..6, 1), vec![3..4]);
    assert_eq!(
        block
            .erases(&profile)
            .map(<[Chunk]>::len)
            .collect::<Vec<_>>(),
        [3, 1]
    );
}

#[test]
fn built_in_profiles_are_complete() {
    for name in PROFILE_NAMES {
        let profile = Profile::named(name).unwrap();
        assert_eq!(profile.name, name);
        assert!(
            !profile.sources.is_empty() && !profile.about.ends_with('.'),
            "{name}"
        );
        assert_eq!(Profile::parse(&profile.to_toml(), name).unwrap(), profile);
        Device::new(profile).unwrap();
    }
    let westlake = Profile::find("westlake-mlc").unwrap();
    assert_eq!(westlake.geometry.bytes(), 128 * 1020 * (16 << 20));
}

#[test]
fn a_bad_profile_is_refused_with_the_name_of_the_value() {
    let good = small().to_toml();
    let error_of = |text: &str| -> Error { Profile::parse(text, "my.toml").unwrap_err() };
    for (from, to, part) in [
        (
            "channels = 2",
            "channels = 0",
            "geometry.channels is 0; it must be 1 to 256",
        ),
        ("luns = 2", "luns = 300", "geometry.luns is 300"),
        (
            "pages = 4",
            "pages = 5\npages_of_program = 2",
            "duplicate key",
        ),
        (
            "page_bytes = 4096",
            "page_bytes = 5000",
            "not a multiple of sector_bytes (4096)",
        ),
        ("blocks = 4", "blocks = -1", "invalid value"),
        ("blocks = 4", "", "missing field `blocks`"),
        (
            "blocks = 4",
            "blocks = 4\nsuperblocks = 1",
            "unknown field `superblocks`",
        ),
        (
            "erase_us = 3000.0",
            "erase_us = -3.0",
            "times.erase_us is -3",
        ),
        (
            "erase_us = 3000.0",
            "erase_us = nan",
            "times.erase_us is NaN",
        ),
        (
            "read_us = [50.0, 60.0]",
            "read_us = []",
            "times.read_us has 0 times",
        ),
        ("bus_mb_s = 512.0", "bus_mb_s = 0.0", "times.bus_mb_s is 0"),
        ("[geometry]", "[geometry", "line"),
        (
            "read_ppm = 0",
            "read_ppm = 2000000",
            "faults.read_ppm is 2000000; it must be 0 to 1000000",
        ),
    ] {
        assert!(good.contains(from), "{from} is in {good}");
        let error = error_of(&good.replace(from, to));
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let text = error.to_string();
        assert!(
            text.contains("profile my.toml: ") && text.contains(part),
            "{text}"
        );
    }
    let odd = good.replace("pages_of_program = 1", "pages_of_program = 3");
    let error = error_of(&odd).to_string();
    assert!(
        error.contains("not a multiple of pages_of_program (3)"),
        "{error}"
    );
    let huge = good
        .replace("blocks = 4", "blocks = 1048576")
        .replace("luns = 2", "luns = 256");
    assert!(
        error_of(&huge)
            .to_string()
            .contains("the model has up to 16777216")
    );
    let unknown = Profile::find("westlake").unwrap_err().to_string();
    assert!(
        unknown.contains("no profile \"westlake\"; there are: westlake-mlc, "),
        "{unknown}"
    );
    let missing = Profile::find("no/such.toml").unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
}

proptest! {
    /// Whatever comes: each LUN does one operation at a time, in order, and nothing is done before
    /// it came and the medium had time for it.
    #[test]
    fn prop_a_lun_does_one_operation_at_a_time(
        ops in proptest::collection::vec((0_u32..4, 0_u32..4, 0_u8..4, 0_u64..300), 1..200),
    ) {
        let mut device = Device::new(small()).unwrap();
        device.trace();
        let mut now = 0;
        for (lun, block, kind, wait_us) in ops {
            now += wait_us * 1000;
            let chunk = chunk(lun, block);
            let rows = device.write_pointer(chunk).unwrap();
            let (op, least_us) = match kind {
                0 | 1 => (NandOp::Read { chunk, offset: 4096, bytes: 4096 }, 58),
                2 if rows < 4 => (NandOp::Program { chunk, row: rows }, 516),
                _ => (NandOp::Erase { chunk }, 3000),
            };
            let done = device.submit(op, now).unwrap().done;
            prop_assert!(done >= now + least_us * 1000);
        }
        let spans = device.take_trace();
        for lun in 0..4 {
            let of_lun: Vec<_> = spans.iter().filter(|span| span.lun == lun).collect();
            for pair in of_lun.windows(2) {
                prop_assert!(pair[0].until <= pair[1].from, "{pair:?}");
            }
        }
    }
}
