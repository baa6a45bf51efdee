"""`python -m glint_format FILE...`: prints what the files of a database hold."""

import re
import sys
from pathlib import Path

from .codec import FormatError
from .log import BLOCK, Segment
from .manifest import Manifest
from .table import Table
from .tree import Branches


class Nothing:
    """A file that holds nothing: reserved space, or a segment that never took a frame."""

    def lines(self):
        yield "holds nothing"


def read(kind, number, data):
    if kind == "reserve" or kind == "log" and not (len(data) >= BLOCK and any(data[:BLOCK])):
        return Nothing()
    return {"log": Segment, "table": Table, "tree": Branches, "manifest": Manifest}[kind](data, number)


def main(names):
    wrong = 0
    for name in names:
        match = re.fullmatch(r"(log|table|tree|manifest|reserve)-([0-9a-f]{16})\.glint", Path(name).name)
        if not match:
            print(f"{name}: not the name of a file of a database", file=sys.stderr)
            wrong = 2
            continue
        try:
            for line in read(match[1], int(match[2], 16), Path(name).read_bytes()).lines():
                print(line)
        except FormatError as error:
            print(f"{name}: {error}", file=sys.stderr)
            wrong = wrong or 1
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
