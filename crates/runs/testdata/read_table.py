#!/usr/bin/env python3
"""Reads a GlintDB table, written from docs/format/table.md alone, and prints what is in it in the form of table-v1.txt.

Usage: read_table.py FILE. Exits with 1 and a sentence where the file is not as the page says.
"""

import struct
import sys

PAGE = 4096


def crc32c_table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = (n >> 1) ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


TABLE = crc32c_table()


def crc32c(data, crc=0):
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def check(condition, what):
    if not condition:
        sys.exit(f"read_table.py: {what}")


class Reader:
    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def take(self, length):
        check(self.at + length <= len(self.data), "field beyond its end")
        self.at += length
        return self.data[self.at - length : self.at]

    def u32(self):
        return struct.unpack("<I", self.take(4))[0]

    def varint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def bytes(self):
        return self.take(self.varint())

    def end(self):
        return self.at == len(self.data)


def lz4(data, size):
    """Decompresses one LZ4 block."""
    out, at = bytearray(), 0

    def length(nibble):
        nonlocal at
        if nibble == 15:
            while True:
                nibble += data[at]
                at += 1
                if data[at - 1] != 255:
                    break
        return nibble

    while at < len(data):
        token = data[at]
        at += 1
        literals = length(token >> 4)
        out += data[at : at + literals]
        at += literals
        if at >= len(data):
            break
        distance = data[at] | data[at + 1] << 8
        at += 2
        for _ in range(length(token & 15) + 4):
            out.append(out[-distance])
    check(len(out) == size, "block decompresses to another size")
    return bytes(out)


def main(path):
    with open(path, "rb") as file:
        data = file.read()
    check(len(data) % PAGE == 0, "length is not whole pages")
    check(data[0:8] == b"GLNTTABL", "no table header")
    check(struct.unpack("<I", data[8:12])[0] == 1, "version")
    db, number = data[16:32], data[32:40]
    seed = crc32c(number, crc32c(b"table", crc32c(db)))

    def checksum(offset, covered):
        return crc32c(covered, crc32c(struct.pack("<Q", offset), seed))

    check(struct.unpack("<I", data[44:48])[0] == checksum(0, data[0:44]), "header checksum")
    check(not any(data[48:PAGE]), "header page")

    footer_at = len(data) - 96
    footer = data[footer_at:]
    check(footer[88:] == b"GLNTTEND", "no table footer")
    check(struct.unpack("<II", footer[80:88]) == (1, checksum(footer_at, footer[:84])), "footer")
    spans = struct.unpack("<8Q", footer[:64])
    filter_span, fence_span, range_span, property_span = zip(spans[0::2], spans[1::2])

    def section(span):
        offset, length = span
        part = data[offset : offset + length]
        check(struct.unpack("<I", part[:4])[0] == checksum(offset, part[4:]), f"section at {offset}")
        return Reader(part, 4)

    outer = section(property_span)
    properties = Reader(outer.bytes())
    check(outer.end(), "properties")
    fields = [properties.varint() for _ in range(10)]
    file_number, size, tail, blocks, entries, tombstones, ranges, pointed, oldest, newest = fields
    smallest, largest = properties.bytes(), properties.bytes()
    properties.bytes()
    if properties.take(1)[0]:
        properties.bytes()
    check(properties.end(), "properties")
    check(file_number == struct.unpack("<Q", number)[0] and size == len(data), "properties")
    check(tail == min(o for o, n in (filter_span, fence_span) if n), "tail")
    if filter_span[1]:
        header = section(filter_span)
        header.u32()
        lines = struct.unpack("<Q", header.take(8))[0]
        check(len(header.data) == 16 + 64 * lines, "filter")

    fences = section(fence_span)
    check(fences.u32() == blocks, "number of fences")
    common, fence, position = fences.bytes(), b"", PAGE
    found = []
    lines = []
    for index in range(blocks):
        fence = fence[: fences.varint()] + fences.bytes()
        position += fences.varint()
        length = fences.varint()
        stored = data[position : position + length]
        check(struct.unpack("<I", stored[:4])[0] == checksum(position, stored[4:]), f"block at {position}")
        position += length
        codec, width, interval, _, count, restarts, prefix, _, used, base = struct.unpack("<BBBBHHHHIQ", stored[4:28])
        if codec == 1:
            image = stored[:28] + lz4(stored[28:], used - 28)
        else:
            check(codec == 0, "codec")
            image = stored[:used]
        check(restarts == -(-count // interval), "restart points")
        heads = struct.unpack(f"<{restarts}I", image[28 : 28 + 4 * restarts])
        offsets = struct.unpack(f"<{restarts}H", image[28 + 4 * restarts : 28 + 6 * restarts])
        block = Reader(image, 28 + 6 * restarts)
        first = key = None
        for ordinal in range(count):
            if ordinal % interval == 0:
                check(block.at == offsets[ordinal // interval], "restart offset")
            seqno = base + int.from_bytes(block.take(width), "little")
            tag, rest = block.varint(), block.varint()
            shared, kind = tag >> 2, tag & 3
            value_length = block.varint() if kind == 0 else [0, 20, 0][kind]
            before = (first if ordinal % interval == 0 else key) or b""
            key = before[:shared] + block.take(rest)
            first = key if ordinal == 0 else first
            check(not found or found[-1] < key, "order of keys")
            check(key >= common + fence, "fence")
            check(key[:prefix] == first[:prefix], "common prefix")
            if ordinal % interval == 0:
                head = (key[prefix : prefix + 4] + b"\0\0\0\0")[:4]
                check(heads[ordinal // interval] == int.from_bytes(head, "big"), "head")
            value = block.take(value_length)
            text = f"x{key.hex()} {seqno} "
            if kind == 0:
                text += f"inline x{value.hex()}"
            elif kind == 1:
                text += "pointer " + " ".join(map(str, struct.unpack("<QIII", value)))
                pointed -= struct.unpack("<QIII", value)[2]
            else:
                text += "tombstone"
                tombstones -= 1
            found.append(key)
            lines.append(text)
        check(block.end(), "bytes behind the last entry")
    check(fences.end() and position <= tail, "fences")
    check((len(found), tombstones, pointed) == (entries, 0, 0), "counts")
    check((found[0], found[-1]) == (smallest, largest), "smallest and largest")
    if ranges:
        reader = section(range_span)
        for _ in range(ranges):
            start = reader.bytes()
            end = "x" + reader.bytes().hex() if reader.take(1)[0] else "-"
            lines.append(f"range x{start.hex()} {end} {reader.varint()}")
        check(reader.end(), "range tombstones")
    print("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1])
