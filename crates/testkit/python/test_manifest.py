"""The golden manifest through the reader written from `docs/format/manifest.md`."""

import re
from pathlib import Path

import pytest

from glint_format.codec import FormatError
from glint_format.manifest import Manifest

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "crates/glintdb/testdata/manifest-v1.bin"
RETIRED = ROOT / "crates/glintdb/testdata/manifest-v1-retired.bin"


def test_the_golden_manifest_holds_what_the_page_says():
    manifest = Manifest(GOLDEN.read_bytes(), 7)
    assert manifest.database == b"0123456789abcdef"
    assert [at for at, _ in manifest.records] == [0x28, 0xC8, 0xD8]
    state = manifest.state
    assert (state.numbers_reserved, state.keyspace_next, state.flush_point) == (513, 4, (258, 4136, 302))
    assert {space.name: space.options["compression"] for space in state.keyspaces.values()} == {"default": 0, "fruit": 1}
    assert state.keyspaces[0].options["base_level_bytes"] == 512 << 20
    assert state.keyspaces[0].tables == set(), "the third record removes the table of the first"
    assert state.liveness == {(1, 0): 0}
    assert state.dropped == {}, "the flush point has passed the drop"


def test_the_golden_manifest_of_retired_segments_holds_what_the_page_says():
    data = RETIRED.read_bytes()
    state = Manifest(data, 7).state
    assert state.retired == {2}, "nothing points into segment 1 any more"
    assert state.liveness == {(1, 0): 0, (2, 0): 512, (300, 0): 256}
    before = Manifest(data[:-8], 7).state
    assert before.retired == {1} and before.liveness == {(1, 0): 1024, (2, 0): 512}


def test_the_golden_manifest_with_newer_options_holds_what_the_page_says():
    golden = ROOT / "crates/glintdb/testdata/manifest-v1-options-v2.bin"
    spaces = Manifest(golden.read_bytes(), 7).state.keyspaces.values()
    assert {space.name: space.options["pinned_levels"] for space in spaces} == {"default": 0, "three": 4, "none": 1}


def test_the_golden_manifest_of_changed_options_holds_the_last_ones():
    golden = ROOT / "crates/glintdb/testdata/manifest-v1-options-changed.bin"
    options = Manifest(golden.read_bytes(), 7).state.keyspaces[2].options
    assert (options["compression"], options["pinned_levels"], options["levels_max"]) == (0, 4, 2)


def test_the_golden_manifest_of_a_replaced_index_holds_the_new_one():
    golden = ROOT / "crates/glintdb/testdata/manifest-v1-index.bin"
    space = Manifest(golden.read_bytes(), 7).state.keyspaces[0]
    assert (space.name, space.options["compression"], space.tables) == ("default", 1, set())


def test_the_bytes_in_the_page_are_those_of_the_golden_manifest():
    page = (ROOT / "docs/format/manifest.md").read_text().split("## Worked example\n")[1].split("\n## ")[0]
    data = GOLDEN.read_bytes()
    rows = re.findall(r"^([0-9a-f]{4})((?:  ?[0-9a-f]{2})+)(?:  |$)", page, re.MULTILINE)
    covered = 0
    for offset, words in rows:
        row = bytes.fromhex(words.replace(" ", ""))
        assert data[int(offset, 16) :].startswith(row), f"at {offset}"
        covered += len(row)
    assert covered == len(data) or covered == len(data) + 6, "the worked example is all of the file"


def test_a_torn_last_record_never_counted_and_any_other_is_corruption():
    good = GOLDEN.read_bytes()
    for cut in range(0xE0, len(good) - 6):
        manifest = Manifest(good[:cut], 7)
        assert len(manifest.records) == 2 and manifest.state.flush_point == (1, 4096, 300)
    for at in range(0x28, 0xD3):
        bad = bytearray(good)
        bad[at] ^= 1
        if 0xC4 <= at < 0xC8:
            assert len(Manifest(bytes(bad), 7).records) == 3, "padding is not looked at"
            continue
        with pytest.raises(FormatError):
            Manifest(bytes(bad), 7)


def test_every_byte_of_the_header_is_covered():
    good = GOLDEN.read_bytes()
    for at in range(40):
        bad = bytearray(good)
        bad[at] ^= 1
        with pytest.raises(FormatError):
            Manifest(bytes(bad), 7)
    with pytest.raises(FormatError):
        Manifest(good, 8)
