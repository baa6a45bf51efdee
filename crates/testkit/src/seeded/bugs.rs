//! The list of planted mistakes: the name of each, as the source has it; what goes wrong; the lane
//! that is expected to find it.
//!
//! To plant a new one, write `planted!("crate: what goes wrong", right, wrong)` in the source and a
//! line here. A test compares the list with the sources.

use super::lanes::Lane;

/// A mistake that can be switched on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bug {
    /// Crate, colon, what goes wrong.
    pub name: &'static str,
    /// What is done wrong, or what comes of it.
    pub mistake: &'static str,
    /// Runs first.
    pub lane: Lane,
    /// A thread waits for ever: only here is a search that does not end a find.
    pub hangs: bool,
}

const fn bug(name: &'static str, mistake: &'static str, lane: Lane) -> Bug {
    Bug {
        name,
        mistake,
        lane,
        hangs: false,
    }
}

const fn hang(name: &'static str, mistake: &'static str, lane: Lane) -> Bug {
    Bug {
        hangs: true,
        ..bug(name, mistake, lane)
    }
}

/// All of them, by name.
#[rustfmt::skip]
pub const BUGS: &[Bug] = &[
    bug("btree: a cleaning drops tombstones", "A deleted key that is in the tree is back.", Lane::Model),
    bug("btree: a clip is for a run that is gone", "After an opening, entries of a new run are taken for entries that are in the tree.", Lane::Model),
    bug("btree: a range deletion goes while a transaction needs it", "The transaction does not see that a range that it read was deleted.", Lane::Model),
    bug("btree: a run above a pending relocation is settled", "A relocated entry comes to stand above a newer one.", Lane::Threads),
    bug("btree: a tombstone goes while a transaction needs it", "The transaction does not see that what it read was deleted: a lost update.", Lane::Model),
    bug("btree: a value that is overwritten in a leaf is not counted", "The log keeps the value for ever.", Lane::Model),
    bug("btree: salvage offers leaves that the tree does not need", "Records that were deleted are back in what salvage has written.", Lane::Damage),
    bug("btree: the names of a slice's files are not made durable", "A power cut takes files that the manifest names.", Lane::Crash),
    bug("btree: the names of the tables of a cleaning are not made durable", "A power cut takes files that the manifest names.", Lane::Crash),
    bug("cache: the cache has one value of a key for all of them", "A lookup takes whichever value is cached of a key, wherever the one that is asked for stands.", Lane::Model),
    bug("cache: what moves is taken for whatever is cached of its key", "A round of value GC moves what a key had, and the cache says that what the key has now stands there.", Lane::Model),
    bug("core: a checksum is not bound to its database", "A table or segment of another database passes for one's own.", Lane::Damage),
    bug("core: a checksum is not bound to its file", "A block read from, or written to, another file of its kind passes for the right one.", Lane::Crash),
    bug("flash: a piece read ahead is given to its neighbour", "A compaction merges blocks of another table, or of another place.", Lane::Model),
    bug("flash: a read in flight goes to the place before", "Of a batch of reads that are done at once each has the bytes of the one before it.", Lane::Directory),
    bug("flash: a second opener is let in", "The lock of the directory is asked for, and the answer not looked at.", Lane::Threads),
    bug("flash: reads that are merged are as long as the last one", "A batch of reads gives short answers.", Lane::Directory),
    bug("flash: the bytes behind the last whole block are not written", "A direct write of an odd length loses its end.", Lane::Kill),
    bug("flash: the names of the second unit are not made durable", "Of several directories only one is synced: a power cut takes files that the manifest names.", Lane::Crash),
    bug("flash: the ring is a private mapping", "What commits copy into the ring never reaches the file behind it.", Lane::Kill),
    bug("glintdb: a change that found no space takes effect", "An index change whose manifest edit found no space is applied all the same.", Lane::Faults),
    bug("glintdb: a checkpoint leaves out segments of values", "Segments below the flush point are not linked, though values in them are live.", Lane::Directory),
    bug("glintdb: a commit is acknowledged before it is visible", "An `Os` commit does not wait for an earlier `Sync` one.", Lane::Threads),
    bug("glintdb: a conversion does not wait for value GC", "An index takes over while a relocation of the one before is under way, and the relocation is lost.", Lane::Threads),
    bug("glintdb: a conversion forgets the runs above a tree", "The flushes that were not settled are lost.", Lane::Model),
    bug("glintdb: a conversion is not recorded", "The next opening finds the index that was replaced, and files that are not its own.", Lane::Model),
    bug("glintdb: a conversion puts older runs above newer ones", "Gets find what was overwritten.", Lane::Model),
    bug("glintdb: a flush forgets range deletions", "The range tombstones of a memtable do not get into its table.", Lane::Model),
    bug("glintdb: a flush writes one keyspace and no more", "The flush point moves on for all keyspaces, and only the first one was written.", Lane::Model),
    bug("glintdb: a gap is entered beside a commit", "A scan remembers a stretch as empty while a commit that it did not see puts a key there.", Lane::Threads),
    bug("glintdb: a gap is learnt from a transaction's own deletions", "What a transaction alone has deleted is passed by every scan.", Lane::Model),
    bug("glintdb: a log segment that cannot be made fails all later commits", "A process that had no descriptors for a while takes no commits when it has some again.", Lane::Faults),
    bug("glintdb: a manifest edit is not synced", "Files go, and the edit that allowed it may be lost.", Lane::Crash),
    bug("glintdb: a manifest record's checksum is not checked", "A damaged or torn edit is taken for a whole one.", Lane::Sim),
    bug("glintdb: a manifest's name is not made durable", "The directory is not synced before older manifests are removed.", Lane::Sim),
    bug("glintdb: a memtable is sealed after the commit that finds it full", "The flush point covers one commit that went to the next memtable's place in the log.", Lane::Model),
    bug("glintdb: a new manifest forgets dropped keyspaces", "Replay meets frames of a keyspace that the manifest does not list.", Lane::Crash),
    bug("glintdb: a place is sure although its key was written while it was looked for", "A reader writes down where the newest value of a key stands, and a newer one came meanwhile.", Lane::Threads),
    bug("glintdb: a place stays sure when its key is written", "A commit does not tell the table of hot keys what it writes: gets find what was there before.", Lane::Model),
    bug("glintdb: a put leaves the gap that it falls into", "Scans pass a key that was put where everything had been deleted.", Lane::Model),
    bug("glintdb: a range deletion hides nothing in its memtable", "A get looks at the memtable's keys and not at its range tombstones.", Lane::Model),
    bug("glintdb: a range deletion passes over newer entries of its own memtable", "A scan seeks behind a range deletion and passes what was put after it.", Lane::Model),
    bug("glintdb: a range gives the value before the one that is asked for", "Of values that are cached together a scan gets its neighbour's.", Lane::Model),
    bug("glintdb: a retired segment goes while a snapshot reads it", "What value GC has emptied is removed at once, whatever older versions need.", Lane::Model),
    bug("glintdb: a scan takes a value out of the block before its own", "Inline values are lent by the block they lie in, and the wrong one is kept for them.", Lane::Model),
    bug("glintdb: a segment goes while a checkpoint copies it", "The version whose files a checkpoint copies keeps none of them.", Lane::Threads),
    bug("glintdb: a segment goes while a snapshot reads it", "Segments without live values are removed at once, whatever older versions need.", Lane::Model),
    bug("glintdb: a snapshot passes over a gap that is younger", "A snapshot does not show what was deleted after it.", Lane::Model),
    bug("glintdb: a snapshot shows what came after it", "A pin has no sequence number of its own.", Lane::Model),
    bug("glintdb: a transaction does not check the keys it read", "Write skew under `Serializable`.", Lane::Model),
    bug("glintdb: a transaction does not check the keys it writes", "A lost update: the second committer wins too.", Lane::Model),
    bug("glintdb: a transaction does not check the ranges it read", "A phantom under `Serializable`.", Lane::Model),
    bug("glintdb: a transaction does not see its own range deletion", "Reading back through the transaction finds what it has deleted.", Lane::Model),
    bug("glintdb: a victim goes before its values' new places are in the manifest", "A crash in between leaves an index that points into nothing.", Lane::Sim),
    bug("glintdb: an index is walked past keys of memtables", "A scan that meets a memtable's key late.", Lane::Model),
    bug("glintdb: file numbers are given again after a crash", "The high-water mark of file numbers is taken for too low a number.", Lane::Crash),
    bug("glintdb: files that no manifest names stay", "Recovery does not remove the orphans of a crash: a leak.", Lane::Crash),
    bug("glintdb: multi_get mixes up its answers", "Keys are sorted for the index, and the answers are not put back in order.", Lane::Model),
    hang("glintdb: nobody is woken when a commit becomes visible", "A lost wake-up: the waiting thread sleeps for ever.", Lane::Threads),
    bug("glintdb: of a hot value all but its end is cached as it is written", "What is written for a key that is being read goes into the cache eight bytes short.", Lane::Model),
    bug("glintdb: of a large value all but its end is cached as it is written", "What is written while garbage is near its bound goes into the cache eight bytes short.", Lane::Model),
    bug("glintdb: of two sources the older one wins", "A scan prefers the index to the memtable.", Lane::Model),
    bug("glintdb: options that change are not recorded", "A keyspace has its old options again at the next opening.", Lane::Model),
    bug("glintdb: places stay sure when a range is deleted", "Gets find what a range deletion has hidden.", Lane::Model),
    bug("glintdb: replay leaves out the end of a batch", "Half of each batch is replayed.", Lane::Model),
    bug("glintdb: replay leaves out the frame at the flush point", "One commit is lost at the boundary.", Lane::Model),
    bug("glintdb: sequence numbers are given again after recovery", "Commits after recovery look older than replayed ones.", Lane::Model),
    bug("glintdb: tables go before the manifest says so", "A compaction's inputs are removed before the edit is written.", Lane::Faults),
    bug("glintdb: the ends of an iterator pass each other", "Taking from both ends gives records twice.", Lane::Model),
    bug("glintdb: the files of an edit in doubt are removed", "A manifest sync fails, the edit may be durable, and its tables are removed.", Lane::Faults),
    bug("glintdb: the floor of tombstones passes a running transaction", "Compactions drop a deletion that a running transaction would have to notice: a lost update.", Lane::Model),
    bug("glintdb: the flush point lies a commit too far", "Off by one: the first commit behind the flush is not replayed.", Lane::Model),
    bug("glintdb: the manifest runs ahead of the log", "A flush does not sync the log before its manifest edit.", Lane::Crash),
    bug("glintdb: value GC believes commits that are not durable", "What a commit in a memtable has overwritten is not moved, and a power cut takes the commit.", Lane::Crash),
    bug("glintdb: value GC brings back what was deleted", "A record whose key has a tombstone in the index counts as live.", Lane::Model),
    bug("glintdb: value GC looks for one of its victims alone", "A round looks for live values in its newest victim only, and retires all victims.", Lane::Model),
    bug("glintdb: values in key order take their place above what came meanwhile", "The place in the index is given out when the values are copied, above flushes that came in between: old values come back.", Lane::Threads),
    bug("glintdb: values that die are not counted", "Liveness only grows: segments never go.", Lane::Model),
    bug("glintdb: values that move are not counted", "The manifest is not told of the segments that a round writes: they count as dead.", Lane::Model),
    bug("glintdb: writers are not slowed for space", "Writers go on while there is more garbage than may be, however far rounds are behind.", Lane::Threads),
    bug("log: a failed sync is tried again and believed", "The page cache has dropped the pages; the second sync says all is well.", Lane::Faults),
    bug("log: a frame claims more durability than there is", "After a power cut a torn tail looks like corruption.", Lane::Crash),
    bug("log: a frame's checksum is not bound to its place", "A frame of the ring's last round passes for a new one.", Lane::Crash),
    bug("log: a large frame is not synced", "A frame that goes round the ring is acknowledged before it is durable.", Lane::Crash),
    bug("log: a pointer to a value is eight bytes off", "A separated value is read from the wrong place.", Lane::Model),
    bug("log: a relocated value's segment is not synced", "The victims go, and a power cut empties what was written instead.", Lane::Crash),
    bug("log: a segment keeps no room for its end", "Off by one at a segment's end: the seal is written behind it.", Lane::Threads),
    bug("log: a segment that takes commits is not kept open", "A process without free descriptors cannot write or sync what it has acknowledged, and takes no more commits.", Lane::Faults),
    bug("log: a sync forgets segments that are full", "Only the newest segment is synced.", Lane::Crash),
    bug("log: a sync leaves out the block that is not full", "A commit that is said to be durable ends in the ring only.", Lane::Crash),
    bug("log: a value's checksum is not checked", "Damaged values are handed out.", Lane::Damage),
    bug("log: damage ahead of whole frames is taken for the tail", "Acknowledged commits behind a damaged frame are cut off without a word.", Lane::Damage),
    bug("log: full segments are called durable without a sync", "What nobody has asked to be synced counts as synced when its segment is full.", Lane::Crash),
    bug("log: half a frame is given up in the ring", "A frame is whole neither in the ring nor in its segment.", Lane::Crash),
    bug("log: readers are not told that the ring was taken", "A value is read where a later frame stands.", Lane::Model),
    bug("log: recovery does not copy what only the ring has", "The next round of the ring overwrites what was recovered.", Lane::Crash),
    bug("log: recovery does not look at separated values", "A torn frame is replayed, its values are rubbish.", Lane::Crash),
    bug("log: recovery does not sync the seal", "A second crash finds the old end of the log, and removes what came after.", Lane::Crash),
    bug("log: recovery does not sync what it keeps", "What a killed process left is built upon, and a power cut takes it.", Lane::Crash),
    bug("log: recovery forgets the ring", "Frames that no segment has yet are lost.", Lane::Crash),
    bug("log: the checksum of a frame's entries is not checked", "Damaged or torn entries are replayed.", Lane::Damage),
    bug("log: the header of a new segment is not synced", "A seal names a segment that a power cut empties.", Lane::Crash),
    bug("log: the log is not synced", "A `Sync` commit is acknowledged, and nothing was synced.", Lane::Crash),
    bug("log: the name of a new segment is not made durable", "The directory is not synced: a power cut takes the whole segment.", Lane::Crash),
    bug("log: what goes round the ring's end is lost", "The second part of a frame at the ring's end is not copied.", Lane::Model),
    bug("lsm: a block is moved whole though another run has keys in it", "A compaction gives keys twice, or in disorder.", Lane::Model),
    bug("lsm: a block's checksum is not checked", "Damaged blocks are read as they are.", Lane::Damage),
    bug("lsm: a cursor passes over a table", "A scan leaves out a table between two others.", Lane::Model),
    bug("lsm: a delta that shares as much as was found is passed over", "A search for a key among keys that are stored as deltas does not compare where it must.", Lane::Model),
    bug("lsm: a fence is as short as what two blocks have in common", "One byte short: keys at the end of a block are looked for in the next one.", Lane::Model),
    bug("lsm: a filter forgets its last key", "A false negative: a key that is there is not found.", Lane::Model),
    bug("lsm: a key that equals a fence is looked for a block too early", "Off by one: the first key of a block is not found.", Lane::Model),
    bug("lsm: a merge that is cut short leaves out an entry", "The step of a compaction that ends in the middle goes on one entry too far.", Lane::Sim),
    bug("lsm: a pinned block stands for its neighbour", "Off by one: a lookup in a pinned level looks into the block before.", Lane::Model),
    bug("lsm: a range deletion goes before what it hides", "A compaction drops a range tombstone over older entries below.", Lane::Model),
    bug("lsm: a range deletion hides what its own batch put after it", "Equal sequence numbers are compared the wrong way.", Lane::Model),
    bug("lsm: a range deletion over several tables is only in the last", "Cut wrongly at the edges of tables.", Lane::Model),
    bug("lsm: a range deletion removes a table that has newer entries", "A table goes unread that has entries which were put after the range deletion.", Lane::Model),
    bug("lsm: a range deletion removes a table that it covers in part", "A table goes unread that has keys outside of the range deletion.", Lane::Model),
    bug("lsm: a range tombstone hides newer entries", "A cursor seeks behind a range tombstone in newer tables too.", Lane::Model),
    bug("lsm: a run above a pending relocation leaves level 0", "What was flushed during a round goes beneath the run of the round: old values come back.", Lane::Threads),
    bug("lsm: a table is not synced", "The manifest names a table that a power cut empties.", Lane::Crash),
    bug("lsm: a table that points to values is removed unread", "The values of a table that a range deletion hides are never counted as dead.", Lane::Model),
    bug("lsm: a table's file goes while a snapshot reads it", "Removed when it is replaced, not when its last reader is gone.", Lane::Model),
    bug("lsm: a tombstone goes before what it hides", "A compaction drops a tombstone over older entries below: the dead come back.", Lane::Model),
    bug("lsm: a tombstone goes while a transaction needs it", "The transaction does not see that what it read was deleted: a lost update.", Lane::Model),
    bug("lsm: a value that dies is counted twice", "Segments go while values in them are live.", Lane::Model),
    bug("lsm: keys whose heads are equal are taken for one", "A merge drops a key that shares its first bytes with the one before.", Lane::Model),
    bug("lsm: level 0 is read oldest first", "A get finds an old version.", Lane::Model),
    bug("lsm: of the tables that overlap a range the last is left out", "Off by one: a compaction or a scan misses a table.", Lane::Model),
    bug("lsm: of two runs with a key the older one wins", "A merge keeps the wrong one.", Lane::Model),
    bug("lsm: the files of obsolete tables stay", "A leak: each compaction leaves its inputs behind.", Lane::Model),
    bug("lsm: the name of a flushed table is not made durable", "The directory is not synced: a power cut takes the table.", Lane::Crash),
    bug("lsm: the names of a compaction's tables are not made durable", "The same after a compaction.", Lane::Crash),
    bug("memtable: a cursor leaves out the last entry of a node", "Off by one at a node's edge.", Lane::Model),
    bug("memtable: a node's newest sequence number is not raised", "A transaction's check passes over the node that was changed.", Lane::Model),
    bug("memtable: a search takes the newest version", "A snapshot sees what was written after it.", Lane::Model),
    bug("memtable: a split loses an entry", "One key of sixty-four is gone.", Lane::Model),
    bug("memtable: of two writes in a batch the first one wins", "Equal sequence numbers are ordered the wrong way.", Lane::Model),
    bug("simdisk: a deleted file that has another name is recycled", "A checkpoint's segment is written again with other values.", Lane::Sim),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Names asked for in the sources of the crates below the test kit.
    fn planted() -> BTreeSet<String> {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut names = BTreeSet::new();
        for name in [
            "core", "flash", "simdisk", "cache", "log", "runs", "btree", "lsm", "memtable",
            "glintdb", "server",
        ] {
            sources(&crates.join(name).join("src"), &mut names);
        }
        names
    }

    fn sources(dir: &Path, names: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, names);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !path.ends_with("core/src/seeded.rs")
            {
                let text = std::fs::read_to_string(&path).unwrap();
                for call in ["seeded::bug(", "planted!("] {
                    let calls = text.split(call).skip(1);
                    names.extend(calls.map(|call| call.split('"').nth(1).unwrap().to_owned()));
                }
            }
        }
    }

    #[test]
    fn the_list_and_the_sources_name_the_same_bugs() {
        let listed: BTreeSet<String> = BUGS.iter().map(|bug| bug.name.to_owned()).collect();
        assert_eq!(listed.len(), BUGS.len(), "a bug is listed twice");
        assert_eq!(listed, planted());
    }

    #[test]
    fn there_are_at_least_fifty_and_each_begins_with_its_crate() {
        assert!(BUGS.len() >= 50);
        for bug in BUGS {
            assert!(
                bug.name.contains(": ") && bug.mistake.ends_with('.'),
                "{bug:?}"
            );
        }
        assert!(BUGS.is_sorted_by_key(|bug| bug.name));
    }
}
