"""`docs/format/manifest.md`, and with it whole databases."""

import re
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from . import log, table
from . import tree as trees
from .codec import FormatError, Reader, crc32c, need, u32, u64

HEADER = 40
OPTIONS = (
    "size_ratio level0_runs_compact level0_runs_slow level0_runs_stop table_bytes_target block_bytes "
    "filter_bits_per_key compression base_level_bytes"
).split()


@dataclass
class Keyspace:
    number: int
    name: str
    options: dict
    """(level, run, file number) of each table."""
    tables: set = field(default_factory=set)
    """Properties of each table, as the manifest has them."""
    properties: dict = field(default_factory=dict)
    """The tree of a B+tree index, whose tables above are those of its shelf, at level 0."""
    tree: trees.Tree = field(default_factory=trees.Tree)


@dataclass
class State:
    numbers_reserved: int = 0
    keyspaces: dict = field(default_factory=dict)
    keyspace_next: int = 0
    """Keyspace -> sequence number of its end."""
    dropped: dict = field(default_factory=dict)
    """(segment, keyspace) -> bytes of live separated values."""
    liveness: dict = field(default_factory=dict)
    """Segments with nothing but shadowed and hidden values."""
    retired: set = field(default_factory=set)
    """(segment, offset, sequence number)."""
    flush_point: Optional[tuple] = None
    """(segment, offset): the log was durable before it."""
    log_durable: tuple = (0, 0)
    ring_bytes: int | None = None

    def held(self, segment):
        """Bytes of values in a segment that the tables point to."""
        return sum(live for (at, _), live in self.liveness.items() if at == segment)


