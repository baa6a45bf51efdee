//! The command line. Doc comments here are the texts of `--help`.

use crate::exit;
use crate::format::Format;
use clap::{Args, Parser, Subcommand};
use glintdb::Durability;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  glintdb serve                                  a Redis-protocol server on 127.0.0.1:6380, data in ./data
  glintdb put greeting hello                     write one record into ./data
  glintdb get greeting                           read it back
  glintdb scan --prefix user: --limit 10         the first ten records whose keys begin with `user:`
  glintdb import records.jsonl                   one {\"key\":…,\"value\":…} a line
  apt-cache dumpavail | glintdb import --format dpkg -
                                                 a Debian package index, one record a package
  glintdb check                                  read and verify every byte
  glintdb stats --json                           figures for a program";

/// A crash-safe key-value store shaped for flash.
///
/// A database is a directory: `--dir`, by default ./data. Only one process can open it at a time:
/// stop the server before you use the other commands. A new database is made only in an empty
/// directory, or in one that does not exist yet.
#[derive(Debug, Parser)]
#[command(name = "glintdb", version, after_help = format!("{EXAMPLES}\n\n{}", exit::HELP))]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the database to Redis clients, until SIGTERM, SIGINT or SHUTDOWN.
    #[command(after_help = SERVE_HELP)]
    Serve(Serve),
    /// Print the value of a key.
    Get(Get),
    /// Write a record.
    Put(Put),
    /// Delete a key, or every key with a prefix.
    Delete(Delete),
    /// List records in the order of their keys.
    Scan(Scan),
    /// Read records from a file or standard input into a keyspace, or into all of them.
    #[command(after_help = IMPORT_HELP)]
    Import(Import),
    /// Write the records of a keyspace, or of all keyspaces, to a file or standard output.
    #[command(after_help = EXPORT_HELP)]
    Export(Export),
    /// List the keyspaces, create one, change one's options, or drop one.
    #[command(after_help = KEYSPACES_HELP)]
    Keyspaces(Keyspaces),
    /// Show the engine's figures since this opening: memory, log, levels, waits, bytes; what is 0 is left out, but for --json.
    Stats(Figures),
    /// Read and verify every byte of a database, and list the errors. Changes nothing.
    #[command(after_help = CHECK_HELP)]
    Check(Figures),
    /// Recover every intact record of a damaged database into a new one.
    #[command(after_help = SALVAGE_HELP)]
    Salvage(Salvage),
    /// Show a log segment, a table or a manifest line by line. Changes nothing.
    #[command(after_help = DUMP_HELP)]
    Dump(Dump),
    /// Merge all tables of a database, and so free the space of deleted and overwritten records.
    Compact(Compact),
    /// Copy the database as it is now into a new directory, which opens as a database.
    Checkpoint(Checkpoint),
    /// Predict what each shape of the index costs for a workload, and recommend one.
    #[command(after_help = ADVISE_HELP)]
    Advise(Advise),
    /// Measure: workloads of db_bench and YCSB on a database of their own.
    Bench(glintdb_bench::BenchArgs),
}

impl Command {
    /// The directory of the database that the command works on; `None` for commands that create one
    /// of their own, and for `salvage`.
    pub(crate) fn database_dir(&self) -> Option<&Path> {
        let place = match self {
            Command::Serve(arguments) => &arguments.place,
            Command::Get(arguments) => &arguments.target.place,
            Command::Put(arguments) => &arguments.target.place,
            Command::Delete(arguments) => &arguments.target.place,
            Command::Scan(arguments) => &arguments.target.place,
            Command::Import(arguments) => &arguments.target.place,
            Command::Export(arguments) => &arguments.target.place,
            Command::Keyspaces(arguments) => &arguments.place,
            Command::Stats(arguments) | Command::Check(arguments) => &arguments.place,
            Command::Compact(arguments) => &arguments.place,
            Command::Checkpoint(arguments) => &arguments.place,
            Command::Dump(arguments) => return Some(directory_of(&arguments.file)),
            Command::Advise(arguments) => return arguments.dir.as_deref(),
            Command::Salvage(_) | Command::Bench(_) => return None,
        };
        Some(&place.dir)
    }
}

