//! The rows of the report: one table, in the order of the page.
//!
//! A row is one `bench-peers run` (or `recovery`) of one combination. Of several workloads the last
//! one is the row and the others prepare it. Sizes are those of scale 1.
//!
//! Invariants, which tests hold:
//! 1. Names are unique, and a row that is named beside a short one is there and is sustained.
//! 2. Ten rows are for the README.
//! 3. At scale 1 and three runs the estimate is about 75 minutes.

use glintdb_bench::figures::{Engine, Label, Topic};

/// The engine that ratios are to.
pub(crate) const BASELINE: &str = crate::table::BASELINE;

/// The engine whose rows are won or lost.
pub(crate) const SUBJECT: &str = "glintdb";

/// Identifier, name, version, and whether the README's table has a column.
const ENGINES: [(&str, &str, &str, bool); 7] = [
    ("glintdb", "GlintDB", "0.1.0", true),
    ("rocksdb", "RocksDB", "11.8.1", true),
    ("lmdb", "LMDB", "mdb.master (crate 0.2.6)", true),
    ("redb", "redb", "4.5.0", true),
    ("fjall", "fjall", "3.1.13", true),
    ("rocksdb-blob", "BlobDB of RocksDB", "11.8.1", false),
    ("wiredtiger", "WiredTiger", "3.2.1", false),
];

/// The engines of most rows.
const PEERS: &str = "glintdb,rocksdb,lmdb,redb,fjall";

/// With RocksDB's own separation of values: rows of overwrites.
const WITH_BLOBS: &str = "glintdb,rocksdb,lmdb,redb,fjall,rocksdb-blob";

/// With another B+tree, where it costs little time.
const WITH_WIREDTIGER: &str = "glintdb,rocksdb,lmdb,redb,fjall,wiredtiger";

/// A heading of the page, and the rows below it.
struct Chapter {
    title: &'static str,
    about: &'static str,
    rows: &'static [Row],
}

/// A row of the report.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// Unique name: the work, the size of values, the threads.
    pub(crate) name: &'static str,
    title: &'static str,
    /// Subcommand and arguments, without engines and repetitions.
    pub(crate) args: &'static str,
    /// Comma-separated.
    pub(crate) engines: &'static str,
    /// Seconds that a run of an engine takes: the average of the engines, without filling.
    pub(crate) seconds: f64,
    /// Runs once however often the others run, because it takes long.
    pub(crate) once: bool,
    sustained: bool,
    beside: Option<&'static str>,
    curve: bool,
    readme: bool,
}

/// A row with the usual engines and nothing special.
const ROW: Row = Row {
    name: "",
    title: "",
    args: "",
    engines: PEERS,
    seconds: 0.0,
    once: false,
    sustained: false,
    beside: None,
    curve: false,
    readme: false,
};

/// A row that takes long and has a steady rate.
const SUSTAINED: Row = Row {
    once: true,
    sustained: true,
    ..ROW
};

