//! The databases of the sweep: a few dozen KiB each, built in memory by the engine itself, the same bytes every time.
//!
//! Invariants: 1. the last of [`Subject::states`] is what the undamaged image answers. 2. Nothing here depends on time, addresses or randomness.

use crate::options::{self, Lane, OptionSet};
use crate::place::TestClock;
use glintdb::{Batch, Compression, Db, Durability, Env, IndexKind, Keyspace, Options};
use glintdb_core::DbId;
use glintdb_flash::Volume;
use glintdb_simdisk::{Contents, CrashMode, MemVolume};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a database answers: keyspaces by name, and their keys.
pub type State = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// One database of the sweep.
pub struct Subject {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it was written with, and is opened with.
    pub options: Options,
    /// Its identity.
    pub db: DbId,
    /// The files.
    pub image: Contents,
    /// Other images to take files from: earlier ones of this database, and another database that was written alike.
    pub donors: Vec<(&'static str, Contents)>,
    /// What the database answered after each commit, from the empty one on.
    pub states: Vec<State>,
    /// What was acknowledged as durable when the image was taken: damage that is told from a torn tail must not take the answers behind this state.
    pub durable: usize,
    /// Whether it was closed: then nothing at all may be taken for a torn tail.
    pub closed: bool,
    /// Every key that was ever written, by keyspace: also those that must not come back.
    pub keys: BTreeMap<String, BTreeSet<Vec<u8>>>,
}

impl Subject {
    /// What the undamaged database answers.
    #[must_use]
    pub fn truth(&self) -> &State {
        self.states.last().unwrap()
    }

    /// Opens an image of it.
    ///
    /// # Errors
    /// Whatever the engine reports.
    pub fn open(&self, volume: Arc<dyn Volume>) -> glintdb::Result<Db> {
        open(&self.options, self.db, volume)
    }
}

fn open(options: &Options, db: DbId, volume: Arc<dyn Volume>) -> glintdb::Result<Db> {
    let env = Env::new(Arc::new(TestClock::default()), db);
    options.clone().open_volume(volume, env)
}

/// Builds one database.
struct Builder {
    set: OptionSet,
    id: DbId,
    volume: Arc<MemVolume>,
    db: Option<Db>,
    states: Vec<State>,
    keys: BTreeMap<String, BTreeSet<Vec<u8>>>,
    durable: usize,
    older: Vec<Contents>,
}

/// How the life of a database ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Closed,
    Killed,
    PowerCut,
}

impl Builder {
    /// With values of at least so many bytes separated.
    fn new(separate_min_bytes: usize, id: DbId) -> Builder {
        let mut set = Lane::Sweep.base();
        set.options.separate_min_bytes = separate_min_bytes;
        Builder::of(set, id)
    }

