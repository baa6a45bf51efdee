//! The command line. Doc comments here are the texts of `--help`.

use crate::exit;
use crate::format::Format;
use clap::{Args, Parser, Subcommand};
use glintdb::{Durability, Placement};
use glintdb_bench::VolumeName;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  glintdb serve                                  a Redis-protocol server on 127.0.0.1:6380, data in ./data
  glintdb put greeting hello                     write one record into ./data
  glintdb get greeting                           read it back
  glintdb scan --prefix user: --limit 10         the first ten records whose keys begin with `user:`
  glintdb import records.jsonl                   JSON lines: {\"key\":…,\"value\":…}
  apt-cache dumpavail | glintdb import --format dpkg -
                                                 a Debian package index, one record a package
  glintdb check                                  read and verify every byte
  glintdb stats --json                           statistics as JSON";

/// A crash-safe key-value store for flash drives.
///
/// A database is a directory, which `--dir` names (default ./data), or several: `dirs:PATH,PATH`.
/// Only one process can open a
/// database, so stop the server before you run another command. `serve`, `put`, `import` and
/// `keyspaces --create` create the database if the directory is empty or missing. Other commands
/// fail.
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
    /// List records in key order.
    Scan(Scan),
    /// Import records from a file or standard input into a keyspace or, with --all, into several.
    #[command(after_help = IMPORT_HELP)]
    Import(Import),
    /// Export the records of one keyspace, or of all, to a file or standard output.
    #[command(after_help = EXPORT_HELP)]
    Export(Export),
    /// List keyspaces; create, change or drop one.
    #[command(after_help = KEYSPACES_HELP)]
    Keyspaces(Keyspaces),
    /// Open the database and show its statistics: sizes, levels, memory, waits.
    ///
    /// Counters start at zero when the command opens the database. Zeros are omitted, except with
    /// --json.
    Stats(Figures),
    /// Verify every byte of a database and list the errors. Changes nothing.
    #[command(after_help = CHECK_HELP)]
    Check(Check),
    /// Copy every intact record of a damaged database into a new database.
    #[command(after_help = SALVAGE_HELP)]
    Salvage(Salvage),
    /// Show a log segment, a table or a manifest line by line. Changes nothing.
    #[command(after_help = DUMP_HELP)]
    Dump(Dump),
    /// Flush and compact all tables: removes deleted and overwritten entries from the index.
    Compact(Compact),
    /// Give a keyspace an index of another kind.
    #[command(after_help = CONVERT_HELP)]
    Convert(Convert),
    /// Make a consistent copy of the database in a new directory.
    ///
    /// Files are hard-linked if the file system allows it, else copied. Copy the checkpoint to
    /// another drive to have a backup.
    Checkpoint(Checkpoint),
    /// Predict the costs of each kind of index for a workload, and recommend one.
    #[command(after_help = ADVISE_HELP)]
    Advise(Advise),
    /// Run workloads of db_bench and YCSB on a separate database.
    Bench(glintdb_bench::BenchArgs),
    /// Measure readers and writers on a modelled flash device, without a database.
    #[command(after_help = FLASH_BENCH_HELP)]
    FlashBench(FlashBench),
    /// Run figures of the papers that GlintDB builds on, and compare with what they report.
    #[command(after_help = REPRO_HELP)]
    Repro(Repro),
}

