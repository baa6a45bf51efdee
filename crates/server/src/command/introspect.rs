//! What a server tells of itself: INFO, CONFIG GET, COMMAND, TIME.

use std::sync::atomic::{AtomicU64, Ordering};

use glintdb::{Durability, KeyCount};

use super::client::unknown_subcommand;
use super::session::REDIS_VERSION;
use super::strings::STRING_BYTES_MAX;
use super::table::{COMMANDS, CommandSpec, find};
use super::{CommandError, CommandResult};
use crate::glob;
use crate::protocol::Args;
use crate::protocol::reply::Reply;
use crate::server::Server;
use crate::session::Session;

pub(crate) fn time(_: &mut Session, server: &Server, _: Args<'_>, reply: &mut Reply<'_>) {
    let now = server.config.clock.wall();
    reply.array(2);
    reply.bulk(now.as_secs().to_string().as_bytes());
    reply.bulk(now.subsec_micros().to_string().as_bytes());
}

const SECTIONS: [&str; 8] = [
    "server",
    "clients",
    "memory",
    "persistence",
    "stats",
    "replication",
    "keyspace",
    "cluster",
];

pub(crate) fn info(session: &mut Session, server: &Server, args: Args<'_>, reply: &mut Reply<'_>) {
    let asked: Vec<String> = args
        .from(1)
        .map(|word| String::from_utf8_lossy(word).to_ascii_lowercase())
        .collect();
    let all = asked.is_empty()
        || asked
            .iter()
            .any(|word| matches!(word.as_str(), "all" | "default" | "everything"));
    let mut text = String::new();
    for section in SECTIONS {
        if all || asked.iter().any(|word| word == section) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            let mut title = section.to_owned();
            title[..1].make_ascii_uppercase();
            text.push_str(&format!("# {title}\r\n"));
            for (field, value) in section_fields(section, session, server) {
                text.push_str(&format!("{field}:{value}\r\n"));
            }
        }
    }
    reply.verbatim(&text);
}

type Fields = Vec<(String, String)>;

fn section_fields(section: &str, session: &Session, server: &Server) -> Fields {
    let field = |name: &str, value: &dyn ToString| (name.to_owned(), value.to_string());
    let figure = |value: &AtomicU64| value.load(Ordering::Relaxed);
    let stats = &server.stats;
    match section {
        "server" => {
            let seconds = server.store.now_ms().saturating_sub(server.started_ms) / 1000;
            vec![
                field("redis_version", &REDIS_VERSION),
                field("glintdb_version", &env!("CARGO_PKG_VERSION")),
                field("redis_mode", &"standalone"),
                field("os", &std::env::consts::OS),
                field("arch_bits", &usize::BITS),
                field("process_id", &std::process::id()),
                field("run_id", &server.run_id),
                field("tcp_port", &server.port.load(Ordering::Relaxed)),
                field("uptime_in_seconds", &seconds),
                field("uptime_in_days", &(seconds / 86_400)),
                field("io_threads_active", &server.config.threads),
            ]
        }
        "clients" => vec![
            field("connected_clients", &server.client_count()),
            field("maxclients", &server.config.clients_max),
            field("blocked_clients", &0),
        ],
        "memory" => memory_fields(server),
        "persistence" => vec![
            field("loading", &0),
            field("durability", &server.store.durability()),
            // The log holds every change; neither a dump nor a rewrite is ever needed.
            field("rdb_bgsave_in_progress", &0),
            field("rdb_last_bgsave_status", &"ok"),
            field("aof_enabled", &1),
            field("aof_rewrite_in_progress", &0),
            field("aof_last_write_status", &"ok"),
        ],
        "stats" => vec![
            field("total_connections_received", &figure(&stats.connections)),
            field("total_commands_processed", &figure(&stats.commands)),
            field("total_net_input_bytes", &figure(&stats.input_bytes)),
            field("total_net_output_bytes", &figure(&stats.output_bytes)),
            field("rejected_connections", &figure(&stats.rejected)),
            field("total_error_replies", &figure(&stats.errors)),
            field("expired_keys", &figure(&server.store.stats.expired_keys)),
            field("evicted_keys", &0),
            field("evicted_clients", &figure(&stats.evicted)),
            field(
                "client_query_buffer_limit_disconnections",
                &figure(&stats.query_closed),
            ),
            field(
                "client_output_buffer_limit_disconnections",
                &figure(&stats.output_closed),
            ),
            field("idle_disconnections", &figure(&stats.idle_closed)),
            field(
                "unauthenticated_disconnections",
                &figure(&stats.unauthenticated_closed),
            ),
            field("keyspace_hits", &figure(&server.store.stats.hits)),
            field("keyspace_misses", &figure(&server.store.stats.misses)),
            field("keyspace_counts", &exactness(session, server)),
        ],
        "replication" => vec![
            field("role", &"master"),
            field("connected_slaves", &0),
            field("master_replid", &server.run_id),
            field("master_repl_offset", &0),
        ],
        "keyspace" => keyspace_fields(session, server),
        _ => vec![field("cluster_enabled", &0)],
    }
}