    fn of(set: OptionSet, id: DbId) -> Builder {
        let volume = MemVolume::with_options(set.volume);
        let db = open(&set.options, id, Arc::clone(&volume) as Arc<dyn Volume>).unwrap();
        Builder {
            set,
            id,
            volume,
            db: Some(db),
            states: vec![State::from([("default".into(), BTreeMap::new())])],
            keys: BTreeMap::from([("default".into(), BTreeSet::new())]),
            durable: 0,
            older: Vec::new(),
        }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn space(&self, name: &str) -> Keyspace {
        self.db().keyspace(name).unwrap()
    }

    fn create(&mut self, name: &str) {
        let options = self.set.keyspace.clone();
        self.db().create_keyspace(name, options).unwrap();
        self.commit(Durability::Sync, |state| {
            state.insert(name.into(), BTreeMap::new());
        });
        self.keys.insert(name.into(), BTreeSet::new());
    }

    fn drop_space(&mut self, name: &str) {
        self.db().drop_keyspace(name).unwrap();
        self.commit(Durability::Sync, |state| {
            state.remove(name);
        });
        self.keys.remove(name);
    }

    /// Notes what a commit did.
    fn commit(&mut self, durability: Durability, change: impl FnOnce(&mut State)) {
        let mut state = self.states.last().unwrap().clone();
        change(&mut state);
        self.states.push(state);
        if durability == Durability::Sync {
            self.durable = self.states.len() - 1;
        }
    }

    fn put(&mut self, space: &str, key: &str, value: Vec<u8>, durability: Durability) {
        self.space(space).put_with(key, &value, durability).unwrap();
        self.keys
            .get_mut(space)
            .unwrap()
            .insert(key.as_bytes().to_vec());
        self.commit(durability, |state| {
            state
                .get_mut(space)
                .unwrap()
                .insert(key.as_bytes().to_vec(), value);
        });
    }

    fn delete(&mut self, space: &str, key: &str) {
        self.space(space).delete(key).unwrap();
        self.commit(Durability::Os, |state| {
            state.get_mut(space).unwrap().remove(key.as_bytes());
        });
    }

    fn delete_range(&mut self, space: &str, from: &str, to: &str) {
        self.space(space).delete_range(from..to).unwrap();
        self.commit(Durability::Os, |state| {
            state
                .get_mut(space)
                .unwrap()
                .retain(|key, _| !(from.as_bytes()..to.as_bytes()).contains(&key.as_slice()));
        });
    }

    /// Puts keys `prefix-NN` of several lengths.
    fn puts(&mut self, space: &str, prefix: &str, count: usize, lengths: &[usize]) {
        for n in 0..count {
            let key = format!("{prefix}-{n:02}");
            let generation = self.states.len();
            let value = value(&key, generation, lengths[n % lengths.len()]);
            self.put(space, &key, value, Durability::Os);
        }
    }

    fn sync(&mut self) {
        self.db().flush_log(Durability::Sync).unwrap();
        self.durable = self.states.len() - 1;
    }

    fn flush(&mut self) {
        self.db().flush().unwrap();
        self.durable = self.states.len() - 1;
    }

    /// Keeps an image for later replacements.
    fn remember(&mut self) {
        self.older.push(self.volume.contents());
    }

    fn reopen(&mut self) {
        self.db = None;
        self.durable = self.states.len() - 1;
        let volume = Arc::clone(&self.volume) as Arc<dyn Volume>;
        self.db = Some(open(&self.set.options, self.id, volume).unwrap());
    }

    fn end(mut self, name: &'static str, end: End) -> Subject {
        let image = match end {
            End::Closed => {
                self.db = None;
                self.durable = self.states.len() - 1;
                self.volume.contents()
            }
            End::Killed => self.volume.kill().contents(),
            End::PowerCut => {
                self.states.truncate(self.durable + 1);
                self.volume.crash(CrashMode::LoseUnsynced).contents()
            }
        };
        let donors = self.older.into_iter().map(|older| ("older", older));
        Subject {
            name,
            options: self.set.options,
            db: self.id,
            image,
            donors: donors.collect(),
            states: self.states,
            durable: self.durable,
            closed: end == End::Closed,
            keys: self.keys,
        }
    }
}

/// A value that tells which key and commit it belongs to; the rest of it compresses.
fn value(key: &str, generation: usize, length: usize) -> Vec<u8> {
    let mut value = format!("{key}@{generation};").into_bytes();
    let byte = b'a' + (generation % 26) as u8;
    value.resize(length.max(value.len()), byte);
    value
}

type Build = fn(DbId) -> Subject;

/// Databases with a life of their own by name, the two smallest first.
const OWN: [(&str, Build); 10] = [
    ("tiny", tiny),
    ("tiny-killed", tiny_killed),
    ("separated", separated),
    ("inline", inline),
    ("lz4", lz4),
    ("ranges", ranges),
    ("keyspaces", keyspaces),
    ("snapshots", snapshots),
    ("power-cut", power_cut),
    ("young", young),
];

/// Names of all databases: behind those above, one for each option set of the lane.
#[must_use]
pub fn names() -> Vec<&'static str> {
    let own = OWN.iter().map(|(name, _)| *name);
    let sets = options::of(Lane::Sweep).into_iter().map(|set| set.name);
    own.chain(sets).collect()
}