/// The directory of a file of a database, or `file` itself if it is a directory.
pub(crate) fn directory_of(file: &Path) -> &Path {
    match file.parent() {
        _ if file.is_dir() => file,
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

const IMPORT_HELP: &str = "\
Formats:
  jsonl   a JSON object a line: {\"key\":\"…\",\"value\":\"…\"}. Bytes that are not UTF-8 are in `key_base64` and
          `value_base64`. A record that expires has `\"expires_ms\":…`, milliseconds since 1970 UTC. A line
          {\"keyspace\":\"…\",\"options\":{\"compression\":\"lz4\"}} begins a keyspace (with --all).
  binary  key length (u32, little-endian), key, value length (u32, little-endian), value; and so on. With 2^31 added
          to the key length, the expiry (u64, little-endian) follows the value. With 2^30 added, a keyspace begins:
          its name is in the place of the key, lines NAME=VALUE of its options in the place of the value.
  dpkg    stanzas of a Debian package index, separated by empty lines. The key is the field `Package`, the value the
          whole stanza.

A record with an expiry is accepted in the keyspaces of the server only: `default`, and `redis-dbN` for its database N.

With --all, a keyspace that is missing or empty gets the options of the input. One that has records keeps its own.

With --acknowledge, a line `acknowledged N` follows each batch on standard output: the first N records of the input
are then stored, with the durability that was asked for. When an import fails, it says how many records it has stored.

Examples:
  glintdb import --dir ./data records.jsonl
  apt-cache dumpavail | glintdb import --format dpkg -
  glintdb export --all - | glintdb import --dir ./copy --all -";

const EXPORT_HELP: &str = "\
All records are as of one moment, in the order of their keys. Formats are those of `glintdb import`.

A record that a client of the server gave an expiry is exported with it, and left out if it has expired. With --all each
keyspace begins with its name and those of its options that are not the default. Not exported is the keyspace
`redis-expiry`, the server's index of expiries, which `import` makes again.

Examples:
  glintdb export records.jsonl                   the keyspace `default`
  glintdb export --all backup.jsonl              everything
  glintdb import --dir ./copy --all backup.jsonl";

const KEYSPACES_HELP: &str = "\
The number of records is exact for keyspaces with at most 262,144 entries. An entry is a put or a deletion that
compactions have not merged with a newer one yet. For larger keyspaces the number is an estimate that says `about`:
expect it to be within 10 %. `glintdb scan --count` counts exactly.

Options and their limits: docs/options.md. Listed are those that are not the default; with --json all.

Examples:
  glintdb keyspaces
  glintdb keyspaces --create logs --option compression=lz4
  glintdb keyspaces --change logs --option size_ratio=6 --option pinned_levels=2";

const ADVISE_HELP: &str = "\
More levels mean fewer bytes written by compactions and more levels that a lookup may have to read. Levels that are
pinned in memory are not read from the device.

The table has the fastest shape for each number of levels, and every number of pinned levels for the recommended one.
The first three columns are options of a keyspace. The row marked * is recommended: of the shapes within 1 % of the
least device time, it has the fewest index reads of a lookup; ties go to the fewest bytes written by the index. The
last line is the command that sets the options of that row.

Predictions assume that all keys are used equally often. If some keys are used more than others, caches do better.

With DIR, the number of records and the sizes of keys, values and index entries are taken from that database. No
other process may have it open.

Examples:
  glintdb advise --capacity 1T --memory 16G --key-size 16 --value-size 1000 --read-percent 90 --scan-percent 5
  glintdb advise ./data --memory 4G --read-percent 50 --plot shapes.svg";

const CHECK_HELP: &str = "\
Prints each error with its file and offset, then three lines of totals:
  the files and bytes that were read, and the number of errors;
  entries: puts and deletions in the tables, and those in the log that no table holds yet;
  separated values: values that are stored in the log and not beside their keys.
A key that was written several times can have several entries, so there are at least as many entries as records.
`glintdb scan --count` counts records.

Ends with code 0 if there are no errors, else with code 1, and then names the command that recovers the intact records.
No other process may have the database open. On a terminal, a progress bar is shown.

Examples:
  glintdb check --dir ./data
  glintdb check --dir ./data --json";

const SALVAGE_HELP: &str = "\
DIR may be damaged in any way: files that are missing, cut short or rotten in places, the manifest included. Nothing in it is changed. For each key the newest intact version is taken, and
deletions are honoured. Where a newer version is lost and an older one is found, the older one is taken, and counted as uncertain.
Without a whole manifest keyspaces whose names are lost are called `keyspace-N`, and records that were deleted long ago may be back.

Ends with code 0 when everything was recovered, with 1 when something is lost or may be; the report names files and offsets.

Examples:
  glintdb check --dir ./data                     what is wrong?
  glintdb salvage ./data ./recovered             take out what is intact
  glintdb check --dir ./recovered                a healthy database";

const DUMP_HELP: &str = "\
The first line describes the file. The following lines show its content in the order of the file: the frames of a log
segment with their operations, the entries of a table, or the records of a manifest with their items.

A line is `what name=value ...`. Long keys and values are cut; with --json they are complete, and those that are not
UTF-8 are in fields whose names end with `_base64`. In a damaged table all intact entries are shown, then the ranges of
lost keys.

Examples:
  glintdb dump ./data                            list the files of a database
  glintdb dump --limit 20 ./data/log-0000000000000001.glint
  glintdb dump --json ./data/table-0000000000000002.glint | jq 'select(.what == \"put\").key'";

const SERVE_HELP: &str = "\
Any Redis client can talk to it (RESP2 and RESP3): redis-cli -p 6380 SET greeting hello

When the server takes connections, it prints one line on standard output, `listening on ADDRESS`. Standard error gets
the version, the directory, the memory budget, the durability and the time that opening took; later also warnings.";

/// Which database.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The database's directory.
    #[arg(long, value_name = "DIR", default_value = "./data")]
    pub(crate) dir: PathBuf,
    /// Memory that the engine may use, in MiB [default: a quarter of the machine's, at most 1024].
    #[arg(long, value_name = "MIB")]
    pub(crate) memory_mb: Option<usize>,
}

/// How to open a database to write to it.
#[derive(Debug, Args)]
pub(crate) struct Engine {
    /// Set an option of the database while the command runs, e.g. `background_threads=1`. Names and
    /// limits are in docs/options.md. May be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) option: Vec<String>,
}

/// Which keyspace of which database.
#[derive(Debug, Args)]
pub(crate) struct Target {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The keyspace.
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    pub(crate) keyspace: String,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The address to listen on, or a host name for it such as `localhost`. Without a password only
    /// a loopback address is allowed.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) bind: String,
    /// The port to listen on; 0 takes a free one.
    #[arg(long, default_value_t = 6380)]
    pub(crate) port: u16,
    /// What a write survives once it is answered: `os` a kill of the process, `sync` a power cut, `buffered` neither.
    #[arg(long, default_value = "os")]
    pub(crate) durability: Durability,
    /// The password that clients send with AUTH. Other users can see a command line: better set it
    /// in the environment.
    #[arg(long, env = "GLINTDB_PASSWORD", hide_env_values = true)]
    pub(crate) password: Option<String>,
    #[command(flatten)]
    pub(crate) engine: Engine,
    #[command(flatten)]
    pub(crate) limits: Limits,
}

/// What clients may take; names and meaning as in Redis where Redis has them.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct Limits {
    /// Most connections at once; further ones are told so and closed.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) maxclients: u32,
    /// Most memory of all connections together, in MiB: above it the one that holds most is closed; 0 for no limit.
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub(crate) maxmemory_clients: u32,
    /// Largest request, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) client_query_buffer_limit: u32,
    /// Answers that a connection has not taken: above HARD MiB it is closed, above SOFT MiB not read from, and after SECONDS in which it took none it is closed (0: never).
    #[arg(long, num_args = 3, value_names = ["HARD", "SOFT", "SECONDS"], default_values_t = [1024, 64, 60])]
    pub(crate) client_output_buffer_limit: Vec<u32>,
    /// Close a connection that is silent for so many seconds; 0 for never.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(crate) timeout: u32,
    /// Close a connection that has not shown the password after so many seconds; 0 for never.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) auth_timeout: u32,
    /// Probe a silent connection after so many seconds, whether its other end still lives; 0 for never.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub(crate) tcp_keepalive: u32,
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The key; `base64:…` for one that cannot be typed.
    #[arg(allow_negative_numbers = true)]
    pub(crate) key: OsString,
    #[command(flatten)]
    pub(crate) target: Target,
    /// Print no line end after the value.
    #[arg(long)]
    pub(crate) raw: bool,
    /// Print key, value and expiry as a JSON object.
    #[arg(long, conflicts_with = "raw")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Put {
    /// The key; `base64:…` for one that cannot be typed.
    #[arg(allow_negative_numbers = true)]
    pub(crate) key: OsString,
    /// The value; `base64:…` for one that cannot be typed, `-` for standard input.
    #[arg(allow_hyphen_values = true)]
    pub(crate) value: OsString,
    #[command(flatten)]
    pub(crate) target: Target,
    /// Create the keyspace if there is none of this name.
    #[arg(long)]
    pub(crate) create: bool,
    /// What the write must survive before the command ends: `os` a kill of the process, `sync` a power cut.
    #[arg(long, default_value = "sync")]
    pub(crate) durability: Durability,
    #[command(flatten)]
    pub(crate) engine: Engine,
}

#[derive(Debug, Args)]
#[group(id = "what", required = true, multiple = false, args = ["key", "prefix"])]
pub(crate) struct Delete {
    /// The key; `base64:…` for one that cannot be typed. A missing key is no error.
    #[arg(allow_negative_numbers = true)]
    pub(crate) key: Option<OsString>,
    /// Delete every key that begins with this.
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) prefix: Option<OsString>,
    #[command(flatten)]
    pub(crate) target: Target,
    /// What the deletion must survive before the command ends: `os` a kill of the process, `sync` a power cut.
    #[arg(long, default_value = "sync")]
    pub(crate) durability: Durability,
    #[command(flatten)]
    pub(crate) engine: Engine,
}

#[derive(Debug, Args)]
pub(crate) struct Scan {
    #[command(flatten)]
    pub(crate) target: Target,
    /// List only keys that begin with this.
    #[arg(long, conflicts_with_all = ["from", "to"], allow_hyphen_values = true)]
    pub(crate) prefix: Option<OsString>,
    /// Begin with this key.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub(crate) from: Option<OsString>,
    /// End before this key.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub(crate) to: Option<OsString>,
    /// List from the last key to the first.
    #[arg(long)]
    pub(crate) reverse: bool,
    /// List at most this many records.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Print keys only. Values are then not read, unless keys of the server may have expired.
    #[arg(long)]
    pub(crate) keys_only: bool,
    /// Print only the number of records.
    #[arg(long, conflicts_with = "keys_only")]
    pub(crate) count: bool,
    /// Print a JSON object a record, with its expiry.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The file; `-` for standard input.
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) target: Target,
    /// Create the keyspace if there is none of this name.
    #[arg(long)]
    pub(crate) create: bool,
    /// Import an input of `export --all`: each record goes into the keyspace that the input names,
    /// which is created if it is missing.
    #[arg(long, conflicts_with_all = ["keyspace", "create"])]
    pub(crate) all: bool,
    /// The format of the input.
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    pub(crate) format: Format,
    /// Put this before every key.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    pub(crate) key_prefix: OsString,
    /// Records in a batch. A batch is written whole or not at all; it ends earlier when it holds 1
    /// MiB.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) batch_records: u64,
    /// What an acknowledged batch survives: `os` a kill of the process, `sync` a power cut, `buffered` nothing before the end of the import.
    #[arg(long, default_value = "os")]
    pub(crate) durability: Durability,
    /// Print `acknowledged N` after each batch.
    #[arg(long)]
    pub(crate) acknowledge: bool,
    /// Print the closing figures as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress bar.
    #[arg(long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) engine: Engine,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// The file (must not exist); `-` for standard output.
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) target: Target,
    /// Export every keyspace with its options, for `import --all`.
    #[arg(long, conflicts_with = "keyspace")]
    pub(crate) all: bool,
    /// The format of the output.
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    pub(crate) format: Format,
    /// Export only keys that begin with this.
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) prefix: Option<OsString>,
    /// Show no progress bar.
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Keyspaces {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Create a keyspace of this name.
    #[arg(long, value_name = "NAME")]
    pub(crate) create: Option<String>,
    /// Change the options of the keyspace of this name to those in `--option`. What is stored
    /// already stays as it is until it is compacted.
    #[arg(
        long,
        value_name = "NAME",
        requires = "option",
        conflicts_with = "create"
    )]
    pub(crate) change: Option<String>,
    /// Set an option of the keyspace that is created or changed, e.g. `compression=lz4`, or of the
    /// database while the command runs. May be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) option: Vec<String>,
    /// Drop the keyspace of this name, with everything in it.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["create", "change"])]
    pub(crate) drop: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Figures {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Salvage {
    /// The damaged database's directory. No process may have it open.
    pub(crate) dir: PathBuf,
    /// The new database's directory; it must not exist. While the command runs there is another one beside it, with `.candidates` behind its name.
    pub(crate) out: PathBuf,
    /// Memory for the new database, and as much again for what is found, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(8..=1 << 20))]
    pub(crate) memory_mb: u32,
    /// Print the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress bar.
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Dump {
    /// A file of a database (`data/log-….glint`, `data/table-….glint`, `data/manifest-….glint`).
    /// With a database's directory, its files are listed with their sizes.
    pub(crate) file: PathBuf,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print at most N lines.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct Advise {
    /// Take the workload's sizes from the database in this directory.
    #[arg(conflicts_with_all = ["capacity", "records", "key_size", "value_size"])]
    pub(crate) dir: Option<PathBuf>,
    /// The keyspace of that database.
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    pub(crate) keyspace: String,
    /// As many records as fit this much space, e.g. `1T`.
    #[arg(long, value_name = "BYTES", value_parser = glintdb::parse_bytes)]
    pub(crate) capacity: Option<u64>,
    /// This many records.
    #[arg(long, value_name = "N", conflicts_with = "capacity", value_parser = glintdb_bench::parse_count)]
    pub(crate) records: Option<u64>,
    /// Memory budget of the engine [default: a quarter of the machine's, 1G at most].
    #[arg(long, value_name = "BYTES", value_parser = glintdb::parse_bytes)]
    pub(crate) memory: Option<u64>,
    /// Mean size of a key.
    #[arg(long, value_name = "BYTES", default_value = "16", value_parser = glintdb::parse_bytes)]
    pub(crate) key_size: u64,
    /// Mean size of a value.
    #[arg(long, value_name = "BYTES", default_value = "1000", value_parser = glintdb::parse_bytes)]
    pub(crate) value_size: u64,
    /// Percentage of operations that look up one key.
    #[arg(long, value_name = "PERCENT", default_value_t = 50.0)]
    pub(crate) read_percent: f64,
    /// Percentage of operations that scan. The remaining operations are writes.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    pub(crate) scan_percent: f64,
    /// Records that one scan returns.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) scan_records: u32,
    /// Write a plot to this SVG file: worst-case reads of a lookup over bytes written, one line for
    /// each number of pinned levels.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Print all compared shapes as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Compact {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Only this keyspace.
    #[arg(long, short, value_name = "NAME")]
    pub(crate) keyspace: Option<String>,
    /// Also rewrite the values in the log in the order of their keys, unless they are in that order
    /// already. Scans then read them in long sequential reads.
    #[arg(long)]
    pub(crate) values: bool,
    #[command(flatten)]
    pub(crate) engine: Engine,
}

#[derive(Debug, Args)]
pub(crate) struct Checkpoint {
    /// The new directory; it must not exist.
    pub(crate) to: PathBuf,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[cfg(test)]
mod tests {
    use super::Arguments;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    /// `docs/cli.md`, made from the texts of `--help`.
    fn page() -> String {
        let mut page = String::from(
            "# The `glintdb` program\n\nMade from the texts of `--help`; a test holds it to them (`GLINTDB_BLESS=1 cargo test -p glintdb-cli` writes it anew).\n",
        );
        let mut command = Arguments::command().term_width(0);
        command.build();
        let mut add = |title: &str, help: String| {
            let help: Vec<&str> = help.lines().map(str::trim_end).collect();
            page += &format!(
                "\n## {title}\n\n```text\n{}\n```\n",
                help.join("\n").trim_end()
            );
        };
        add("glintdb", command.render_long_help().to_string());
        for subcommand in command.get_subcommands_mut() {
            let name = subcommand.get_name().to_string();
            if name != "help" {
                add(
                    &format!("glintdb {name}"),
                    subcommand.render_long_help().to_string(),
                );
            }
        }
        page
    }

    #[test]
    fn the_page_in_docs_says_what_help_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
        if std::env::var_os("GLINTDB_BLESS").is_some() {
            std::fs::write(path, page()).expect("docs/cli.md can be written");
        }
        let written = std::fs::read_to_string(path).expect("docs/cli.md is there");
        assert!(
            written == page(),
            "docs/cli.md is not what --help says; GLINTDB_BLESS=1 writes it anew"
        );
    }
}
