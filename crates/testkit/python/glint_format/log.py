"""`docs/format/log.md`."""

import re
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from .codec import FormatError, Reader, crc32c, need, u32, u64

BLOCK = 4096
FRAME_HEADER = 40
HEADER_KINDS = {1: "stream", 2: "large", 3: "values"}
FRAME_KINDS = {1: "commit", 2: "seal", 3: "mark", 4: "relocation"}


def pad8(length):
    return (length + 7) & ~7


@dataclass(frozen=True)
class Put:
    keyspace: int
    key: bytes
    value: bytes
    """Where a separated value's first byte stands in the file; None for an inline one."""
    offset: Optional[int] = None


@dataclass(frozen=True)
class Delete:
    keyspace: int
    key: bytes


@dataclass(frozen=True)
class DeleteRange:
    keyspace: int
    start: bytes
    end: Optional[bytes]


@dataclass
class Frame:
    offset: int
    kind: str
    seqno: int
    durable: int
    length: int
    entries: list = field(default_factory=list)
    next_segment: Optional[int] = None

    def is_last(self):
        """Whether nothing behind it belongs to the segment."""
        return self.kind == "seal" or (self.kind == "relocation" and not self.entries)


class Segment:
    """The header of a segment, and its frames one by one."""

    def __init__(self, data, number=None):
        self.data = data
        need(len(data) >= BLOCK and data[:8] == b"GLINTLOG", "no log segment")
        need(u32(data, 8) == 1, f"version {u32(data, 8)}")
        need(u32(data, 12) in HEADER_KINDS, f"segment kind {u32(data, 12)}")
        self.kind = HEADER_KINDS[u32(data, 12)]
        self.database = bytes(data[16:32])
        self.number, self.base, self.capacity = u64(data, 32), u64(data, 40), u64(data, 48)
        self.seed = crc32c(self.database + b"log" + struct.pack("<Q", self.number))
        need(u32(data, 60) == self._placed(0, data[:60]), "checksum of the header")
        need(number in (None, self.number), f"segment {self.number} in the header, {number} in the name")
        need(self.base % BLOCK == 0 and self.capacity % BLOCK == 0, "base or capacity")
        need(BLOCK < self.capacity < 1 << 32, "capacity")

    def _placed(self, offset, data):
        return crc32c(data, crc32c(struct.pack("<Q", offset), self.seed))

    def frame(self, offset, source=None):
        """The frame at `offset`, its bytes taken from `source(offset, length)`; FormatError where no valid frame is."""
        source = source or self._file
        header = source(offset, FRAME_HEADER)
        need(header[:4] == b"GLF\x01", "no frame")
        need(u32(header, 4) == self._placed(offset, header[8:40]), "checksum of a frame header")
        need(header[15] in FRAME_KINDS, f"frame kind {header[15]}")
        meta_length, values_length, count = u32(header, 24), u32(header, 28), u32(header, 32)
        whole = FRAME_HEADER + pad8(meta_length) + pad8(values_length)
        need(offset % 8 == 0 and offset + whole <= self.capacity, "a frame past the segment's end")
        body = source(offset + FRAME_HEADER, whole - FRAME_HEADER)
        meta = body[:meta_length]
        need(u32(header, 36) == crc32c(meta), "checksum of the metadata")
        frame = Frame(offset, FRAME_KINDS[header[15]], u64(header[8:15] + b"\0", 0), u64(header, 16), whole)
        if frame.kind == "relocation":
            need((frame.seqno, frame.durable) == (0, 0), "a relocation with a place in the stream")
        if frame.kind in ("commit", "relocation"):
            values = body[pad8(meta_length) :][:values_length]
            first = offset + FRAME_HEADER + pad8(meta_length)
            frame.entries = self._entries(meta, count, values, first)
        elif frame.kind == "seal":
            need((meta_length, values_length) == (8, 0), "a seal of another size")
            frame.next_segment = u64(meta, 0)
            need(frame.next_segment > self.number, "a seal that leads backwards")
        elif frame.kind == "mark":
            need((meta_length, values_length) == (0, 0), "a mark with a body")
        if frame.kind == "relocation":
            need(all(isinstance(entry, Put) and entry.offset is not None for entry in frame.entries), "more than values")
        return frame

    def _file(self, offset, length):
        data = self.data[offset : offset + length]
        need(len(data) == length, "the file ends")
        return bytes(data)

    @staticmethod
    def _entries(meta, count, values, first):
        reader, entries, used = Reader(meta), [], 0
        for _ in range(count):
            kind, keyspace, key = reader.fixed(1), reader.varint(), reader.bytes()
            need(keyspace < 1 << 32, "number of a keyspace")
            if kind == 1:
                entries.append(Put(keyspace, key, reader.bytes()))
            elif kind == 2:
                length, checksum = reader.varint(), reader.fixed(4)
                value = values[used : used + length]
                need(len(value) == length and crc32c(value) == checksum, "a separated value")
                entries.append(Put(keyspace, key, value, first + used))
                used += length
            elif kind == 3:
                entries.append(Delete(keyspace, key))
            elif kind in (4, 5):
                entries.append(DeleteRange(keyspace, key, reader.bytes() if kind == 4 else None))
            else:
                raise FormatError(f"an entry of kind {kind}")
        need(reader.done(), "bytes behind the entries")
        need(used == len(values), "values that no entry has")
        return entries

    def frames(self, ring=b"", offset=BLOCK):
        """Frames from `offset` to the seal or the end of the values, or to where none is valid; then `self.hole` is that offset, else None."""
        self.hole = None
        while True:
            try:
                frame = self.frame(offset)
            except FormatError:
                try:
                    frame = self.frame(offset, self._ring_source(ring))
                except FormatError:
                    self.hole = offset
                    return
            need((frame.kind == "relocation") == (self.kind == "values"), f"a {frame.kind} in a segment of kind {self.kind}")
            yield frame
            if frame.is_last():
                return
            offset += frame.length

    def _ring_source(self, ring):
        def source(offset, length):
            need(ring and self.kind == "stream" and length <= len(ring), "not in the ring")
            start = (self.base + offset) % len(ring)
            return (ring[start:] + ring[:start])[:length] if start + length > len(ring) else ring[start : start + length]

        return source

    def claims_after(self, hole, start=BLOCK):
        """Whether a frame header from `start` on says that bytes behind `hole` (a position) were durable."""
        for offset in range(start, len(self.data) - FRAME_HEADER + 1, 8):
            if self.data[offset : offset + 4] == b"GLF\x01":
                header = self.data[offset : offset + FRAME_HEADER]
                if u32(header, 4) == self._placed(offset, header[8:40]) and u64(header, 16) > hole:
                    return True
        return False

    def lines(self):
        yield f"segment {self.number} ({self.kind}), database {self.database.hex()}, base {self.base}, capacity {self.capacity}"
        for frame in self.frames():
            yield f"  {frame.offset}: {frame.kind} {frame.seqno}, durable {frame.durable}, next {frame.next_segment}"
            for entry in frame.entries:
                yield f"    {entry!r}"
        if self.hole is not None:
            yield f"  {self.hole}: no frame"