/// The database of this name, with its foreign twin among the donors.
#[must_use]
pub fn build(name: &str) -> Option<Subject> {
    let own = OWN.iter().find(|(known, _)| *known == name);
    let set = options::of(Lane::Sweep)
        .into_iter()
        .find(|set| set.name == name);
    let build = |id| match own {
        Some((_, build)) => Some(build(id)),
        None => set.clone().map(|set| life(set, id)),
    };
    let mut subject = build(DbId(*b"the sweep's own."))?;
    let foreign = build(DbId(*b"another database"))?;
    subject.donors.push(("foreign", foreign.image));
    Some(subject)
}

/// A bit of everything: tables at two levels, range tombstones, a log of several segments, a large frame, a reopening; then killed.
fn life(set: OptionSet, id: DbId) -> Subject {
    let name = set.name;
    let mut b = Builder::of(set, id);
    b.create("own");
    b.puts("own", "a", 12, &[300, 40, 1]);
    b.puts("default", "d", 3, &[100, 9]);
    b.flush();
    b.remember();
    b.puts("own", "a", 6, &[200, 0, 33]);
    b.delete_range("own", "a-08", "a-10");
    b.flush();
    b.db().compact().unwrap();
    if b.set.keyspace.index == IndexKind::BTree {
        grow_tree(&mut b);
    }
    b.reopen();
    b.remember();
    b.put("own", "large", value("large", 1, 5 << 10), Durability::Sync);
    b.puts("own", "b", 4, &[90, 8]);
    b.end(name, End::Killed)
}

/// More inline values than a leaf has, and then changes of the first leaf: a tree with branches,
/// and leaves and branches that it does not need any more.
fn grow_tree(b: &mut Builder) {
    b.puts("own", "t", 90, &[60]);
    b.flush();
    b.db().compact().unwrap();
    b.remember();
    for _ in 0..2 {
        b.puts("own", "t", 3, &[50]);
        b.flush();
    }
}

/// One table, one log segment of values that it points to, closed.
fn tiny(id: DbId) -> Subject {
    let mut b = Builder::new(48, id);
    b.puts("default", "k", 4, &[60, 9]);
    b.remember();
    b.flush();
    b.reopen();
    b.remember();
    b.put("default", "k-01", value("k-01", 9, 11), Durability::Os);
    b.end("tiny", End::Closed)
}

/// As `tiny`, but killed with commits that only the ring has.
fn tiny_killed(id: DbId) -> Subject {
    let mut b = Builder::new(48, id);
    b.puts("default", "k", 3, &[60, 9]);
    b.flush();
    b.reopen();
    b.remember();
    b.put("default", "s-00", value("s-00", 1, 70), Durability::Sync);
    b.puts("default", "t", 3, &[60, 9]);
    b.delete("default", "k-01");
    b.end("tiny-killed", End::Killed)
}

/// Killed in its first life, before anything was flushed: its manifest says where the log begins, and no more.
fn young(id: DbId) -> Subject {
    let mut b = Builder::new(48, id);
    b.puts("default", "k", 3, &[60, 9]);
    b.remember();
    b.put("default", "s-00", value("s-00", 1, 70), Durability::Sync);
    b.puts("default", "t", 2, &[60, 9]);
    b.end("young", End::Killed)
}

/// Every value in the log; several segments, one of them of a single large frame; tables at several levels.
fn separated(id: DbId) -> Subject {
    let mut b = Builder::new(1, id);
    b.create("small");
    b.puts("small", "a", 12, &[300, 40, 1]);
    b.flush();
    b.remember();
    b.puts("small", "a", 6, &[200, 0, 33]);
    b.puts("default", "d", 6, &[100, 700]);
    b.flush();
    b.db().compact().unwrap();
    b.put(
        "small",
        "large",
        value("large", 1, 20 << 10),
        Durability::Os,
    );
    b.flush();
    b.puts("small", "b", 6, &[300, 40]);
    b.remember();
    b.sync();
    b.puts("small", "c", 4, &[90]);
    b.end("separated", End::Killed)
}