fn memory_fields(server: &Server) -> Fields {
    // Resident memory as the kernel counts it; absent where there is no /proc.
    let resident = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok())
        .map(|pages| pages * rustix::param::page_size() as u64);
    let pending = server.stats.pending_bytes.load(Ordering::Relaxed);
    let clients = server.stats.clients_bytes.load(Ordering::Relaxed);
    let mut fields = vec![
        ("maxmemory".to_owned(), "0".to_owned()),
        ("maxmemory_policy".to_owned(), "noeviction".to_owned()),
        ("client_output_bytes".to_owned(), pending.to_string()),
        ("mem_clients_normal".to_owned(), clients.to_string()),
        (
            "maxmemory_clients".to_owned(),
            server.config.clients_bytes_max.to_string(),
        ),
    ];
    if let Some(resident) = resident {
        fields.push(("used_memory".to_owned(), resident.to_string()));
        fields.push(("used_memory_rss".to_owned(), resident.to_string()));
    }
    fields
}

/// Keys, and keys with an expiry, of each database that has keys.
fn counts(session: &Session, server: &Server) -> Vec<(u32, KeyCount, KeyCount)> {
    let store = &server.store;
    let expiring = store.count_expiring().unwrap_or_else(|error| {
        server.warn(format!("cannot count the keys with an expiry: {error}"));
        vec![KeyCount::About(0); store.databases() as usize]
    });
    let mut counts = Vec::new();
    for (db, expires) in (0..store.databases()).zip(expiring) {
        // In an EXEC this connection holds the locks that exact counting takes.
        match store.count_for_info(db, !session.in_exec) {
            Ok(keys) if keys.keys() == 0 => {}
            Ok(keys) => counts.push((db, keys, expires)),
            Err(error) => server.warn(format!("cannot count the keys of database {db}: {error}")),
        }
    }
    counts
}

fn keyspace_fields(session: &Session, server: &Server) -> Fields {
    let counts = counts(session, server).into_iter();
    let fields = counts.map(|(db, keys, expires)| {
        let (keys, expires) = (keys.keys(), expires.keys().min(keys.keys()));
        let value = format!("keys={keys},expires={expires},avg_ttl=0");
        (format!("db{db}"), value)
    });
    fields.collect()
}

/// Whether the counts of the section `keyspace` are exact. Not part of that section, as programs
/// expect nothing but databases there.
fn exactness(session: &Session, server: &Server) -> &'static str {
    let exact = counts(session, server)
        .iter()
        .all(|(_, keys, expires)| keys.is_exact() && expires.is_exact());
    if exact { "exact" } else { "about" }
}

const CONFIG_HELP: &[&str] = &[
    "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET <pattern>",
    "    Return parameters matching the glob-like <pattern> and their values.",
    "RESETSTAT",
    "    Reset statistics reported by the INFO command.",
    "HELP",
    "    Print this help.",
];