class Manifest:
    """One manifest file."""

    def __init__(self, data, number=None):
        self.data = data
        need(len(data) >= HEADER and any(data[:HEADER]), "the header never reached the medium")
        need(data[:8] == b"GLNTMANI", "no manifest")
        need(u32(data, 8) == 1, f"version {u32(data, 8)}")
        need(u32(data, 36) == crc32c(data[:36]), "checksum of the header")
        self.database, self.number = bytes(data[12:28]), u64(data, 28)
        need(number in (None, self.number), f"number {self.number} in the header, {number} in the name")
        self.seed = crc32c(self.database + b"manifest" + struct.pack("<Q", self.number))
        self.state = State()
        self.records = []
        at = HEADER
        while (items := self._record(at)) is not None:
            self.records.append((at, items))
            self._apply(Reader(items), first=at == HEADER)
            at += 8 + len(items) + 7 & ~7
        self.end = at
        for later in range(at + 8 & ~7, len(data), 8):
            need(self._record(later) is None, f"a record at {later} behind a hole at {at}")

    @property
    def whole(self):
        return bool(self.records)

    def _record(self, at):
        """The items of the record at `at`; None where no valid one is."""
        head = self.data[at : at + 8]
        if len(head) < 8:
            return None
        length = u32(head, 0)
        items = self.data[at + 8 : at + 8 + length]
        if not 1 <= length <= 1 << 30 or len(items) < length:
            return None
        checksum = crc32c(items, crc32c(head[:4], crc32c(struct.pack("<Q", at), self.seed)))
        return bytes(items) if checksum == u32(head, 4) else None

    def _apply(self, reader, first):
        state, index = self.state, 0
        while not reader.done():
            tag = reader.varint()
            need((tag == 1) == (first and index == 0), "a snapshot stands first in the first record, and nowhere else")
            index += 1
            if tag == 1:
                need(reader.take(16) == self.database, "a snapshot of another database")
            elif tag == 2:
                state.numbers_reserved = max(state.numbers_reserved, reader.varint())
            elif tag == 3:
                self._created(reader)
            elif tag == 4:
                number, seqno = reader.varint(), reader.varint()
                state.keyspaces.pop(number, None)
                state.dropped[number] = seqno
                state.liveness = {key: live for key, live in state.liveness.items() if key[1] != number}
                state.retired = {segment for segment in state.retired if state.held(segment)}
            elif tag == 5:
                state.keyspace_next = max(state.keyspace_next, reader.varint())
            elif tag == 6:
                number, edit = reader.varint(), reader.bytes()
                need(number in state.keyspaces, f"an edit of keyspace {number}, which is not there")
                self._edit(state.keyspaces[number], Reader(edit))
            elif tag == 7:
                keyspace, segment = reader.varint(), reader.varint()
                (change,) = struct.unpack("<q", reader.take(8))
                live = state.liveness.get((segment, keyspace), 0) + change
                need(live >= 0, "live bytes below zero")
                need(change <= 0 or segment not in state.retired, "live bytes for a retired segment")
                state.liveness[segment, keyspace] = live
                state.retired = {segment for segment in state.retired if state.held(segment)}
            elif tag == 8:
                point = (reader.varint(), reader.varint(), reader.varint())
                before = state.flush_point or (0, 0, 0)
                need(point[:2] >= before[:2] and point[2] >= before[2], "a flush point that goes back")
                state.flush_point = point
                state.dropped = {number: seqno for number, seqno in state.dropped.items() if seqno > point[2]}
            elif tag == 9:
                state.log_durable = max(state.log_durable, (reader.varint(), reader.varint()))
            elif tag == 10:
                number, options = reader.varint(), self._options(reader)
                need(number in state.keyspaces, f"options of keyspace {number}, which is not there")
                state.keyspaces[number].options = options
            elif tag == 11:
                segment = reader.varint()
                need(segment not in state.retired and state.held(segment), f"segment {segment} is retired twice, or without pointers")
                state.retired.add(segment)
            elif tag == 12:
                state.ring_bytes = reader.varint()
            elif tag == 13:
                number, options, edit = reader.varint(), self._options(reader), reader.bytes()
                need(number in state.keyspaces, f"an index of keyspace {number}, which is not there")
                name = state.keyspaces[number].name
                state.keyspaces[number] = Keyspace(number, name, options)
                self._edit(state.keyspaces[number], Reader(edit))
            else:
                raise FormatError(f"item {tag}")

    def _created(self, reader):
        number, name = reader.varint(), reader.bytes().decode()
        need(number < 1 << 32 and name not in [space.name for space in self.state.keyspaces.values()], "a keyspace twice")
        self.state.keyspaces[number] = Keyspace(number, name, self._options(reader))

    @staticmethod
    def _options(reader):
        kind = reader.varint()
        need(kind in (0, 1), "kind of an index")
        options = Reader(reader.bytes())
        if kind == 1:
            version = options.fixed(1)
            need(version in (1, 2), "version of an index' options")
            values = {option: options.varint() for option in trees.OPTIONS}
            reshape = {option: options.varint() for option in trees.RESHAPE_OPTIONS} if version >= 2 else {}
            values |= reshape or trees.RESHAPE_DEFAULTS
            need(options.done(), "bytes behind the options")
            return values
        version = options.fixed(1)
        need(version in (1, 2, 3), "version of an index' options")
        values = {option: options.varint() for option in OPTIONS}
        values["pinned_levels"] = options.varint() if version >= 2 else 0
        values["levels_max"] = options.varint() if version >= 3 else 6
        need(options.done(), "bytes behind the options")
        return values

    @staticmethod
    def _edit(keyspace, edit):
        if edit.done():
            return
        version = edit.fixed(1)
        if version == 64:
            trees.apply(keyspace, edit)
            return
        need(version == 1, "version of an edit")
        while not edit.done():
            operation, level, run = edit.fixed(1), edit.fixed(1), edit.varint()
            need(level <= 6, f"level {level}")
            if operation == 1:
                properties = edit.bytes()
                number = Reader(properties).varint()
                need((level, run, number) not in keyspace.tables, f"table {number} is added twice")
                keyspace.tables.add((level, run, number))
                keyspace.properties[number] = properties
            else:
                need(operation == 2, f"operation {operation} of an edit")
                place = (level, run, edit.varint())
                need(place in keyspace.tables, f"table {place} is removed and not there")
                keyspace.tables.remove(place)

    def lines(self):
        yield f"manifest {self.number}, database {self.database.hex()}, {len(self.records)} records, {len(self.data) - self.end} bytes behind them"
        state = self.state
        yield f"  file numbers below {state.numbers_reserved}, next keyspace {state.keyspace_next}, flush point {state.flush_point}"
        for keyspace in state.keyspaces.values():
            yield f"  keyspace {keyspace.number} {keyspace.name!r}: {keyspace.options}"
            for place in sorted(keyspace.tables):
                yield f"    level %d run %d table %d" % place
            for (kind, number), live in sorted(keyspace.tree.files.items()):
                yield f"    {kind} {number}: {live[0]} nodes, {live[1]} bytes are needed"
            if keyspace.tree.root:
                yield f"    {keyspace.tree.root}"
        for (segment, keyspace), live in sorted(state.liveness.items()):
            yield f"  segment {segment}, keyspace {keyspace}: {live} live bytes"
        for segment in sorted(state.retired):
            yield f"  segment {segment} is retired"


