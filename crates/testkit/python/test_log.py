"""The golden segment, and segments with bytes turned over, through the reader written from `docs/format/log.md`."""

import re
import tempfile
from pathlib import Path

import pytest

from glint_format.codec import FormatError
from glint_format.log import Delete, DeleteRange, Put, Segment, commits

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "crates/log/testdata/segment-v1.bin"
VALUES = ROOT / "crates/log/testdata/values-v1.bin"


def golden():
    return Segment(GOLDEN.read_bytes(), 1)


def test_the_golden_segment_holds_what_the_page_says():
    segment = golden()
    assert (segment.kind, segment.database, segment.base, segment.capacity) == ("stream", b"\xd8" * 16, 0, 65536)
    frames = list(segment.frames())
    assert segment.hole is None
    assert [(frame.offset, frame.kind, frame.seqno, frame.durable) for frame in frames] == [
        (0x1000, "commit", 1, 4096),
        (0x1058, "commit", 2, 4096),
        (0x1098, "mark", 0, 4248),
        (0x10C0, "seal", 0, 4288),
    ]
    assert frames[0].entries == [Put(3, b"apple", b"red"), Put(3, b"pear", b"a separated value", 0x1040)]
    assert frames[1].entries == [Delete(3, b"apple"), DeleteRange(3, b"b", b"d"), DeleteRange(3, b"x", None)]
    assert frames[3].next_segment == 2


def test_the_bytes_in_the_page_are_those_of_the_golden_segment():
    page = (ROOT / "docs/format/log.md").read_text().split("## Worked example")[1]
    for path, example in zip((GOLDEN, VALUES), page.split("values-v1.bin")):
        data = path.read_bytes()
        rows = re.findall(r"^([0-9a-f]{4})((?:  ?[0-9a-f]{2})+)", example, re.MULTILINE)
        assert len(rows) > 14
        for offset, words in rows:
            row = bytes.fromhex(words.replace(" ", ""))
            assert data[int(offset, 16) :].startswith(row), f"{path.name} at {offset}"


def test_the_golden_values_segment_holds_what_the_page_says():
    segment = Segment(VALUES.read_bytes(), 2)
    assert (segment.kind, segment.base, segment.capacity) == ("values", 0, 65536)
    moved, end = segment.frames()
    assert segment.hole is None
    assert (moved.offset, moved.kind, moved.seqno, moved.durable) == (0x1000, "relocation", 0, 0)
    assert moved.entries == [Put(3, b"apple", b"a relocated value", 0x1048), Put(3, b"pear", b"its neighbour", 0x1059)]
    assert (end.offset, end.kind, end.entries) == (0x1068, "relocation", []) and end.is_last()


def test_a_turned_bit_of_a_values_segment_is_found_or_in_padding():
    good = VALUES.read_bytes()
    frames = list(Segment(good, 2).frames())
    covered = set(range(64)) | set(range(0x1000, 0x1041)) | set(range(0x1048, 0x1066)) | set(range(0x1068, 0x1090))
    for at in range(0, 0x10A0):
        bad = bytearray(good)
        bad[at] ^= 1
        try:
            changed = list(Segment(bytes(bad), 2).frames()) != frames
        except FormatError:
            changed = True
        assert changed == (at in covered), f"byte {at:#x}"


def test_values_are_no_part_of_the_stream():
    # The golden stream's seal names segment 2, which is one of values here.
    with tempfile.TemporaryDirectory() as directory:
        for number, path in ((1, GOLDEN), (2, VALUES)):
            (Path(directory) / f"log-{number:016x}.glint").write_bytes(path.read_bytes())
        with pytest.raises(FormatError):
            list(commits(directory, 1))


def test_a_turned_bit_is_found_or_in_padding():
    good = GOLDEN.read_bytes()
    frames = list(golden().frames())
    covered = set(range(60)) | {60, 61, 62, 63}
    for frame in frames:
        covered |= set(range(frame.offset, frame.offset + 40))
    # Metadata and values of the frames, without their padding; the seal's eight bytes.
    covered |= set(range(0x1028, 0x1051)) | set(range(0x1080, 0x1092)) | set(range(0x10E8, 0x10F0))
    for at in range(0, 0x10F0):
        bad = bytearray(good)
        bad[at] ^= 1
        try:
            segment = Segment(bytes(bad), 1)
            changed = list(segment.frames()) != frames
        except FormatError:
            changed = True
        assert changed == (at in covered), f"byte {at:#x}"


def test_a_segment_under_another_number_is_refused():
    with pytest.raises(FormatError):
        Segment(GOLDEN.read_bytes(), 2)


def test_a_frame_that_is_only_in_the_ring_is_read_from_there():
    data = bytearray(GOLDEN.read_bytes())
    ring = bytes(data)
    data[0x1058:0x1098] = bytes(0x40)
    segment = Segment(bytes(data), 1)
    assert len(list(segment.frames())) == 1 and segment.hole == 0x1058
    assert len(list(segment.frames(ring))) == 4 and segment.hole is None
    # The mark behind the hole says that it was durable: this is damage, and no tail.
    assert segment.claims_after(0x1058)
