"""What all pages share: little-endian integers, LEB128, byte strings, CRC-32C; and the two algorithms that the table page names, LZ4 blocks and XXH3-64."""

import struct


class FormatError(Exception):
    """The bytes are not what the page says."""


def need(condition, message):
    """A rule of a page: broken, the file is wrong (or the page is)."""
    if not condition:
        raise FormatError(message)


def _crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC = _crc_table()


def crc32c(data, crc=0):
    """CRC-32C (Castagnoli) of `data`, continuing from `crc`."""
    crc ^= 0xFFFFFFFF
    table = _CRC
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def u16(data, at):
    return struct.unpack_from("<H", data, at)[0]


def u32(data, at):
    return struct.unpack_from("<I", data, at)[0]


def u64(data, at):
    return struct.unpack_from("<Q", data, at)[0]


class Reader:
    """Takes fields one after the other."""

    def __init__(self, data, at=0, end=None):
        self.data = data
        self.at = at
        self.end = len(data) if end is None else end

    def take(self, length):
        need(self.at + length <= self.end, f"{length} bytes wanted at {self.at}, {self.end - self.at} are left")
        self.at += length
        return bytes(self.data[self.at - length : self.at])

    def fixed(self, length):
        return int.from_bytes(self.take(length), "little")

    def varint(self):
        value = 0
        for index in range(10):
            byte = self.fixed(1)
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                need(value < 1 << 64, "a varint of more than 64 bits")
                return value
        raise FormatError("a varint of more than 10 bytes")

    def bytes(self):
        return self.take(self.varint())

    def done(self):
        return self.at == self.end


def lz4_block(data, length):
    """Expands an LZ4 block to exactly `length` bytes."""
    out = bytearray()
    reader = Reader(data)

    def extended(value):
        while value >= 15:
            byte = reader.fixed(1)
            value += byte
            if byte != 255:
                break
        return value

    while True:
        token = reader.fixed(1)
        out += reader.take(extended(token >> 4))
        if reader.done():
            break
        offset = reader.fixed(2)
        need(0 < offset <= len(out), "an LZ4 match before the beginning")
        for _ in range(extended(token & 15) + 4):
            out.append(out[-offset])
        need(len(out) <= length, "an LZ4 block longer than stated")
    need(len(out) == length, f"an LZ4 block of {len(out)} bytes, {length} stated")
    return bytes(out)


_M64 = (1 << 64) - 1
_P32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_P64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364ea"
    "c5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)


def _fold(a, b):
    product = a * b
    return product & _M64 ^ product >> 64


def _xor_shift(value, shift):
    return value ^ value >> shift


def _avalanche(value):
    return _xor_shift(_xor_shift(value, 37) * 0x165667919E3779F9 & _M64, 32)


def _avalanche64(value):
    value = _xor_shift(value, 33) * _P64[1] & _M64
    value = _xor_shift(value, 29) * _P64[2] & _M64
    return _xor_shift(value, 32)


def _mix16(data, at, secret_at):
    return _fold(u64(data, at) ^ u64(_SECRET, secret_at), u64(data, at + 8) ^ u64(_SECRET, secret_at + 8))


def xxh3_64(data):
    """XXH3-64 with seed 0."""
    length = len(data)
    if length == 0:
        return _avalanche64(u64(_SECRET, 56) ^ u64(_SECRET, 64))
    if length <= 3:
        word = data[0] << 16 | data[length >> 1] << 24 | data[-1] | length << 8
        return _avalanche64(word ^ u32(_SECRET, 0) ^ u32(_SECRET, 4))
    if length <= 8:
        word = u32(data, length - 4) + (u32(data, 0) << 32)
        word ^= u64(_SECRET, 8) ^ u64(_SECRET, 16)
        word ^= (word << 49 | word >> 15) & _M64 ^ (word << 24 | word >> 40) & _M64
        word = word * 0x9FB21C651E98DF25 & _M64
        word ^= (word >> 35) + length
        return _xor_shift(word * 0x9FB21C651E98DF25 & _M64, 28)
    if length <= 16:
        low = u64(_SECRET, 24) ^ u64(_SECRET, 32) ^ u64(data, 0)
        high = u64(_SECRET, 40) ^ u64(_SECRET, 48) ^ u64(data, length - 8)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche(length + swapped + high + _fold(low, high) & _M64)
    if length <= 128:
        total = length * _P64[0]
        for index in reversed(range((length - 1) // 32 + 1)):
            total += _mix16(data, 16 * index, 32 * index) + _mix16(data, length - 16 * (index + 1), 32 * index + 16)
        return _avalanche(total & _M64)
    if length <= 240:
        total = length * _P64[0]
        for index in range(8):
            total += _mix16(data, 16 * index, 16 * index)
        total = _avalanche(total & _M64)
        for index in range(8, length // 16):
            total += _mix16(data, 16 * index, 16 * (index - 8) + 3)
        total += _mix16(data, length - 16, 136 - 17)
        return _avalanche(total & _M64)
    return _xxh3_long(data)


def _xxh3_long(data):
    lanes = [_P32[2], _P64[0], _P64[1], _P64[2], _P64[3], _P32[1], _P64[4], _P32[0]]

    def stripe(at, secret_at):
        for lane in range(8):
            value = u64(data, at + 8 * lane)
            key = value ^ u64(_SECRET, secret_at + 8 * lane)
            lanes[lane ^ 1] = lanes[lane ^ 1] + value & _M64
            lanes[lane] = lanes[lane] + (key & 0xFFFFFFFF) * (key >> 32) & _M64

    length = len(data)
    for index in range((length - 1) // 64):
        stripe(64 * index, 8 * (index % 16))
        if index % 16 == 15:
            for lane in range(8):
                lanes[lane] = (_xor_shift(lanes[lane], 47) ^ u64(_SECRET, 128 + 8 * lane)) * _P32[0] & _M64
    stripe(length - 64, 192 - 64 - 7)
    total = length * _P64[0]
    for index in range(4):
        pair = lanes[2 * index : 2 * index + 2]
        total += _fold(pair[0] ^ u64(_SECRET, 11 + 16 * index), pair[1] ^ u64(_SECRET, 11 + 16 * index + 8))
    return _avalanche(total & _M64)