const CHAPTERS: [Chapter; 8] = [
    Chapter {
        title: "Writes in memory",
        about: "Fills start from an empty directory; overwrites and deletes go on with a filled data set. Each engine \
                has 512 MiB for memtables and caches, and the page cache holds everything. Commits survive a kill of the \
                process (`os`), except in rows of synced commits, which survive power loss.",
        rows: &[
            Row {
                name: "fillseq-100-1",
                title: "Fill in key order, 100 B, 1 thread",
                args: "run --workloads fillseq --num 300k --value-size 100 --threads 1",
                seconds: 1.9,
                ..ROW
            },
            Row {
                name: "fillrandom-100-1",
                title: "Fill in random order, 100 B, 1 thread",
                args: "run --workloads fillrandom --num 300k --value-size 100 --threads 1",
                seconds: 2.6,
                ..ROW
            },
            Row {
                name: "fillrandom-1k-1",
                title: "Fill in random order, 1 KiB, 1 thread",
                args: "run --workloads fillrandom --num 300k --value-size 1024 --threads 1",
                seconds: 4.5,
                readme: true,
                ..ROW
            },
            Row {
                name: "fillrandom-1k-8",
                title: "Fill in random order, 1 KiB, 8 threads",
                args: "run --workloads fillrandom --num 300k --value-size 1024 --threads 8",
                seconds: 4.5,
                ..ROW
            },
            Row {
                name: "fillrandom-16k-1",
                title: "Fill in random order, 16 KiB, 1 thread",
                args: "run --workloads fillrandom --num 32k --value-size 16384 --threads 1",
                engines: WITH_BLOBS,
                seconds: 2.5,
                ..ROW
            },
            Row {
                name: "sync-1k-1",
                title: "Synced commits, 1 KiB, 1 thread",
                args: "run --workloads fillrandom --num 5k --value-size 1024 --durability sync --threads 1",
                seconds: 1.5,
                ..ROW
            },
            Row {
                name: "sync-1k-8",
                title: "Synced commits, 1 KiB, 8 threads",
                args: "run --workloads fillrandom --num 10k --value-size 1024 --durability sync --threads 8",
                seconds: 2.2,
                readme: true,
                ..ROW
            },
            Row {
                name: "overwrite-100-1",
                title: "Overwrites, 100 B, 1 thread",
                args: "run --workloads overwrite --num 300k --value-size 100 --threads 1",
                seconds: 3.1,
                ..ROW
            },
            Row {
                name: "overwrite-1k-1",
                title: "Overwrites, 1 KiB, 1 thread, short",
                args: "run --workloads overwrite --num 300k --value-size 1024 --threads 1",
                engines: WITH_BLOBS,
                seconds: 5.3,
                beside: Some("sustained-overwrite-1k"),
                ..ROW
            },
            Row {
                name: "overwrite-1k-2",
                title: "Overwrites, 1 KiB, 2 threads, short",
                args: "run --workloads overwrite --num 300k --value-size 1024 --threads 2",
                engines: WITH_BLOBS,
                seconds: 5.3,
                beside: Some("sustained-overwrite-1k"),
                readme: true,
                ..ROW
            },
            Row {
                name: "overwrite-16k-1",
                title: "Overwrites, 16 KiB, 1 thread, short",
                args: "run --workloads overwrite --num 32k --value-size 16384 --threads 1",
                engines: WITH_BLOBS,
                seconds: 2.5,
                beside: Some("sustained-overwrite-16k-1"),
                ..ROW
            },
            Row {
                name: "delete-1k-1",
                title: "Deletes, 1 KiB, 1 thread",
                args: "run --workloads deleterandom --num 100k --value-size 1024 --threads 1",
                seconds: 1.4,
                ..ROW
            },
        ],
    },
    Chapter {
        title: "Sustained writes",
        about: "Overwrites of three times the data set (16 KiB: six times), which use up the slack of the space \
                bound in their first half; an engine that needs more than 60 seconds for them ends there. Rates are of the \
                second half of the seconds. In memory each engine has 512 MiB and the page cache besides; in limited memory \
                everything together, the page cache included, is 1,200 MiB for 3.1 GB of records.",
        rows: &[
            Row {
                name: "sustained-overwrite-1k",
                title: "Overwrites, 1 KiB, 2 threads, sustained: 3 GB of records",
                args: "run --workloads overwrite --num 3m --ops 9m --duration 60 --value-size 1024 --threads 2",
                engines: WITH_BLOBS,
                seconds: 58.0,
                readme: true,
                ..SUSTAINED
            },
            Row {
                name: "sustained-overwrite-1k-limited",
                title: "The same in limited memory, sustained",
                args: "run --workloads overwrite --num 3m --ops 9m --duration 60 --value-size 1024 --threads 2 \
                       --limit-mb 1200 --memory-mb 384",
                engines: WITH_BLOBS,
                seconds: 64.0,
                ..SUSTAINED
            },
            Row {
                name: "sustained-overwrite-16k-1",
                title: "Overwrites, 16 KiB, 1 thread, sustained: 0.5 GB of records",
                args: "run --workloads overwrite --num 32k --ops 192k --duration 30 --value-size 16384 --threads 1",
                engines: WITH_BLOBS,
                seconds: 11.0,
                ..SUSTAINED
            },
            Row {
                name: "sustained-overwrite-16k-8",
                title: "Overwrites, 16 KiB, 8 threads, sustained: 0.5 GB of records",
                args: "run --workloads overwrite --num 32k --ops 192k --duration 30 --value-size 16384 --threads 8",
                engines: WITH_BLOBS,
                seconds: 11.0,
                ..SUSTAINED
            },
        ],
    },
    Chapter {
        title: "Reads in memory",
        about: "The data set is freshly filled, and each engine has read every record once. A multi-get asks for 64 \
                keys and is counted by key; a scan seeks a random key and reads 50 records.",
        rows: &[
            Row {
                name: "get-100-1",
                title: "Gets, 100 B, 1 thread",
                args: "run --workloads readrandom --num 300k --value-size 100 --threads 1 --duration 1.5",
                seconds: 1.9,
                ..ROW
            },
            Row {
                name: "get-100-8",
                title: "Gets, 100 B, 8 threads",
                args: "run --workloads readrandom --num 300k --value-size 100 --threads 8 --duration 1.5",
                seconds: 1.9,
                ..ROW
            },
            Row {
                name: "multiget-100-1",
                title: "Multi-gets of 64, 100 B, 1 thread",
                args: "run --workloads multireadrandom --num 300k --value-size 100 --threads 1 --duration 1.5",
                seconds: 1.9,
                ..ROW
            },
            Row {
                name: "scan-100-1",
                title: "Scans of 50, 100 B, 1 thread",
                args: "run --workloads seekrandom --num 300k --value-size 100 --threads 1 --duration 1.5",
                engines: WITH_WIREDTIGER,
                seconds: 1.9,
                readme: true,
                ..ROW
            },
            Row {
                name: "scan-100-8",
                title: "Scans of 50, 100 B, 8 threads",
                args: "run --workloads seekrandom --num 300k --value-size 100 --threads 8 --duration 1.5",
                seconds: 1.9,
                ..ROW
            },
            Row {
                name: "get-1k-1",
                title: "Gets, 1 KiB, 1 thread",
                args: "run --workloads readrandom --num 300k --value-size 1024 --threads 1 --duration 1.5",
                engines: WITH_WIREDTIGER,
                seconds: 2.0,
                readme: true,
                ..ROW
            },
            Row {
                name: "get-1k-8",
                title: "Gets, 1 KiB, 8 threads",
                args: "run --workloads readrandom --num 300k --value-size 1024 --threads 8 --duration 1.5",
                seconds: 2.0,
                ..ROW
            },
            Row {
                name: "multiget-1k-1",
                title: "Multi-gets of 64, 1 KiB, 1 thread",
                args: "run --workloads multireadrandom --num 300k --value-size 1024 --threads 1 --duration 1.5",
                seconds: 2.0,
                ..ROW
            },
            Row {
                name: "scan-1k-1",
                title: "Scans of 50, 1 KiB, 1 thread",
                args: "run --workloads seekrandom --num 300k --value-size 1024 --threads 1 --duration 1.5",
                seconds: 2.0,
                ..ROW
            },
            Row {
                name: "get-beside-writer-1k-1",
                title: "Gets beside a writer, 1 KiB, 1 reader",
                args: "run --workloads readwhilewriting --num 300k --value-size 1024 --threads 1 --duration 2",
                seconds: 3.5,
                ..ROW
            },
        ],
    },
    Chapter {
        title: "YCSB in memory",
        about: "300,000 records of 1 KiB, 1 thread, zipfian, 512 MiB for each engine and the page cache besides. The \
                short rows run for 1.5 seconds after half a second of warm-up. The sustained rows are warmed up until they have \
                written three times the data set (6 operations a record, half of them writes), or for 30 seconds, \
                whichever comes first.",
        rows: &[
            Row {
                name: "ycsb-a",
                title: "YCSB A (half updates), 1 KiB, 1 thread, short",
                args: "run --workloads a --num 300k --value-size 1024 --threads 1 --duration 1.5 --warmup 0.5",
                seconds: 3.0,
                beside: Some("sustained-ycsb-a"),
                readme: true,
                ..ROW
            },
            Row {
                name: "ycsb-d",
                title: "YCSB D (gets of the latest, 5 % inserts), 1 KiB, 1 thread",
                args: "run --workloads d --num 300k --value-size 1024 --threads 1 --duration 1.5 --warmup 0.5",
                seconds: 3.0,
                ..ROW
            },
            Row {
                name: "ycsb-e",
                title: "YCSB E (scans, 5 % inserts), 1 KiB, 1 thread",
                args: "run --workloads e --num 300k --value-size 1024 --threads 1 --duration 1.5 --warmup 0.5",
                seconds: 3.0,
                ..ROW
            },
            Row {
                name: "ycsb-f",
                title: "YCSB F (half read-modify-writes), 1 KiB, 1 thread, short",
                args: "run --workloads f --num 300k --value-size 1024 --threads 1 --duration 1.5 --warmup 0.5",
                seconds: 3.0,
                beside: Some("sustained-ycsb-f"),
                ..ROW
            },
            Row {
                name: "sustained-ycsb-a",
                title: "YCSB A, 1 KiB, 1 thread, sustained",
                args: "run --workloads a --num 300k --value-size 1024 --threads 1 --duration 10 --warmup-ops 1800k \
                       --warmup 30",
                seconds: 23.0,
                readme: true,
                ..SUSTAINED
            },
            Row {
                name: "sustained-ycsb-f",
                title: "YCSB F, 1 KiB, 1 thread, sustained",
                args: "run --workloads f --num 300k --value-size 1024 --threads 1 --duration 10 --warmup-ops 1800k \
                       --warmup 30",
                seconds: 23.0,
                ..SUSTAINED
            },
        ],
    },
    Chapter {
        title: "Cold reads",
        about: "1 million records of 1 KiB (1 GB) in 500 MiB, the page cache included. Before each run the data set \
                leaves the page cache, and the host of a virtual disk has it in its own: *cold* means read from the virtual \
                disk. Values of the last row are put in key order first.",
        rows: &[
            Row {
                name: "get-cold-1",
                title: "Gets, cold, 1 KiB, 1 thread",
                args: "run --workloads readrandom --num 1m --value-size 1024 --limit-mb 500 --memory-mb 160 --threads 1 \
                       --duration 2.5",
                seconds: 3.5,
                ..ROW
            },
            Row {
                name: "get-cold-8",
                title: "Gets, cold, 1 KiB, 8 threads",
                args: "run --workloads readrandom --num 1m --value-size 1024 --limit-mb 500 --memory-mb 160 --threads 8 \
                       --duration 2.5",
                seconds: 3.5,
                ..ROW
            },
            Row {
                name: "multiget-cold-1",
                title: "Multi-gets of 64, cold, 1 KiB, 1 thread",
                args: "run --workloads multireadrandom --num 1m --value-size 1024 --limit-mb 500 --memory-mb 160 \
                       --threads 1 --duration 2.5",
                seconds: 3.5,
                readme: true,
                ..ROW
            },
            Row {
                name: "multiget-cold-8",
                title: "Multi-gets of 64, cold, 1 KiB, 8 threads",
                args: "run --workloads multireadrandom --num 1m --value-size 1024 --limit-mb 500 --memory-mb 160 \
                       --threads 8 --duration 2.5",
                seconds: 3.5,
                ..ROW
            },
            Row {
                name: "scan-cold-1",
                title: "Scans of 50, cold, 1 KiB, 1 thread",
                args: "run --workloads seekrandom --num 1m --value-size 1024 --limit-mb 500 --memory-mb 160 --threads 1 \
                       --duration 2.5",
                seconds: 3.5,
                ..ROW
            },
            Row {
                name: "scan-cold-8",
                title: "Scans of 50, cold, 1 KiB, 8 threads",
                args: "run --workloads seekrandom --num 1m --value-size 1024 --limit-mb 500 --memory-mb 160 --threads 8 \
                       --duration 2.5",
                seconds: 3.5,
                readme: true,
                ..ROW
            },
            Row {
                name: "scan-cold-ordered-1",
                title: "Scans of 50, cold, 1 KiB, 1 thread, after compact_values",
                args: "run --workloads compactvalues,seekrandom --num 1m --value-size 1024 --limit-mb 500 \
                       --memory-mb 160 --threads 1 --duration 6",
                engines: "glintdb,rocksdb,rocksdb-direct",
                seconds: 17.0,
                once: true,
                ..ROW
            },
        ],
    },
    Chapter {
        title: "YCSB in limited memory",
        about: "1 million records of 1 KiB (1 GB) in 500 MiB, the page cache included; 8 threads, zipfian, cold at first. \
                The short rows run for 3 seconds after a second of warm-up. The sustained rows of A and F are warmed up \
                until they have written three times the data set (6 operations a record, half of them writes), or for 30 \
                seconds, whichever comes first.",
        rows: &[
            Row {
                name: "ycsb-c-limited",
                title: "YCSB C in limited memory, 8 threads",
                args: "run --workloads c --num 1m --value-size 1024 --limit-mb 500 --memory-mb 160 --threads 8 \
                       --duration 3 --warmup 1",
                seconds: 4.8,
                ..ROW
            },
            Row {
                name: "ycsb-a-limited",
                title: "YCSB A in limited memory, 8 threads, short",
                args: "run --workloads a --num 1m --value-size 1024 --limit-mb 500 --memory-mb 160 --threads 8 \
                       --duration 3 --warmup 1",
                seconds: 4.8,
                beside: Some("sustained-ycsb-a-limited"),
                ..ROW
            },
            Row {
                name: "ycsb-f-limited",
                title: "YCSB F in limited memory, 8 threads, short",
                args: "run --workloads f --num 1m --value-size 1024 --limit-mb 500 --memory-mb 160 --threads 8 \
                       --duration 3 --warmup 1",
                seconds: 4.8,
                beside: Some("sustained-ycsb-f-limited"),
                ..ROW
            },
            Row {
                name: "ycsb-e-limited",
                title: "YCSB E in limited memory, 8 threads",
                args: "run --workloads e --num 1m --value-size 1024 --limit-mb 500 --memory-mb 160 --threads 8 \
                       --duration 3 --warmup 1",
                seconds: 4.8,
                ..ROW
            },
            Row {
                name: "sustained-ycsb-a-limited",
                title: "YCSB A in limited memory, 8 threads, sustained",
                args: "run --workloads a --num 1m --value-size 1024 --limit-mb 500 --memory-mb 160 --threads 8 \
                       --duration 10 --warmup-ops 6m --warmup 30",
                seconds: 39.0,
                ..SUSTAINED
            },
            Row {
                name: "sustained-ycsb-f-limited",
                title: "YCSB F in limited memory, 8 threads, sustained",
                args: "run --workloads f --num 1m --value-size 1024 --limit-mb 500 --memory-mb 160 --threads 8 \
                       --duration 10 --warmup-ops 6m --warmup 30",
                seconds: 39.0,
                ..SUSTAINED
            },
        ],
    },
    Chapter {
        title: "Bytes written against space",
        about: "Six overwrites of each of 32,000 records of 16 KiB by 1 thread, 256 MiB for each engine: GlintDB with \
                several bounds on space (`space_amp_max`) and without value GC. The picture shows what each engine wrote to \
                storage for a byte put against the most space it took for a byte of the data set; left and low is good.",
        rows: &[Row {
            name: "amplification-16k",
            title: "Overwrites, 16 KiB, 1 thread, by bound on space",
            args: "run --workloads overwrite --num 32k --ops 192k --value-size 16384 --memory-mb 256 --threads 1",
            engines: "glintdb,rocksdb,rocksdb-blob,fjall-blob,glintdb:space_amp_max=1.4,\
                      glintdb:space_amp_max=2,glintdb:value_gc=false",
            seconds: 10.0,
            once: true,
            curve: true,
            ..ROW
        }],
    },
    Chapter {
        title: "Opening after a kill",
        about: "A process puts records in random order and is killed with SIGKILL right after the last put; the next \
                process opens what is left. 60,000 records of 1 KiB are about a write buffer of RocksDB's. redb may lose \
                the last 500 ms: it syncs no more often.",
        rows: &[Row {
            name: "recovery-1k",
            title: "Opening with 60,000 records of 1 KiB",
            args: "recovery --num 60k --value-size 1024",
            engines: WITH_WIREDTIGER,
            seconds: 3.5,
            ..ROW
        }],
    },
];

