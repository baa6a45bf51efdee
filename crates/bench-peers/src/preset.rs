//! Named sets of arguments: each is a question that is asked again and again, with one command.
//!
//! A preset stands for arguments of `run`; those given beside it win.

use crate::engines;

/// Name, what it is for, and the arguments it stands for.
type Preset = (&'static str, &'static str, &'static str);

/// The presets, in the order in which help lists them.
const PRESETS: [Preset; 11] = [
    (
        "quick",
        "a look in a minute or two: does a change do anything?",
        "--workloads fillrandom,overwrite,readrandom,seekrandom --num 200k --duration 2 --repeat 1",
    ),
    (
        "peers",
        "all engines in memory: writes, and reads that hit",
        "--engines glintdb,rocksdb,rocksdb-direct,rocksdb-blob,fjall,fjall-blob,lmdb,lmdb-wmap,redb,wiredtiger \
         --workloads fillseq,fillrandom,overwrite,readrandom,multireadrandom,seekrandom,readwhilewriting,deleterandom \
         --num 500k --value-size 100,1024 --threads 1,8 --duration 5",
    ),
    (
        "peers-limited",
        "all engines on data of four times the memory, cold: reads, and YCSB",
        "--engines glintdb,rocksdb,rocksdb-direct,fjall,lmdb,redb,wiredtiger \
         --workloads readrandom,multireadrandom,seekrandom,c,b,a,f,d,e --num 4m --limit-mb 1200 --memory-mb 384 \
         --threads 8 --duration 8 --warmup 4",
    ),
    (
        "ablation-reads",
        "what each part of GlintDB's reads brings on cold data",
        "--engines glintdb,glintdb:read_engine=sync,glintdb:direct_io=off,glintdb:filter_bits_per_key=0,\
         glintdb:separate_min_bytes=1M \
         --workloads readrandom,multireadrandom,seekrandom --num 1m --limit-mb 600 --memory-mb 128 --threads 1,8 \
         --duration 5",
    ),
    (
        "ablation-writes",
        "what each part of GlintDB's writes brings",
        "--engines glintdb,glintdb:separate_min_bytes=1M,glintdb:direct_io=off,glintdb:background_threads=1,\
         glintdb:size_ratio=4,glintdb:compression=lz4 \
         --workloads fillrandom,overwrite --num 1m --value-size 100,1024 --threads 1,8 --memory-mb 128",
    ),
    (
        "ablation-help",
        "what it brings that waiting writers begin reads of compactions: 16 KiB values in the index, as in the paper (as many bytes of 1 KiB: --num 640k --value-size 1024)",
        "--engines glintdb:separate_min_bytes=1G,glintdb:separate_min_bytes=1G:help=false,\
         glintdb:separate_min_bytes=1G:background_threads=1,glintdb:separate_min_bytes=1G:background_threads=1:help=false \
         --workloads fillrandom --num 40k --value-size 16384 --threads 1,2,4,8,16 --memory-mb 64",
    ),
    (
        "ablation-compaction-reads",
        "how compactions get their input: engine and batch",
        "--engines glintdb:read_engine=sync:read_batch_max=0,glintdb:read_engine=sync,glintdb:read_engine=libaio,\
         glintdb:read_engine=threads,glintdb:read_batch_max=1,glintdb,glintdb:read_batch_max=16,glintdb:read_batch_max=64,\
         glintdb:read_batch_max=256 \
         --workloads compact --num 2m --value-size 100 --threads 1 --memory-mb 64 --cold",
    ),
    (
        "ablation-pins",
        "levels pinned in memory, uniform and newest keys, cold",
        "--engines glintdb:pinned_levels=0,glintdb:pinned_levels=1,glintdb:pinned_levels=2,glintdb:pinned_levels=3,\
         glintdb:pinned_levels=auto \
         --workloads readrandom,d --num 1m --threads 1 --memory-mb 128 --cold --duration 5",
    ),
    (
        "ablation-gc",
        "writes against space: bounds of value GC, and none, beside peers that separate values",
        "--engines glintdb:space_amp_max=1.4,glintdb,glintdb:space_amp_max=1.6,glintdb:space_amp_max=2,glintdb:value_gc=false,\
         rocksdb,rocksdb-blob,fjall-blob \
         --workloads overwrite --num 500k --value-size 1024,16384 --ops 2m --threads 1 --memory-mb 256 --repeat 1",
    ),
    (
        "key-order",
        "scans of cold data before and after its values were put in key order",
        "--engines glintdb,rocksdb,rocksdb-direct --workloads seekrandom,compactvalues,seekrandom --num 2m --cold \
         --memory-mb 384 --threads 1 --duration 4",
    ),
    (
        "long-fill",
        "fills that meet compactions of every depth: rates by second, stalls, space",
        "--engines glintdb,rocksdb --workloads fillrandom,overwrite --num 20m --value-size 100 --memory-mb 256 --repeat 1",
    ),
];

/// Replaces `--preset NAME` among the program's arguments by what it stands for, but for options that are given.
/// Engines that this build does not have are left out.
///
/// # Errors
/// In words, where there is no such preset.
pub(crate) fn expand(arguments: Vec<String>) -> Result<Vec<String>, String> {
    let mut rest = Vec::with_capacity(arguments.len());
    let mut name = None;
    let mut words = arguments.into_iter();
    while let Some(word) = words.next() {
        if word == "--preset" {
            name = Some(words.next().ok_or("--preset needs a name")?);
        } else if let Some(given) = word.strip_prefix("--preset=") {
            name = Some(given.to_owned());
        } else {
            rest.push(word);
        }
    }
    let Some(name) = name else { return Ok(rest) };
    let (_, _, text) = PRESETS
        .iter()
        .find(|(known, _, _)| *known == name)
        .ok_or_else(|| format!("no preset `{name}`:\n{}", help()))?;
    for (option, value) in pairs(text) {
        let equals = format!("{option}=");
        let given = rest
            .iter()
            .any(|word| word == option || word.starts_with(&equals));
        if !given {
            rest.push(option.to_owned());
            rest.extend(value.map(|value| in_this_build(option, value)));
        }
    }
    Ok(rest)
}

/// One line a preset, for help.
pub(crate) fn help() -> String {
    let lines =
        PRESETS.map(|(name, purpose, words)| format!("  {name:<16} {purpose}:\n    {words}"));
    lines.join("\n")
}

/// Options, each with its value if it takes one.
pub(crate) fn pairs(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let mut words = text.split_whitespace().peekable();
    std::iter::from_fn(move || {
        let option = words.next()?;
        Some((option, words.next_if(|word| !word.starts_with("--"))))
    })
}

/// The value of an option, without engines that this build does not have.
pub(crate) fn in_this_build(option: &str, value: &str) -> String {
    if option != "--engines" {
        return value.to_owned();
    }
    let there: Vec<_> = value
        .split(',')
        .filter(|engine| engines::check(engine).is_ok())
        .collect();
    there.join(",")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Command, Program, RunArgs};

    fn expanded(line: &str) -> Result<RunArgs, String> {
        let words = line.split_whitespace().map(str::to_owned).collect();
        let words = expand(words)?;
        match Program::try_parse_from(words)
            .map_err(|error| error.to_string())?
            .command
        {
            Command::Run(mut args) => args.check().map(|()| *args),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn every_preset_is_a_run_that_makes_sense() {
        for (name, _, text) in PRESETS {
            let args = expanded(&format!("bench-peers run --preset {name}")).unwrap();
            assert!(!args.cells().is_empty());
            // No name of an engine or an option is misspelt: what is left out is a peer that this build lacks.
            for (_, engines) in pairs(text).filter(|(option, _)| *option == "--engines") {
                let ours = engines
                    .unwrap()
                    .split(',')
                    .filter(|name| name.starts_with("glintdb"));
                let there = args
                    .engines
                    .iter()
                    .filter(|name| name.starts_with("glintdb"));
                assert!(ours.eq(there), "{name}");
            }
        }
    }

    #[test]
    fn what_is_given_wins_and_unknown_names_are_refused() {
        let args = expanded("bench-peers run --num=3k --preset quick --repeat 2").unwrap();
        assert_eq!((args.num, args.repeat), (3000, 2));
        assert_eq!(args.workloads.len(), 4);
        let error = expanded("bench-peers run --preset slow").unwrap_err();
        assert!(
            error.contains("no preset `slow`") && error.contains("quick"),
            "{error}"
        );
        assert!(expanded("bench-peers run --preset").is_err());
    }
}
