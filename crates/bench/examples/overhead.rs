//! What the harness itself costs: workloads on a store that does nothing.
//!
//! `cargo run --release -p glintdb-bench --example overhead`

use std::io::Write;
use std::path::{Path, PathBuf};

use glintdb_bench::{Config, Contents, Handle, Result, Runner, Store, Workload};

struct Nothing {
    dir: PathBuf,
    value: Vec<u8>,
}

impl Store for Nothing {
    fn engine(&self) -> &str {
        "nothing"
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn handle(&self) -> Result<Box<dyn Handle + '_>> {
        Ok(Box::new(NoHandle(&self.value)))
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }
}

struct NoHandle<'a>(&'a [u8]);

impl Handle for NoHandle<'_> {
    fn put(&mut self, _: &[u8], _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn put_batch(&mut self, _: &[(&[u8], &[u8])]) -> Result<()> {
        Ok(())
    }

    fn delete(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn get(&mut self, _: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        visit(self.0);
        Ok(true)
    }

    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        visit: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        (0..keys.len()).for_each(|i| visit(i, Some(self.0)));
        Ok(())
    }

    fn scan(
        &mut self,
        from: &[u8],
        limit: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        (0..limit).for_each(|_| visit(from, self.0));
        Ok(limit)
    }
}

fn main() -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(
        out,
        "harness alone, ns of CPU an operation (its answers are wrong by design):"
    )?;
    let config = Config {
        num: 5_000_000,
        ..Config::default()
    };
    let store = Nothing {
        dir: Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        value: vec![0; config.value_size],
    };
    for batch_size in [1, 100] {
        let config = Config {
            batch_size,
            ..config.clone()
        };
        let mut runner = Runner::new(&store, config, Contents::default());
        for workload in [
            Workload::FillSeq,
            Workload::FillRandom,
            Workload::ReadRandom,
            Workload::MultiReadRandom,
            Workload::C,
        ] {
            let report = runner.run(workload)?;
            writeln!(
                out,
                "{workload:<16} batches of {batch_size:<4} {:6.1}",
                report.cpu_us_per_op * 1e3
            )?;
        }
    }
    Ok(())
}
