"""`docs/format/table.md`."""

import struct
from dataclasses import dataclass
from typing import Optional

from .codec import FormatError, Reader, crc32c, lz4_block, need, u16, u32, u64, xxh3_64

PAGE = 4096
FOOTER = 96


@dataclass(frozen=True)
class Pointer:
    segment: int
    offset: int
    length: int
    checksum: int


@dataclass(frozen=True)
class Entry:
    """`value`: bytes, a Pointer, or None for a tombstone."""

    key: bytes
    seqno: int
    value: object


@dataclass(frozen=True)
class RangeTombstone:
    start: bytes
    end: Optional[bytes]
    seqno: int


class Table:
    """A whole table, every byte checked."""

    MAGIC, KIND = b"GLNTTABL", b"table"

    def __init__(self, data, file_number=None):
        self.data = data
        need(len(data) % PAGE == 0 and len(data) >= 2 * PAGE, f"a table of {len(data)} bytes")
        self.covered = []
        self._header(file_number)
        self._footer()
        self._properties()
        self.range_tombstones = self._range_tombstones()
        self.blocks = self._fences()
        self.entries = self._entries()
        self._filter()
        self._agree()
        self._gaps()

    def _sum(self, at, data):
        return crc32c(data, crc32c(struct.pack("<Q", at), self.seed))

    def _header(self, file_number):
        data = self.data
        need(data[:8] == self.MAGIC, "another kind of file")
        need(u32(data, 8) == 1, f"version {u32(data, 8)}")
        self.database = bytes(data[16:32])
        self.number = u64(data, 32)
        need(file_number in (None, self.number), f"file number {self.number} in the header, {file_number} in the name")
        self.seed = crc32c(self.database + self.KIND + struct.pack("<Q", self.number))
        need(u32(data, 12) == 0 and u32(data, 40) == 0, "reserved fields of the header")
        need(u32(data, 44) == self._sum(0, data[:44]), "checksum of the header")
        self.covered.append((0, 48))

    def _footer(self):
        at = len(self.data) - FOOTER
        footer = self.data[at:]
        need(footer[88:] == b"GLNTTEND", "no footer")
        need(u32(footer, 84) == self._sum(at, footer[:84]), "checksum of the footer")
        need(u32(footer, 80) == 1, "version of the footer")
        need(footer[64:80] == bytes(16), "reserved fields of the footer")
        self.sections = {}
        for index, name in enumerate(("filter", "fences", "range tombstones", "properties")):
            self.sections[name] = (u64(footer, 16 * index), u64(footer, 16 * index + 8))
        self.covered.append((at, len(self.data)))

    def _section(self, name):
        """What is behind the checksum of a section; None where it is absent."""
        at, length = self.sections[name]
        if (at, length) == (0, 0):
            return None
        need(length >= 4 and at + length <= len(self.data) - FOOTER, f"{name} outside the file")
        need(u32(self.data, at) == self._sum(at, self.data[at + 4 : at + length]), f"checksum of {name}")
        self.covered.append((at, at + length))
        return Reader(self.data, at + 4, at + length)

    def _properties(self):
        section = self._section("properties")
        need(section is not None, "no properties")
        fields = Reader(section.bytes())
        need(section.done(), "bytes behind the properties")
        names = "number length tail_offset blocks entries tombstones range_tombstones pointed_bytes oldest newest"
        self.properties = {name: fields.varint() for name in names.split()}
        self.properties["first"] = fields.bytes()
        self.properties["last"] = fields.bytes()
        self.properties["start"] = fields.bytes()
        self.properties["end"] = fields.bytes() if fields.fixed(1) else None
        need(fields.done(), "bytes behind the fields of the properties")

    def _range_tombstones(self):
        section = self._section("range tombstones")
        found = []
        while section and not section.done():
            start = section.bytes()
            has_end = section.fixed(1)
            need(has_end in (0, 1), "a flag that is neither 0 nor 1")
            end = section.bytes() if has_end else None
            found.append(RangeTombstone(start, end, section.varint()))
        need(found == sorted(found, key=lambda t: (t.start, t.seqno)), "range tombstones are not in order")
        return found

    def _fences(self):
        """(fence, offset, length) of each block."""
        section = self._section("fences")
        if section is None:
            return []
        count = section.fixed(4)
        prefix = section.bytes()
        blocks = []
        fence, end = b"", PAGE
        for _ in range(count):
            shared = section.varint()
            need(shared <= len(fence), "a fence shares more than there is")
            fence = fence[:shared] + section.bytes()
            at = end + section.varint()
            end = at + section.varint()
            need(not blocks or blocks[-1][0] < prefix + fence, "fences are not in order")
            need(end <= self.properties["tail_offset"], "a block behind the tail's beginning")
            blocks.append((prefix + fence, at, end - at))
        need(section.done(), "bytes behind the fences")
        return blocks

    def _entries(self):
        entries = []
        for index, (fence, at, length) in enumerate(self.blocks):
            block = self._block(at, length)
            need(index == 0 or entries[-1].key < fence, "a fence not above the block before")
            need(fence <= block[0].key, "a fence above its block's first key")
            entries += block
            self.covered.append((at, at + length))
        keys = [entry.key for entry in entries]
        need(all(one < two for one, two in zip(keys, keys[1:])), "keys are not in order")
        return entries

    def _block(self, at, length):
        stored = self.data[at : at + length]
        need(u32(stored, 0) == self._sum(at, stored[4:]), f"checksum of the block at {at}")
        codec, width, interval, zero = stored[4:8]
        count, restarts, common, zero2 = (u16(stored, offset) for offset in (8, 10, 12, 14))
        whole, base = u32(stored, 16), u64(stored, 20)
        need(zero == 0 and zero2 == 0 and width <= 8 and interval >= 1 and count >= 1, "header of a block")
        need(restarts == -(-count // interval), "restart points of a block")
        if codec == 1:
            block = stored[:28] + lz4_block(stored[28:], whole - 28)
        else:
            need(codec == 0, f"codec {codec}")
            need(not any(stored[whole:]), "padding of a block")
            block = stored[:whole]
        heads = [u32(block, 28 + 4 * n) for n in range(restarts)]
        offsets = [u16(block, 28 + 4 * restarts + 2 * n) for n in range(restarts)]
        reader = Reader(block, 28 + 6 * restarts, whole)
        entries = []
        for index in range(count):
            if index % interval == 0:
                need(offsets[index // interval] == reader.at, "offset of a restart point")
            entry = self._entry(reader, width, base, entries, index % interval == 0)
            if index % interval == 0:
                head = entry.key[common : common + 4].ljust(4, b"\0")
                need(heads[index // interval] == int.from_bytes(head, "big"), "head of a restart point")
            entries.append(entry)
        need(reader.done(), "bytes behind the entries of a block")
        first = entries[0].key[:common]
        need(len(first) == common and all(entry.key.startswith(first) for entry in entries), "common prefix of a block")
        need(min(entry.seqno for entry in entries) == base, "smallest sequence number of a block")
        return entries

    @staticmethod
    def _entry(reader, width, base, before, restart):
        seqno = base + reader.fixed(width)
        shared, kind = divmod(reader.varint(), 4)
        rest = reader.varint()
        length = reader.varint() if kind == 0 else 0
        model = b"" if not before else before[0].key if restart else before[-1].key
        need(shared <= len(model), "a key shares more than there is")
        key = model[:shared] + reader.take(rest)
        if kind == 0:
            value = reader.take(length)
        elif kind == 1:
            value = Pointer(reader.fixed(8), reader.fixed(4), reader.fixed(4), reader.fixed(4))
        else:
            need(kind == 2, "an entry of kind 3")
            value = None
        return Entry(key, seqno, value)

    def _filter(self):
        section = self._section("filter")
        if section is None:
            return
        probes, lines = section.fixed(4), section.fixed(8)
        need(1 <= probes <= 16, "probes of the filter")
        words = [section.fixed(8) for _ in range(8 * lines)]
        need(section.done(), "bytes behind the filter")
        for entry in self.entries:
            hashed = xxh3_64(entry.key)
            line = (hashed >> 32) * lines >> 32
            probe = hashed & 0xFFFFFFFF
            for _ in range(probes):
                probe = probe * 0x9E3779B9 & 0xFFFFFFFF
                bit = probe >> 23
                need(words[8 * line + bit // 64] >> bit % 64 & 1, f"the filter does not know {entry.key!r}")

    def _agree(self):
        """The properties must say what is there."""
        entries, ranges = self.entries, self.range_tombstones
        seqnos = [item.seqno for item in entries + ranges]
        found = {
            "number": self.number,
            "length": len(self.data),
            "blocks": len(self.blocks),
            "entries": len(entries),
            "tombstones": sum(entry.value is None for entry in entries),
            "range_tombstones": len(ranges),
            "pointed_bytes": sum(e.value.length for e in entries if isinstance(e.value, Pointer)),
            "oldest": min(seqnos, default=0),
            "newest": max(seqnos, default=0),
            "first": entries[0].key if entries else b"",
            "last": entries[-1].key if entries else b"",
        }
        for name, value in found.items():
            need(self.properties[name] == value, f"property {name}: {self.properties[name]!r} stated, {value!r} found")
        need(self.properties["tail_offset"] % PAGE == 0, "tail_offset")

    def _gaps(self):
        """Bytes of no part are zero, less than a page each."""
        end = 0
        for start, stop in sorted(self.covered):
            need(start >= end, "parts overlap")
            gap = self.data[end:start]
            need(len(gap) < PAGE and not any(gap), f"the gap from {end} to {start} is not zero, or too long")
            end = stop

    def lines(self):
        yield f"table {self.number}, database {self.database.hex()}"
        for name, value in self.properties.items():
            yield f"  {name}: {value!r}"
        for tombstone in self.range_tombstones:
            yield f"  {tombstone.seqno} delete from {tombstone.start!r} to {tombstone.end!r}"
        for entry in self.entries:
            yield f"  {entry.seqno} {entry.key!r} = {entry.value!r}"


__all__ = ["Entry", "FormatError", "Pointer", "RangeTombstone", "Table"]
