//! `get`, `put`, `delete`, `scan`.

use crate::args::{Delete, Get, Put, Scan};
use crate::exit::Failure;
use crate::format::record_line;
use crate::open::{self, Missing};
use crate::output;
use crate::records::{Records, now_ms};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use glintdb::{Batch, Bytes, Durability, Iter, Keyspace};
use glintdb_server::{RecordCodec, StoredValue};
use std::ffi::OsStr;
use std::io::Read;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;

/// A key or value from the command line: its bytes, or what `base64:…` stands for.
fn typed(argument: &OsStr) -> Result<Vec<u8>, Failure> {
    let bytes = argument.as_bytes();
    match bytes.strip_prefix(b"base64:") {
        Some(encoded) => STANDARD.decode(encoded).map_err(|error| {
            Failure::Usage(format!(
                "`{}` is not base64: {error}",
                argument.to_string_lossy()
            ))
        }),
        None => Ok(bytes.to_vec()),
    }
}

pub(crate) fn typed_option(argument: Option<&OsStr>) -> Result<Option<Vec<u8>>, Failure> {
    argument.map(typed).transpose()
}

pub(super) fn get(arguments: &Get) -> Result<(), Failure> {
    let key = typed(&arguments.key)?;
    let records = Records::of(open::keyspace(&arguments.target)?, now_ms())?;
    let Some(found) = records.get(&key)? else {
        output::note(&format!("no such key: {}", output::printable(&key)));
        return Err(Failure::Negative);
    };
    if arguments.json {
        return output::line(&record_line(&key, Some(&found)));
    }
    output::bytes(&found.value)?;
    if arguments.raw {
        Ok(())
    } else {
        output::bytes(b"\n")
    }
}

pub(super) fn put(arguments: &Put) -> Result<(), Failure> {
    let key = typed(&arguments.key)?;
    let value = if arguments.value.as_bytes() == b"-" {
        let mut value = Vec::new();
        std::io::stdin()
            .lock()
            .read_to_end(&mut value)
            .map_err(|error| Failure::Io("cannot read standard input".into(), error))?;
        value
    } else {
        typed(&arguments.value)?
    };
    let options = open::options(&arguments.target.place, &arguments.engine)?;
    let keyspace = open::keyspace_to_write(&arguments.target, options, arguments.create)?;
    let mut codec = RecordCodec::new(keyspace)?;
    let mut batch = Batch::new();
    codec.put(&mut batch, &key, &StoredValue::plain(value.into()))?;
    let db = codec.keyspace().db();
    db.write_with(batch, arguments.durability)?;
    drop(codec);
    Ok(db.close()?)
}

pub(super) fn delete(arguments: &Delete) -> Result<(), Failure> {
    let key = typed_option(arguments.key.as_deref())?;
    let prefix = typed_option(arguments.prefix.as_deref())?;
    let place = &arguments.target.place;
    let options = open::options(place, &arguments.engine)?.durability(Durability::Os);
    let db = open::database(&place.dir, options, Missing::Refuse)?;
    let keyspace = db.keyspace(&arguments.target.keyspace)?;
    if let Some(key) = key {
        keyspace.delete(&key)?;
    }
    if let Some(prefix) = prefix {
        let end = match glintdb_core::key::prefix_end(&prefix) {
            Some(end) => Bound::Excluded(end.to_vec()),
            None => Bound::Unbounded,
        };
        keyspace.delete_range((Bound::Included(prefix), end))?;
    }
    db.flush_log(arguments.durability)?;
    drop(keyspace);
    Ok(db.close()?)
}

/// The records that the bounds of the command line ask for.
fn bounded(keyspace: &Keyspace, arguments: &Scan) -> Result<Iter, Failure> {
    if let Some(prefix) = typed_option(arguments.prefix.as_deref())? {
        return Ok(keyspace.prefix(prefix));
    }
    let from = typed_option(arguments.from.as_deref())?;
    let to = typed_option(arguments.to.as_deref())?;
    let lower = from.map_or(Bound::Unbounded, Bound::Included);
    let upper = to.map_or(Bound::Unbounded, Bound::Excluded);
    Ok(keyspace.range((lower, upper)))
}

/// One of two directions over the same iterator.
fn directed<'a, I: DoubleEndedIterator + 'a>(
    iterator: I,
    reverse: bool,
) -> Box<dyn Iterator<Item = I::Item> + 'a> {
    if reverse {
        Box::new(iterator.rev())
    } else {
        Box::new(iterator)
    }
}

/// Keys, with their values where those are wanted or had to be read.
type Found<'a> = Box<dyn Iterator<Item = Result<(Bytes, Option<StoredValue>), Failure>> + 'a>;

fn found<'a>(records: &'a Records, arguments: &Scan) -> Result<Found<'a>, Failure> {
    let bounded = bounded(records.keyspace(), arguments)?;
    let values_wanted = !arguments.count && !arguments.keys_only;
    if !values_wanted && !records.may_hold_expired()? {
        let keys = directed(bounded.keys(), arguments.reverse);
        return Ok(Box::new(keys.map(|key| Ok((key?, None)))));
    }
    let all = directed(bounded, arguments.reverse);
    Ok(Box::new(all.filter_map(|record| {
        let decode = || -> Result<_, Failure> {
            let (key, stored) = record?;
            let decoded = records.decode(&key, stored)?;
            Ok(decoded.map(|decoded| (key, Some(decoded))))
        };
        decode().transpose()
    })))
}

pub(super) fn scan(arguments: &Scan) -> Result<(), Failure> {
    let records = Records::of(open::keyspace(&arguments.target)?, now_ms())?;
    let mut out = Out::new();
    let mut count = 0_u64;
    for record in found(&records, arguments)?.take(arguments.limit.unwrap_or(usize::MAX)) {
        let (key, stored) = record?;
        count += 1;
        let stored = stored.filter(|_| !arguments.keys_only);
        if arguments.count {
            continue;
        }
        if arguments.json {
            out.line(&record_line(&key, stored.as_ref()))?;
        } else if let Some(stored) = stored {
            let (key, value) = (output::printable(&key), output::printable(&stored.value));
            out.line(&format!("{key}\t{value}"))?;
        } else {
            out.line(&output::printable(&key))?;
        }
    }
    if arguments.count && arguments.json {
        out.line(&serde_json::json!({ "count": count }).to_string())?;
    } else if arguments.count {
        out.line(&count.to_string())?;
    }
    out.finish()
}

/// Standard output with a buffer: a scan prints many lines.
struct Out(std::io::BufWriter<std::io::StdoutLock<'static>>);

impl Out {
    fn new() -> Self {
        Out(std::io::BufWriter::new(std::io::stdout().lock()))
    }

    fn line(&mut self, text: &str) -> Result<(), Failure> {
        use std::io::Write;
        writeln!(self.0, "{text}").map_err(Failure::output)
    }

    fn finish(mut self) -> Result<(), Failure> {
        use std::io::Write;
        self.0.flush().map_err(Failure::output)
    }
}