impl Command {
    /// The directory of the database that the command works on; `None` for commands that create one
    /// of their own, and for `salvage`.
    pub(crate) fn database_dir(&self) -> Option<&Path> {
        let place = match self {
            Command::Serve(arguments) => match &arguments.volume {
                Some(volume) => return volume.path(),
                None => &arguments.place,
            },
            Command::Get(arguments) => &arguments.target.place,
            Command::Put(arguments) => &arguments.target.place,
            Command::Delete(arguments) => &arguments.target.place,
            Command::Scan(arguments) => &arguments.target.place,
            Command::Import(arguments) => &arguments.target.place,
            Command::Export(arguments) => &arguments.target.place,
            Command::Keyspaces(arguments) => &arguments.place,
            Command::Stats(arguments) => &arguments.place,
            Command::Check(arguments) => return Some(&arguments.dir),
            Command::Compact(arguments) => &arguments.place,
            Command::Convert(arguments) => &arguments.place,
            Command::Checkpoint(arguments) => &arguments.place,
            Command::Dump(arguments) => return Some(directory_of(&arguments.file)),
            Command::Advise(arguments) => return arguments.dir.as_deref(),
            Command::Salvage(_) | Command::Bench(_) => return None,
            Command::FlashBench(_) | Command::Repro(_) => return None,
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
  jsonl   one JSON object per line: {\"key\":\"…\",\"value\":\"…\"}. Use `key_base64` and `value_base64` for bytes
          that are not UTF-8. A record that expires has `\"expires_ms\":…`, milliseconds since 1970 UTC. With --all,
          a line {\"keyspace\":\"…\",\"options\":{\"compression\":\"lz4\"}} names the keyspace of the records
          that follow.
  binary  per record: key length (u32), key, value length (u32), value. If bit 31 of the key length is set, an
          expiry (u64, milliseconds since 1970 UTC) follows the value. If bit 30 is set, the record starts a
          keyspace: the key is its name, and the value its options, one NAME=VALUE per line. Integers are
          little-endian.
  dpkg    stanzas of a Debian package index, separated by empty lines. The key is the field `Package`, the value
          the whole stanza. Not allowed with --all.

Existing keys are overwritten. Only the server's keyspaces accept records with an expiry: `default`, and `redis-db1`
to `redis-db1023`. With --all, a missing or empty keyspace gets the options in the input. A keyspace with records
keeps its options.

With --acknowledge, the command prints `acknowledged N` after each batch. The first N records of the input are then
stored with the requested durability. If an import fails, the records stored so far remain, and the message gives
their number.

Examples:
  glintdb import --dir ./data records.jsonl
  apt-cache dumpavail | glintdb import --format dpkg -
  glintdb export --all - | glintdb import --dir ./copy --all -";

const EXPORT_HELP: &str = "\
The export is a consistent snapshot in key order. The formats are the same as for `glintdb import`.

Records keep their expiry; expired records are left out. With --all, each keyspace begins with its name and those of
its options that are not the default. --all leaves out the keyspace `redis-expiry`, the server's index of expiries;
`import` rebuilds it.

Examples:
  glintdb export records.jsonl                   the keyspace `default`
  glintdb export --all backup.jsonl              everything
  glintdb import --dir ./copy --all backup.jsonl";

const KEYSPACES_HELP: &str = "\
The number of records is exact for keyspaces with at most 262,144 index entries; overwritten and deleted records
count as entries until a compaction removes them. For larger keyspaces the number is an estimate, marked `about` and
usually within 10 %. `glintdb scan --count` counts exactly.

docs/options.md describes the options. The list shows options that differ from the default; --json shows all.

Examples:
  glintdb keyspaces
  glintdb keyspaces --create logs --option compression=lz4
  glintdb keyspaces --change logs --option size_ratio=6 --option pinned_levels=2";

const CONVERT_HELP: &str = "\
An option that both kinds of indexes have keeps its value. The others get their defaults, or what --option says.
A conversion that fails or is killed leaves the old index.

`lsm` to `btree` takes a moment. Whenever the database is open, background jobs then merge the tables into the tree;
`glintdb compact` does so at once. `btree` to `lsm` reads and writes the leaves of the tree once, and needs free space
for them. Between `btree` and `btree-reshaped` only an option changes.

Examples:
  glintdb convert default --index btree
  glintdb convert logs --index lsm --option size_ratio=6";

const ADVISE_HELP: &str = "\
Give DIR, --records or --capacity. With more levels, compactions write less and lookups may read more. Levels that
are pinned in memory are not read from the device.

The table shows the fastest setting for each number of levels. For the recommended number of levels, it shows every
number of pinned levels. The first three columns are options of a keyspace. The row marked * is recommended: it needs
the fewest index reads per lookup among the settings within 1 % of the lowest device time. If several do, the one
that writes least wins. The last line is the command that sets the options of that row.

Predictions assume that all keys are used equally often. If some keys are used more than others, caches do better.

With DIR, the number of records and the sizes of keys, values and index entries come from that database, which no
other process may have open.

Examples:
  glintdb advise --capacity 1T --memory 16G --key-size 16 --value-size 1000 --read-percent 90 --scan-percent 5
  glintdb advise ./data --memory 4G --read-percent 50 --plot shapes.svg";

const CHECK_HELP: &str = "\
Prints each error with its file and offset, then three lines of totals:
  the files and bytes that were read, and the number of errors;
  entries: puts and deletions in tables, and in the log but not yet in tables;
  separated values: values stored in the log instead of in tables.
A key that was written several times can have several entries, so there are at least as many entries as records.
`glintdb scan --count` counts records.

The exit code is 0 if there are no errors and 1 otherwise. If there are errors, the output (except with --json) ends
with the `salvage` command to run. No other process may have the database open. A terminal shows a progress bar.

Examples:
  glintdb check --dir ./data
  glintdb check --dir ./data --json";

const SALVAGE_HELP: &str = "\
DIR may have missing, truncated or corrupted files, the manifest included. The command does not change DIR.

For each key, the command keeps the newest intact version and applies deletions. If a newer version is damaged, it
keeps the older one and counts the record as uncertain. If the manifest is damaged, keyspaces may be renamed to
`keyspace-N`. If the manifest or a node of a B+tree is damaged, deleted records may reappear.

The exit code is 0 if everything was recovered, and 1 if data is or may be lost. The report lists files and offsets.

Examples:
  glintdb check --dir ./data                     what is wrong?
  glintdb salvage ./data ./recovered             take out what is intact
  glintdb check --dir ./recovered                a healthy database";

const DUMP_HELP: &str = "\
The first line describes the file. Each operation of a log segment, entry of a table or item of a manifest then has a
line, in the order of the file.

A line is `what name=value ...`. Long keys and values are truncated. With --json they are complete, and fields that are
not UTF-8 end with `_base64`. In a damaged table all intact entries are shown, then the ranges of lost keys.

Examples:
  glintdb dump ./data                            list the files of a database
  glintdb dump --limit 20 ./data/log-0000000000000001.glint
  glintdb dump --json ./data/table-0000000000000002.glint | jq 'select(.what == \"put\").key'";

const FLASH_BENCH_HELP: &str = "\
The device is a model: it computes when each operation is done, and has no data. Equal arguments give equal output,
but for --real-time.
docs/flash.md says how the model works, and what real devices do.

Columns:
  MB/s    of all readers or all writers, over their own time; `sum` adds both, and can be above what the device does at
          a time
  us      latency of a command, which addresses up to 64 sectors
  busy    part of the time that LUNs were busy: in the mean, and the busiest one
  late    of --real-time: how late waits ended; its row and the computed one are beside each other
  failed  commands that the medium has failed or refused in part, and erases; exit code 5 if all operations of a run
          have failed

Examples:
  glintdb flash-bench                            one reader and one writer, sharing all LUNs or with a half each
  glintdb flash-bench --width 32,64 --threads 1,2,4,8,16,32,64
                                                 figure 4 of the DapDB paper
  glintdb flash-bench --profile mqsim-mlc --width 8 --readers 4 --writers 1 --block-size 128k --plot units.png
  glintdb flash-bench --live                     a film of what each LUN does
  glintdb flash-bench --print-profile > my.toml  a file to edit, for --profile ./my.toml";

const SERVE_HELP: &str = "\
Redis clients can connect with RESP2 or RESP3: redis-cli -p 6380 SET greeting hello
docs/server.md lists the commands that the server supports.

When it is ready, the server prints `listening on ADDRESS` on standard output. It writes a summary of the database, and
later warnings, to standard error.";

/// Arguments of `flash-bench`.
#[derive(Debug, Args)]
pub(crate) struct FlashBench {
    #[command(flatten)]
    pub(crate) bench: glintdb_bench::flash::FlashBenchArgs,
    /// Write a picture of what each LUN did in the last run: PNG if the name ends in .png, SVG if
    /// it ends in .svg or has no ending. The labels of a PNG need fonts of the system; without any,
    /// it has none, and a line on standard error says so.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Show in the terminal what each LUN does, and the rates: each run, as soon as it is computed,
    /// slowed down or sped up. All together take 10 s, but a run 2 s at least. The table follows.
    /// `n` goes to the next run; `q`, Esc or Ctrl-C to the table. Not with --real-time.
    #[arg(long, conflicts_with = "real_time")]
    pub(crate) live: bool,
}

const REPRO_HELP: &str = "\
Examples:
  glintdb repro list                  all figures and tables, and how each is run
  glintdb repro dapdb 4               figure 4 of the DapDB paper
  glintdb repro dapdb all --out figures
                                      every figure of that paper that is a model; a page and a plot of each";

/// Arguments of `repro`.
#[derive(Debug, Args)]
pub(crate) struct Repro {
    /// Paper: dapdb, p-fetch, key-reshaping, lsm-kvd or parallel-compaction; or `list`.
    #[arg(value_name = "PAPER|list")]
    pub(crate) paper: String,
    /// Number of the figure, such as 4, or t1 for table 1; `all` runs those that are models.
    pub(crate) figure: Option<String>,
    /// Run on less data.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Write a Markdown page and an SVG plot of each figure into this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which database.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The database's directory. For one that has several: dirs:PATH,PATH.
    #[arg(long, value_name = "DIR", default_value = "./data")]
    pub(crate) dir: PathBuf,
    /// Memory budget, in MiB [default: a quarter of RAM, at most 1024].
    #[arg(long, value_name = "MIB")]
    pub(crate) memory_mb: Option<usize>,
}

/// How to open a database to write to it.
#[derive(Debug, Args)]
pub(crate) struct Engine {
    /// Set a database option for this command, e.g. `background_threads=1`. See docs/options.md.
    /// May be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) option: Vec<String>,
}

/// Keyspaces that the command creates.
#[derive(Debug, Args)]
pub(crate) struct Created {
    /// Kind of index of keyspaces that this command creates, `default` in a new database included:
    /// `lsm`, `btree` or `btree-reshaped` [default: lsm]. See `glintdb convert` for a keyspace that
    /// has records.
    #[arg(long, value_name = "KIND")]
    pub(crate) index: Option<String>,
}

/// Which keyspace of which database.
#[derive(Debug, Args)]
pub(crate) struct Target {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The keyspace to use.
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    pub(crate) keyspace: String,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) place: Place,
    /// In place of --dir: several directories, dirs:PATH,PATH; or a modelled flash device, as slow
    /// as a real one, emulator:PROFILE (the data is in memory, and gone with the server) or
    /// emulator:PROFILE:DIR. docs/flash.md lists profiles.
    #[arg(long, value_name = "VOLUME", conflicts_with = "dir")]
    pub(crate) volume: Option<VolumeName>,
    /// Which directories, or units of the device, files use: striping (all), isolation:1:1 (units
    /// of their own for the log and for tables, in this proportion), isolation:3:3:2 (for the log,
    /// for tables of flushes, and for deeper tables), another rule of docs/flash.md, or, on a
    /// modelled device, dynamic (striping or isolation, by the load) [default: striping].
    #[arg(long, value_name = "PLACEMENT")]
    pub(crate) placement: Option<Placement>,
    /// Address or host name to listen on. An address other than loopback needs --password.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) bind: String,
    /// The port to listen on; 0 takes a free one.
    #[arg(long, default_value_t = 6380)]
    pub(crate) port: u16,
    /// Durability of writes: `os` survives a killed process, `sync` also a power cut, `buffered`
    /// neither.
    #[arg(long, default_value = "os")]
    pub(crate) durability: Durability,
    /// Password for AUTH. Prefer the environment variable: other users can see the command line.
    #[arg(long, env = "GLINTDB_PASSWORD", hide_env_values = true)]
    pub(crate) password: Option<String>,
    #[command(flatten)]
    pub(crate) engine: Engine,
    #[command(flatten)]
    pub(crate) created: Created,
    #[command(flatten)]
    pub(crate) limits: Limits,
}

/// What clients may take; names and meaning as in Redis where Redis has them.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct Limits {
    /// Maximum number of connections. At the limit, the server closes a connection that has not
    /// authenticated, or refuses the new one.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) maxclients: u32,
    /// Memory limit of all connections together, in MiB. Above it, the server closes the
    /// connections that use most. 0: no limit.
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub(crate) maxmemory_clients: u32,
    /// Maximum size of a request, in MiB (1 to 1024).
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) client_query_buffer_limit: u32,
    /// Limits for unread replies of a connection. Above HARD MiB, the server closes it. Above SOFT
    /// MiB, the server stops reading from it. If the client reads nothing for SECONDS, the server
    /// closes it; 0: never.
    #[arg(long, num_args = 3, value_names = ["HARD", "SOFT", "SECONDS"], default_values_t = [1024, 64, 60])]
    pub(crate) client_output_buffer_limit: Vec<u32>,
    /// Close connections that are idle for SECONDS; 0: never.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(crate) timeout: u32,
    /// Close connections that have not authenticated within SECONDS; 0: never.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) auth_timeout: u32,
    /// Send TCP keepalive probes after SECONDS without traffic; 0: never.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub(crate) tcp_keepalive: u32,
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The key. Write `base64:` and the encoded bytes for a binary key, or for one that begins with
    /// `base64:`.
    #[arg(allow_negative_numbers = true)]
    pub(crate) key: OsString,
    #[command(flatten)]
    pub(crate) target: Target,
    /// Do not print a newline after the value.
    #[arg(long)]
    pub(crate) raw: bool,
    /// Print key, value and expiry as a JSON object.
    #[arg(long, conflicts_with = "raw")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Put {
    /// The key. Write `base64:` and the encoded bytes for a binary key, or for one that begins with
    /// `base64:`.
    #[arg(allow_negative_numbers = true)]
    pub(crate) key: OsString,
    /// The value: text, `base64:` and encoded bytes, or `-` for standard input.
    #[arg(allow_hyphen_values = true)]
    pub(crate) value: OsString,
    #[command(flatten)]
    pub(crate) target: Target,
    /// Create the keyspace if it does not exist.
    #[arg(long)]
    pub(crate) create: bool,
    /// Durability of the write: `os` survives a killed process, `sync` also a power cut, `buffered`
    /// neither.
    #[arg(long, default_value = "sync")]
    pub(crate) durability: Durability,
    #[command(flatten)]
    pub(crate) engine: Engine,
}

#[derive(Debug, Args)]
#[group(id = "what", required = true, multiple = false, args = ["key", "prefix"])]
pub(crate) struct Delete {
    /// The key: text, or `base64:` and encoded bytes. A missing key is not an error.
    #[arg(allow_negative_numbers = true)]
    pub(crate) key: Option<OsString>,
    /// Delete every key that begins with this.
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) prefix: Option<OsString>,
    #[command(flatten)]
    pub(crate) target: Target,
    /// Durability of the deletion: `os` survives a killed process, `sync` also a power cut,
    /// `buffered` neither.
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
    /// Lower bound, inclusive, also with --reverse.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub(crate) from: Option<OsString>,
    /// Upper bound, exclusive, also with --reverse.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub(crate) to: Option<OsString>,
    /// List from the last key to the first.
    #[arg(long)]
    pub(crate) reverse: bool,
    /// List at most this many records.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Print only keys. Values are read only if needed to skip expired keys.
    #[arg(long)]
    pub(crate) keys_only: bool,
    /// Print only the number of records.
    #[arg(long, conflicts_with = "keys_only")]
    pub(crate) count: bool,
    /// Print one JSON object per record, including its expiry.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The file; `-` for standard input.
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) target: Target,
    /// Create the keyspace if it does not exist.
    #[arg(long)]
    pub(crate) create: bool,
    /// Import an input of `export --all`: each record goes into the keyspace that the input names,
    /// which is created if it is missing.
    #[arg(long, conflicts_with_all = ["keyspace", "create", "index"])]
    pub(crate) all: bool,
    /// The format of the input.
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    pub(crate) format: Format,
    /// Prefix to add to every key.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    pub(crate) key_prefix: OsString,
    /// Maximum records per batch. A batch is atomic, and ends earlier when it holds 1 MiB.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) batch_records: u64,
    /// Durability of each batch: `os` survives a killed process, `sync` also a power cut,
    /// `buffered` neither. The end of the import makes all batches durable.
    #[arg(long, default_value = "os")]
    pub(crate) durability: Durability,
    /// Print `acknowledged N` after each batch.
    #[arg(long)]
    pub(crate) acknowledge: bool,
    /// Print the summary as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress bar.
    #[arg(long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) engine: Engine,
    #[command(flatten)]
    pub(crate) created: Created,
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
    /// Change the options of the keyspace of this name to those in `--option`. Existing data keeps
    /// its form until it is compacted.
    #[arg(
        long,
        value_name = "NAME",
        requires = "option",
        conflicts_with = "create"
    )]
    pub(crate) change: Option<String>,
    /// Set a keyspace option (with --create or --change), e.g. `compression=lz4`, or a database
    /// option for this command. May be given several times.
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
pub(crate) struct Check {
    /// The database's directory.
    #[arg(long, value_name = "DIR", default_value = "./data")]
    pub(crate) dir: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Salvage {
    /// The damaged database's directory. No process may have it open.
    pub(crate) dir: PathBuf,
    /// The new database's directory, which must not exist. The command also uses a temporary
    /// directory, named like it with `.candidates` appended.
    pub(crate) out: PathBuf,
    /// Memory budget, in MiB; the command uses up to twice this.
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(8..=1 << 20))]
    pub(crate) memory_mb: u32,
    /// Print the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress bar.
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Dump {
    /// A file of a database (`data/log-….glint`, `data/table-….glint`, `data/manifest-….glint`).
    /// With a database's directory, its files are listed with their sizes.
    pub(crate) file: PathBuf,
    /// Print one JSON object per line.
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
    /// Assume as many records as fit in this space, e.g. `1T`; K, M, G and T are powers of 1024.
    #[arg(long, value_name = "BYTES", value_parser = glintdb::parse_bytes)]
    pub(crate) capacity: Option<u64>,
    /// Assume this many records; k, m and g are powers of 1000.
    #[arg(long, value_name = "N", conflicts_with = "capacity", value_parser = glintdb_bench::parse_count)]
    pub(crate) records: Option<u64>,
    /// Memory budget of the engine [default: a quarter of RAM, at most 1G].
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
    /// Write an SVG plot of worst-case reads per lookup against bytes written, with one line for
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
pub(crate) struct Convert {
    /// The keyspace.
    #[arg(value_name = "KEYSPACE")]
    pub(crate) keyspace: String,
    #[command(flatten)]
    pub(crate) place: Place,
    /// The new kind of index: `lsm`, `btree` or `btree-reshaped`.
    #[arg(long, value_name = "KIND")]
    pub(crate) index: String,
    /// Set an option of the keyspace, e.g. `compression=lz4`, or a database option for this
    /// command. May be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) option: Vec<String>,
    /// Print the summary as JSON.
    #[arg(long)]
    pub(crate) json: bool,
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
            "# The `glintdb` program\n\nThis page is generated from `--help`. Run `GLINTDB_BLESS=1 cargo test -p glintdb-cli` to update it.\n",
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
            "docs/cli.md is not what --help says; GLINTDB_BLESS=1 updates it"
        );
    }
}
