"""`python -m glint_format FILE...`: prints what segments, tables and manifests hold."""

import re
import sys
from pathlib import Path

from .codec import FormatError
from .log import Segment
from .manifest import Manifest
from .table import Table

KINDS = {"log": Segment, "table": Table, "manifest": Manifest}


def main(names):
    wrong = 0
    for name in names:
        match = re.fullmatch(r"(log|table|manifest|reserve)-([0-9a-f]{16})\.glint", Path(name).name)
        if not match:
            print(f"{name}: not the name of a log segment, a table or a manifest", file=sys.stderr)
            wrong = 2
            continue
        if match[1] == "reserve":
            print("space kept for a full disk; it holds nothing")
            continue
        try:
            for line in KINDS[match[1]](Path(name).read_bytes(), int(match[2], 16)).lines():
                print(line)
        except FormatError as error:
            print(f"{name}: {error}", file=sys.stderr)
            wrong = wrong or 1
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