pub(crate) fn config(_: &mut Session, server: &Server, args: Args<'_>, reply: &mut Reply<'_>) {
    let word = args.get(1).to_ascii_lowercase();
    let result = match word.as_slice() {
        b"get" if args.len() >= 3 => {
            config_get(server, args, reply);
            Ok(())
        }
        b"get" => Err(CommandError::arity("config|get")),
        b"set" if args.len() >= 4 && args.len().is_multiple_of(2) => {
            let name = String::from_utf8_lossy(args.get(2));
            Err(CommandError(
                format!("ERR CONFIG SET failed (possibly related to argument '{name}') - can't set immutable config").into(),
            ))
        }
        b"set" => Err(CommandError::arity("config|set")),
        b"resetstat" if args.len() == 2 => {
            let (stats, store) = (&server.stats, &server.store.stats);
            for figure in [
                &stats.connections,
                &stats.commands,
                &stats.input_bytes,
                &stats.output_bytes,
                &stats.rejected,
                &stats.errors,
                &stats.evicted,
                &stats.query_closed,
                &stats.output_closed,
                &stats.idle_closed,
                &stats.unauthenticated_closed,
                &store.expired_keys,
                &store.hits,
                &store.misses,
            ] {
                figure.store(0, Ordering::Relaxed);
            }
            reply.ok();
            Ok(())
        }
        b"resetstat" => Err(CommandError::arity("config|resetstat")),
        b"rewrite" => Err(CommandError::new(
            "ERR The server is running without a config file",
        )),
        b"help" => {
            reply.lines(CONFIG_HELP);
            Ok(())
        }
        _ => Err(unknown_subcommand("CONFIG", args.get(1))),
    };
    if let Err(error) = result {
        reply.error(&error.0);
    }
}

fn config_get(server: &Server, args: Args<'_>, reply: &mut Reply<'_>) {
    let config = &server.config;
    let sync = match server.store.durability() {
        Durability::Sync => "always",
        _ => "no",
    };
    let settings = [
        ("appendfsync", sync.to_owned()),
        ("appendonly", "yes".to_owned()),
        ("bind", config.bind.to_string()),
        (
            "client-output-buffer-limit",
            format!(
                "normal {} {} {}",
                config.output_bytes_hard_max,
                config.output_bytes_max,
                config.output_stall_max.as_secs()
            ),
        ),
        (
            "client-query-buffer-limit",
            config.query_bytes_max.to_string(),
        ),
        ("databases", config.databases.to_string()),
        ("durability", server.store.durability().to_string()),
        ("maxclients", config.clients_max.to_string()),
        ("maxmemory", "0".to_owned()),
        ("maxmemory-clients", config.clients_bytes_max.to_string()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("port", server.port.load(Ordering::Relaxed).to_string()),
        ("proto-max-bulk-len", STRING_BYTES_MAX.to_string()),
        ("save", String::new()),
        ("tcp-keepalive", config.keepalive.as_secs().to_string()),
        ("timeout", config.idle_timeout.as_secs().to_string()),
    ];
    // A name asked for without wildcards is answered as it was written, as Redis does.
    let mut found: Vec<(&[u8], &str)> = Vec::new();
    for (name, value) in &settings {
        let asked = args
            .from(2)
            .find(|pattern| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()));
        if let Some(pattern) = asked {
            let exact =
                pattern.len() == name.len() && pattern.eq_ignore_ascii_case(name.as_bytes());
            found.push((if exact { pattern } else { name.as_bytes() }, value));
        }
    }
    reply.map(found.len());
    for (name, value) in found {
        reply.bulk(name);
        reply.bulk(value.as_bytes());
    }
}

const COMMAND_HELP: &[&str] = &[
    "COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "(no subcommand)",
    "    Return details about all Redis commands.",
    "COUNT",
    "    Return the total number of commands in this Redis server.",
    "LIST",
    "    Return a list of all commands in this Redis server.",
    "INFO [<command-name> ...]",
    "    Return details about multiple Redis commands.",
    "    If no command names are given, documentation details for all",
    "    commands are returned.",
    "DOCS [<command-name> ...]",
    "    Return documentation details about multiple Redis commands.",
    "    If no command names are given, documentation details for all",
    "    commands are returned.",
    "GETKEYS <full-command>",
    "    Return the keys from a full Redis command.",
    "HELP",
    "    Print this help.",
];