def newest(directory):
    """The manifest of a database: the greatest number whose first record is whole."""
    for path in sorted(Path(directory).glob("manifest-*.glint"), reverse=True):
        match = re.fullmatch(r"manifest-([0-9a-f]{16})\.glint", path.name)
        data = path.read_bytes()
        if match and any(data[:HEADER]) and len(data) >= HEADER:
            manifest = Manifest(data, int(match[1], 16))
            if manifest.whole:
                return manifest
    raise FormatError(f"no manifest in {directory}")


class Database:
    """Everything a closed database holds, by keyspace: what opening it would give."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self.manifest = newest(directory)
        state = self.manifest.state
        self.segments = log.segments(directory)
        for segment in self.segments.values():
            need(segment.database == self.manifest.database, "a segment of another database")
        self._records = {number: self._index(space) for number, space in state.keyspaces.items()}
        self._replay(*state.flush_point)
        self.keyspaces = {
            space.name: {key: value for key, (_, value) in sorted(self._records[number].items()) if value is not None}
            for number, space in state.keyspaces.items()
        }

    def _index(self, keyspace):
        """Key -> (sequence number, value), tombstones included, of the tables."""
        found, ranges, clip = {}, [], keyspace.tree.clip or (-1, b"")
        # The newest place first: of a value that was moved it has the place that counts, with the number of the old one.
        for _, run, number in sorted(keyspace.tables, key=lambda place: (place[0], -place[1])):
            read = self._table(keyspace, number)
            # Below the clip the tree has everything of these runs.
            settled = clip[1] if run <= clip[0] else b""
            for entry in read.entries:
                if entry.key >= settled and (entry.key not in found or found[entry.key][0] < entry.seqno):
                    found[entry.key] = (entry.seqno, entry.value)
            ranges += [one for one in read.range_tombstones if one.end is None or one.end > settled]
        of_tree = {number: self._table(keyspace, number) for kind, number in keyspace.tree.files if kind == "table"}
        for entry in trees.leaves(keyspace.tree, of_tree.__getitem__, self._branches):
            found.setdefault(entry.key, (entry.seqno, entry.value))
        for read in of_tree.values():
            ranges += read.range_tombstones
        for key, (seqno, value) in found.items():
            hidden = any(r.start <= key and (r.end is None or key < r.end) and r.seqno > seqno for r in ranges)
            found[key] = (seqno, None if hidden else self._value(value))
        return found

    def _table(self, keyspace, number):
        name = f"table-{number:016x}.glint"
        read = table.Table((self.directory / name).read_bytes(), number)
        need(read.database == self.manifest.database, f"{name} is of another database")
        stated = keyspace.properties[number]
        need(stated in bytes(read.data[read.sections["properties"][0] :]), f"{name}: the manifest has other properties")
        return read

    def _branches(self, number):
        name = f"tree-{number:016x}.glint"
        read = trees.Branches((self.directory / name).read_bytes(), number)
        need(read.database == self.manifest.database, f"{name} is of another database")
        return read

    def _value(self, value):
        if not isinstance(value, table.Pointer):
            return value
        need(value.segment in self.segments, f"segment {value.segment}, which a value points to, is not there")
        segment = self.segments[value.segment]
        data = bytes(segment.data[value.offset : value.offset + value.length])
        need(len(data) == value.length and crc32c(data) == value.checksum, f"a value in segment {value.segment}")
        return data

    def _replay(self, segment, offset, seqno):
        for place, frame in log.commits(self.directory, segment, offset):
            if frame.kind != "commit" or frame.seqno <= seqno:
                continue
            need(frame.seqno == seqno + 1, f"commit {frame.seqno} follows {seqno}")
            seqno = frame.seqno
            for entry in frame.entries:
                if entry.keyspace not in self._records:
                    need(entry.keyspace in self.manifest.state.dropped, f"keyspace {entry.keyspace} is unknown")
                    continue
                records = self._records[entry.keyspace]
                if isinstance(entry, log.Put):
                    records[entry.key] = (seqno, entry.value)
                elif isinstance(entry, log.Delete):
                    records.pop(entry.key, None)
                else:
                    for key in list(records):
                        if entry.start <= key and (entry.end is None or key < entry.end):
                            del records[key]