def segments(directory):
    """The segments of a database by number; those that never took a frame are left out."""
    found = {}
    for path in sorted(Path(directory).glob("log-*.glint")):
        match = re.fullmatch(r"log-([0-9a-f]{16})\.glint", path.name)
        data = path.read_bytes()
        if match and any(data[:BLOCK]):
            found[int(match[1], 16)] = Segment(data, int(match[1], 16))
    return found


def commits(directory, number, offset=BLOCK):
    """Frames of the stream from that place on, in order; the tail rule decides how it may end."""
    found = segments(directory)
    ring_file = Path(directory) / "ring"
    ring = ring_file.read_bytes() if ring_file.exists() else b""
    position = 0
    while True:
        need(number in found, f"segment {number} is not there")
        segment = found[number]
        need(segment.kind != "values", f"segment {number} is no part of the stream")
        need(segment.base >= position, "positions do not grow")
        position = segment.base + segment.capacity
        last = None
        for frame in segment.frames(ring, offset):
            yield segment, frame
            last = frame
        offset = BLOCK
        if last is not None and last.kind == "seal":
            number = last.next_segment
            continue
        hole = segment.base + segment.hole
        later = [other for n, other in found.items() if n > number and other.kind != "values"]
        corrupt = segment.claims_after(hole, segment.hole) or any(other.claims_after(hole) for other in later)
        need(not corrupt, f"segment {number}: bytes at {segment.hole} were durable and are gone")
        return
