//! `bench` on GlintDB itself, as the command line runs it.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use clap::Parser;
use glintdb_bench::{BenchArgs, Report, run};

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    bench: BenchArgs,
}

fn bench(line: &str) -> Result<(bool, String), String> {
    let words = std::iter::once("bench").chain(line.split_whitespace());
    let args = Program::try_parse_from(words).unwrap().bench;
    let mut out = Vec::new();
    let correct = run(&args, &mut out).map_err(|error| error.to_string())?;
    Ok((correct, String::from_utf8(out).unwrap()))
}

#[test]
fn glintdb_answers_every_workload_rightly() {
    let dir = tempfile::tempdir().unwrap();
    for (name, value_size, threads) in [("inline", 100, 1), ("separated", 1500, 3)] {
        let line = format!(
            "--workloads fillseq,fillrandom,overwrite,warmup,readrandom,readmissing,multireadrandom,seekrandom,\
             readwhilewriting,readrandomwriterandom,load,a,b,c,d,e,f,longkeys,manykeyspaces,deleterandom \
             --num 4000 --ops 2000 --keyspaces 20 --value-size {value_size} --threads {threads} --batch-size 7 --memory-mb 32 --json --dir {}",
            dir.path().join(name).display()
        );
        let (correct, json) = bench(&line).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let reports: Vec<Report> = serde_json::from_value(json["results"].clone()).unwrap();
        assert_eq!(reports.len(), 20);
        let wrong: Vec<_> = reports
            .iter()
            .filter(|report| !report.is_correct())
            .collect();
        assert!(correct && wrong.is_empty(), "{wrong:#?}");
        assert!(
            reports
                .iter()
                .all(|report| report.values_checked > 0 || report.workload == "readmissing")
        );
    }
}

#[test]
fn a_directory_is_gone_on_with_only_when_told_to() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let line = |workloads: &str| {
        format!(
            "--num 500 --memory-mb 32 --dir {} --workloads {workloads}",
            db.display()
        )
    };
    let (correct, table) = bench(&line("fillrandom")).unwrap();
    assert!(correct);
    assert!(
        table.contains("fillrandom") && table.contains("ops/s"),
        "{table}"
    );
    let error = bench(&line("readrandom")).unwrap_err();
    assert!(error.contains("--use-existing"), "{error}");
    let (correct, _) = bench(&format!(
        "{} --use-existing --engine-stats",
        line("readrandom")
    ))
    .unwrap();
    assert!(correct);
    // Another seed has other keys: nothing is found, and that is not called fast.
    let (correct, table) =
        bench(&format!("{} --use-existing --seed 2", line("readrandom"))).unwrap();
    assert!(!correct);
    assert!(table.contains("WRONG: 500 records missing"), "{table}");
}
