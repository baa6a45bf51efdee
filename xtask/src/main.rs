//! `cargo xtask`: what the repository does to itself. One file a command; no dependencies, so that it is built in a second.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a program for people that runs other programs and measures how long they take"
)]

mod child;
mod demo_debian;
mod fuzz;
mod hang;
mod lane;
mod miri;
mod models;
mod python;
mod reliability;
mod run;
mod sanitize;
mod summary;
mod test;
mod tidy;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask COMMAND

  test [--only STEP]   every test: formatting, clippy, house lints, unit, property, documentation and Python tests, and every lane of the reliability campaign
                       for a short time; ends with one line `N passed, N failed, N skipped`. A wrong STEP lists them.
  tidy                 the house lints alone (file lengths, heads, links, layers, no paths of machines)
  kill [--cycles N] [--seed S] [--dir DIR]
                       the kill test alone, with more cycles: writers are killed with SIGKILL, the database is opened and checked
  attack [--minutes M | --seconds S] [--peers N] [--seed S] [--dir DIR]
                       `glintdb serve` attacked in all ways at once by thousands of peers, while honest clients check what they get
  kernel [--minutes M] [--fs ext4,ext4-defaults,xfs,btrfs] [--seed S] [--only PART]
                       real file systems over a faulty disk in user space: power cuts, EIO, full disks, locks and limits (root, loop devices)
  sim [--seed S] [--ops N] [--options NAME] [--minutes M] [--threads T]
                       the engine on a simulated volume, cut at every operation of the volume; one seed, or a campaign of M minutes
  sweep [--set NAME] [--kind bits|swaps|truncations|files] [--seed S] [--threads T] [--full] [--index N]
                       the corruption sweep: every bit of small databases flipped, every block swapped, every file cut, replaced or gone
  fuzz [--target T] [--seconds S] [--sanitizer none|address] [--list] [--keep] [--builtin …]
                       every fuzz target under cargo-fuzz (nightly), S seconds each (60); --keep makes fuzz/corpus anew from what was found;
                       --builtin: replay and seeded random mutations without cargo-fuzz (its options: --builtin --help)
  histories [--operations N] [--seconds S] [--threads N] [--seed S] [--wrong NAME]
                       16 threads call one database while it flushes, compacts and is killed; what each call did is checked: linearizable, isolated, nothing lost
  models [--only loom|shuttle] [--seed S] [--iterations N] [--schedules M] [--seconds T] [--preemptions P]
                       loom: every execution of each model (P: at least so many preemptions); shuttle: the engine over a simulated
                       volume, N cases from number S on (100), M schedules of each (10), no new one after T seconds
  virtual-time ARGUMENTS
                       `glintdb ARGUMENTS` in a build of its own, in which the engine can run in the time of a modelled device:
                       `cargo xtask virtual-time repro dapdb all`
  miri [--seeds N]     unit tests of core, the memtable, and flash's buffers and ring under Miri (nightly); N: the memtable's threads under
                       so many schedules too
  sanitize [--address] [--thread] [--operations N]
                       tests of threads and histories under AddressSanitizer and ThreadSanitizer (nightly, minutes; its own target directories)
  seeded [--bug NAME] [--list] [--threads T] [--lane LANE] [--page]
                       planted mistakes, one at a time: which lane of the harness notices each, after how many steps; --page: docs/reliability/seeded-bugs.md
  demo-debian [--records N] [--release]
                       the Debian package index: import, serve, redis-cli and redis-benchmark, kill -9 in a second import, check
  reliability [--take ci|campaign]
                       the tables of docs/reliability.md from the lanes' reports; --take: first those in target/reliability (or GLINTDB_REPORTS)
  help                 this text
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    let outcome = match command {
        "test" => test::main(rest),
        "tidy" => tidy::main(),
        "fuzz" => fuzz::main(rest),
        "models" => models::main(rest),
        "virtual-time" => models::virtual_time(rest),
        "miri" => miri::main(rest),
        "sanitize" => sanitize::main(rest),
        "reliability" => reliability::main(rest),
        "demo-debian" => demo_debian::main(rest),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(true)
        }
        other => match lane::named(other) {
            Some(lane) => lane.main(rest),
            None => Err(format!("no command `{other}`\n\n{HELP}")),
        },
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}
