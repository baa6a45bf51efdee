//! `bench`: workloads of db_bench and YCSB on a database of their own.

use crate::exit::Failure;
use glintdb_bench::BenchArgs;

pub(super) fn run(arguments: &BenchArgs) -> Result<(), Failure> {
    let outcome = glintdb_bench::run(arguments, &mut std::io::stdout());
    match outcome {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::Usage(
            "what was read is not what the arguments say was written: either the database was filled with another --num, --value-size or --seed, or not at all (put a fill in front), or the engine gave wrong answers; see the rows that say so".into(),
        )),
        Err(error) => Err(error.into()),
    }
}
