"""The golden tables, and tables with every byte turned over, through the reader written from `docs/format/table.md`."""

import re
from pathlib import Path

import pytest

from glint_format.codec import FormatError, crc32c, xxh3_64
from glint_format.table import Pointer, Table

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "crates/runs/testdata"
LONG_KEYS = GOLDEN / "table-v1-long-keys.glint"
TABLES = sorted(set(GOLDEN.glob("table-v*.glint")) - {LONG_KEYS})


def test_the_algorithms_give_their_published_values():
    assert crc32c(b"123456789") == 0xE3069283
    assert xxh3_64(b"") == 0x2D06800538D394C2


def golden_lines():
    """What the golden tables hold, as their text says."""
    entries, ranges = [], []
    for line in (GOLDEN / "table-v1.txt").read_text().splitlines():
        if line.startswith("#") or not line:
            continue
        words = line.split()

        def decoded(word):
            return bytes.fromhex(word[1:])

        if words[0] == "range":
            ranges.append((decoded(words[1]), None if words[2] == "-" else decoded(words[2]), int(words[3])))
        elif words[2] == "inline":
            entries.append((decoded(words[0]), int(words[1]), decoded(words[3])))
        elif words[2] == "pointer":
            entries.append((decoded(words[0]), int(words[1]), Pointer(*map(int, words[3:7]))))
        else:
            entries.append((decoded(words[0]), int(words[1]), None))
    return entries, ranges


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name)
def test_golden_tables_hold_what_their_text_says(path):
    table = Table(path.read_bytes())
    entries, ranges = golden_lines()
    assert len(entries) > 100
    assert [(entry.key, entry.seqno, entry.value) for entry in table.entries] == entries
    assert [(item.start, item.end, item.seqno) for item in table.range_tombstones] == ranges


def test_the_golden_table_of_long_keys_holds_what_its_writer_put():
    entries = Table(LONG_KEYS.read_bytes()).entries
    assert len(entries) == 50
    assert [entry.key for entry in entries] == sorted(entry.key for entry in entries)
    for entry in entries:
        written = entry.seqno - 100
        shared = 12 if written < 4 else 2100 + written % 3 * 100
        assert entry.key == b"k" * shared + written.to_bytes(4, "big")
        if written % 4 == 0:
            assert entry.value is None
        elif written % 4 == 1:
            assert isinstance(entry.value, Pointer)
        else:
            assert entry.value == written.to_bytes(4, "little") * 50


def example():
    """The bytes of the page's worked example."""
    page = (ROOT / "docs/format/table.md").read_text()
    data = bytearray(3 * 4096)
    for offset, words in re.findall(r"^([0-9a-f]{8}): ((?:[0-9a-f]{4} ?)+)$", page, re.MULTILINE):
        row = bytes.fromhex(words.replace(" ", ""))
        data[int(offset, 16) : int(offset, 16) + len(row)] = row
    return bytes(data)


def test_the_worked_example_of_the_page_is_a_table():
    table = Table(example(), 42)
    assert [(entry.key, entry.seqno) for entry in table.entries] == [(b"apple", 7), (b"apricot", 9), (b"banana", 300)]
    assert table.entries[0].value == b"red"
    assert table.entries[2].value == Pointer(1, 4096, 1024, 0xDEADBEEF)
    assert [(item.start, item.end, item.seqno) for item in table.range_tombstones] == [(b"c", b"d", 5)]


def test_every_byte_of_a_table_is_covered():
    good = example()
    assert len(Table(good).entries) == 3
    # Every byte near a part's edge, and one in 13 of the padding.
    places = [at for at in range(len(good)) if any(good[max(at - 2, 0) : at + 3]) or at % 13 == 0]
    for at in places:
        bad = bytearray(good)
        bad[at] ^= 0x10
        with pytest.raises(FormatError):
            Table(bytes(bad))


def test_a_table_under_another_number_is_refused():
    with pytest.raises(FormatError):
        Table(example(), 43)