/// All rows, in the order in which they run and the page has them.
pub(crate) fn rows() -> impl Iterator<Item = Row> {
    CHAPTERS.iter().flat_map(|chapter| chapter.rows).copied()
}

/// The headings of the page.
pub(crate) fn topics() -> Vec<Topic> {
    let topics = CHAPTERS.iter().map(|chapter| Topic {
        title: chapter.title.to_owned(),
        about: chapter.about.to_owned(),
    });
    topics.collect()
}

/// The engines as the page names them.
pub(crate) fn engines() -> Vec<Engine> {
    let engines = ENGINES.iter().map(|&(id, name, version, readme)| Engine {
        id: id.to_owned(),
        name: name.to_owned(),
        version: version.to_owned(),
        readme,
    });
    engines.collect()
}

/// What the page says of the row of this name besides its numbers.
pub(crate) fn label(name: &str) -> Option<Label> {
    let row = rows().find(|row| row.name == name)?;
    let mut chapters = CHAPTERS.iter();
    let chapter = chapters.find(|chapter| chapter.rows.iter().any(|row| row.name == name))?;
    Some(Label {
        topic: chapter.title.to_owned(),
        title: row.title.to_owned(),
        sustained: row.sustained,
        beside: row.beside.map(str::to_owned),
        curve: row.curve,
        readme: row.readme,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_rows_beside_short_ones_are_sustained() {
        let names: Vec<_> = rows().map(|row| row.name).collect();
        for (place, name) in names.iter().enumerate() {
            assert!(!names[..place].contains(name), "{name} is there twice");
        }
        for row in rows() {
            if let Some(beside) = row.beside {
                let label = label(beside).unwrap_or_else(|| panic!("{}: no {beside}", row.name));
                assert!(label.sustained && !row.sustained, "{}", row.name);
            }
        }
    }

    #[test]
    fn ten_rows_are_for_the_readme_and_short_ones_come_with_sustained_ones() {
        let chosen: Vec<_> = rows().filter(|row| row.readme).collect();
        assert_eq!(chosen.len(), 10);
        for beside in chosen.iter().filter_map(|row| row.beside) {
            assert!(
                chosen.iter().any(|row| row.name == beside),
                "{beside} is not in the README"
            );
        }
    }

    #[test]
    fn rows_of_the_readme_have_every_column_and_all_compared_rows_the_baseline() {
        for row in rows() {
            let has = |id: &str| row.engines.split(',').any(|engine| engine == id);
            assert!(has(SUBJECT) && has(BASELINE), "{}", row.name);
            for engine in engines().iter().filter(|engine| engine.readme) {
                assert!(
                    !row.readme || has(&engine.id),
                    "{}: {}",
                    row.name,
                    engine.id
                );
            }
        }
    }

    #[test]
    fn versions_are_those_of_the_manifest() {
        let manifest = include_str!("../../Cargo.toml");
        for (name, version) in [
            ("fjall", "3.1.13"),
            ("lmdb-master-sys", "0.2.6"),
            ("redb", "4.5.0"),
        ] {
            assert!(manifest.contains(&format!("{name} = {{ version = \"={version}\"")));
            let text = format!("{:?}", ENGINES);
            assert!(text.contains(version), "{name} {version}");
        }
    }
}
