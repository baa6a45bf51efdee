//! Arguments of a row at another scale.

use glintdb_bench::figures::SMOKE_SCALE_MAX;
use glintdb_bench::parse_count;

use crate::preset::pairs;

/// Least of what a smaller scale leaves, so that each row still does something.
const COUNT_MIN: u64 = 500;
const SECONDS_MIN: f64 = 0.2;
const MEMORY_MB_MIN: u64 = 64;

/// The arguments with counts, durations and memory multiplied by `scale`, which leaves the ratio of
/// data to memory as it is. Below [`SMOKE_SCALE_MAX`] there is no memory limit, because an engine
/// does not fit into so little; such rows run cold without one.
pub(super) fn scaled(args: &str, scale: f64) -> String {
    if (scale - 1.0).abs() < f64::EPSILON {
        return args.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    let mut words = Vec::new();
    let (subcommand, options) = args.split_once(' ').unwrap_or((args, ""));
    words.push(subcommand.to_owned());
    for (option, value) in pairs(options) {
        let value = value.unwrap_or_default();
        let number = value.parse::<f64>().unwrap_or(0.0) * scale;
        match option {
            "--limit-mb" if scale < SMOKE_SCALE_MAX => {
                words.push("--cold".to_owned());
                continue;
            }
            "--memory-mb" | "--limit-mb" => {
                words.push(option.to_owned());
                words.push((number.round() as u64).max(MEMORY_MB_MIN).to_string());
            }
            "--num" | "--ops" | "--warmup-ops" => {
                let count = parse_count(value).unwrap_or(0) as f64 * scale;
                words.push(option.to_owned());
                words.push((count.round() as u64).max(COUNT_MIN).to_string());
            }
            "--duration" | "--warmup" => {
                words.push(option.to_owned());
                words.push(format!("{:.1}", number.max(SECONDS_MIN)));
            }
            _ => words.extend([option.to_owned(), value.to_owned()]),
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARGS: &str = "run --workloads overwrite --num 3m --ops 9m --duration 75 --threads 2 \
                        --limit-mb 1200 --memory-mb 384";

    #[test]
    fn full_scale_changes_nothing() {
        assert_eq!(scaled(ARGS, 1.0), ARGS);
    }

    #[test]
    fn counts_durations_and_memory_follow_the_scale_and_threads_do_not() {
        assert_eq!(
            scaled(ARGS, 0.5),
            "run --workloads overwrite --num 1500000 --ops 4500000 --duration 37.5 --threads 2 --limit-mb 600 \
             --memory-mb 192"
        );
        assert_eq!(
            scaled("recovery --num 60k --value-size 1024", 2.0),
            "recovery --num 120000 --value-size 1024"
        );
    }

    #[test]
    fn smoke_runs_have_no_memory_limit_and_least_sizes() {
        assert_eq!(
            scaled(ARGS, 0.0001),
            "run --workloads overwrite --num 500 --ops 900 --duration 0.2 --threads 2 --cold --memory-mb 64"
        );
    }
}