/// Every value in the index.
fn inline(id: DbId) -> Subject {
    let mut b = Builder::new(usize::MAX, id);
    b.create("small");
    for round in 0..3 {
        b.puts("small", "a", 14, &[500, 80, 3]);
        b.puts("default", &format!("d{round}"), 3, &[20]);
        b.flush();
        b.remember();
    }
    b.reopen();
    b.puts("small", "late", 3, &[30]);
    b.end("inline", End::Closed)
}

/// Compressed blocks.
fn lz4(id: DbId) -> Subject {
    let mut b = Builder::new(900, id);
    b.set.keyspace.lsm.compression = Compression::Lz4;
    b.create("packed");
    b.puts("packed", "a", 30, &[500, 80, 950]);
    b.flush();
    b.remember();
    b.puts("packed", "b", 20, &[300, 2]);
    b.flush();
    b.reopen();
    b.puts("packed", "a", 3, &[30]);
    b.end("lz4", End::Closed)
}

/// Range tombstones in tables, in the log, over tables and over the log.
fn ranges(id: DbId) -> Subject {
    let mut b = Builder::new(100, id);
    b.create("cut");
    b.puts("cut", "a", 20, &[120, 8]);
    b.flush();
    b.delete_range("cut", "a-03", "a-07");
    b.delete("cut", "a-01");
    b.flush();
    b.remember();
    b.puts("cut", "a", 5, &[130]);
    b.delete_range("cut", "a-10", "a-12");
    b.delete_range("default", "a", "z");
    b.sync();
    b.puts("cut", "b", 4, &[20, 140]);
    b.delete_range("cut", "b-01", "b-03");
    b.end("ranges", End::Killed)
}

/// Several keyspaces, batches over them, one dropped, one empty.
fn keyspaces(id: DbId) -> Subject {
    let mut b = Builder::new(64, id);
    for name in ["one", "two", "gone", "empty"] {
        b.create(name);
    }
    b.puts("gone", "x", 3, &[70, 7]);
    for n in 0..6 {
        let key = format!("both-{n}");
        let value = value(&key, n, 10 + 20 * n);
        let (one, two) = (b.space("one"), b.space("two"));
        let mut batch = Batch::new();
        batch.put(&one, &key, &value).put(&two, &key, &value);
        b.db().write_with(batch, Durability::Os).unwrap();
        b.commit(Durability::Os, |state| {
            for space in ["one", "two"] {
                let space = state.get_mut(space).unwrap();
                space.insert(key.clone().into_bytes(), value.clone());
            }
        });
        for space in ["one", "two"] {
            b.keys
                .get_mut(space)
                .unwrap()
                .insert(key.clone().into_bytes());
        }
    }
    b.flush();
    b.remember();
    b.drop_space("gone");
    b.puts("one", "late", 2, &[80]);
    b.reopen();
    b.puts("two", "later", 2, &[80, 4]);
    b.end("keyspaces", End::Closed)
}

/// Snapshots held over flushes and compactions, and then a kill: files that only they needed are still there.
fn snapshots(id: DbId) -> Subject {
    let mut b = Builder::new(100, id);
    b.create("kept");
    let mut held = Vec::new();
    for round in 0..4 {
        b.puts("kept", "a", 8, &[110, 30]);
        held.push(b.db().snapshot());
        if round == 1 {
            b.delete("kept", "a-03");
        }
        b.flush();
        b.remember();
    }
    b.puts("kept", "b", 2, &[110, 30]);
    let subject = b.end("snapshots", End::Killed);
    drop(held);
    subject
}

/// What a power cut leaves: the ring lost, the log as of its last sync.
fn power_cut(id: DbId) -> Subject {
    let mut b = Builder::new(64, id);
    b.puts("default", "k", 5, &[80, 9]);
    b.flush();
    b.puts("default", "m", 4, &[70, 12]);
    b.remember();
    for n in 0..4 {
        let key = format!("s-{n:02}");
        b.put(
            "default",
            &key,
            value(&key, n, 20 + 30 * n),
            Durability::Sync,
        );
    }
    b.puts("default", "lost", 2, &[70]);
    b.end("power-cut", End::PowerCut)
}