pub(crate) fn command(_: &mut Session, _: &Server, args: Args<'_>, reply: &mut Reply<'_>) {
    if args.len() == 1 {
        return describe_all(COMMANDS.iter().map(Some), reply);
    }
    let named = || args.from(2).map(|name| find(name).map(|at| &COMMANDS[at]));
    let word = args.get(1).to_ascii_lowercase();
    let result = match word.as_slice() {
        b"count" if args.len() == 2 => {
            reply.count(COMMANDS.len() as u64);
            Ok(())
        }
        b"count" => Err(CommandError::arity("command|count")),
        b"list" if args.len() == 2 => {
            reply.array(COMMANDS.len());
            for spec in COMMANDS {
                reply.bulk(spec.name.as_bytes());
            }
            Ok(())
        }
        b"info" if args.len() == 2 => {
            describe_all(COMMANDS.iter().map(Some), reply);
            Ok(())
        }
        b"info" => {
            describe_all(named(), reply);
            Ok(())
        }
        b"docs" if args.len() == 2 => {
            document(&COMMANDS.iter().collect::<Vec<_>>(), reply);
            Ok(())
        }
        b"docs" => {
            document(&named().flatten().collect::<Vec<_>>(), reply);
            Ok(())
        }
        b"getkeys" if args.len() > 3 => get_keys(args, reply),
        b"getkeys" => Err(CommandError::arity("command|getkeys")),
        b"help" => {
            reply.lines(COMMAND_HELP);
            Ok(())
        }
        _ => Err(unknown_subcommand("COMMAND", args.get(1))),
    };
    if let Err(error) = result {
        reply.error(&error.0);
    }
}

fn describe_all<'s>(specs: impl Iterator<Item = Option<&'s CommandSpec>>, reply: &mut Reply<'_>) {
    let specs: Vec<_> = specs.collect();
    reply.array(specs.len());
    for spec in specs {
        let Some(spec) = spec else {
            reply.null_array();
            continue;
        };
        let (first, last, step) = spec.keys;
        reply.array(10);
        reply.bulk(spec.name.as_bytes());
        reply.integer(spec.arity.into());
        let flags = spec.flag_names();
        reply.set(flags.len());
        for flag in &flags {
            reply.simple(flag);
        }
        reply.count(first as u64);
        reply.integer(last.into());
        reply.count(if first == 0 { 0 } else { step as u64 });
        let mut categories: Vec<String> = flags
            .iter()
            .filter_map(|flag| match *flag {
                "write" => Some("@write".to_owned()),
                "readonly" => Some("@read".to_owned()),
                "fast" => Some("@fast".to_owned()),
                "admin" => Some("@admin".to_owned()),
                _ => None,
            })
            .collect();
        let family = match spec.group {
            "generic" => "@keyspace",
            "string" => "@string",
            "connection" => "@connection",
            "transactions" => "@transaction",
            _ => "@slow",
        };
        categories.push(family.to_owned());
        reply.set(categories.len());
        for category in &categories {
            reply.simple(category);
        }
        // Hints, key specifications, subcommands: none are given.
        reply.array(0);
        reply.array(0);
        reply.array(0);
    }
}

fn document(specs: &[&CommandSpec], reply: &mut Reply<'_>) {
    reply.map(specs.len());
    for spec in specs {
        reply.bulk(spec.name.as_bytes());
        reply.map(3);
        for (field, value) in [
            ("summary", spec.summary),
            ("since", spec.since),
            ("group", spec.group),
        ] {
            reply.bulk(field.as_bytes());
            reply.bulk(value.as_bytes());
        }
    }
}

fn get_keys(args: Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let inner = args.skip(2);
    let spec = find(inner.get(0))
        .map(|at| &COMMANDS[at])
        .ok_or(CommandError::new("ERR Invalid command specified"))?;
    if spec.keys.0 == 0 {
        return Err(CommandError::new("ERR The command has no key arguments"));
    }
    if !spec.arity_fits(inner) {
        return Err(CommandError::new(
            "ERR Invalid number of arguments specified for command",
        ));
    }
    let keys: Vec<&[u8]> = spec.keys(inner).collect();
    reply.array(keys.len());
    for key in keys {
        reply.bulk(key);
    }
    Ok(())
}
