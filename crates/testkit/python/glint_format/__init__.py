"""Reads GlintDB's files, written from the pages under `docs/format/` alone, with Python's standard library alone.

It is there to hold the pages to what they promise: that they are enough to write a reader from. It checks every checksum and every rule that a page states, and is slow.

    python -m glint_format FILE...

prints what a file holds; the tests beside it read the golden files and databases that the engine has just written.
"""

from .codec import FormatError

__all__ = ["FormatError"]
