"""`docs/format/tree.md`: files of branches, and the edits of a B+tree index."""

from dataclasses import dataclass, field
from typing import Optional

from .codec import Reader, need, u32
from .table import PAGE, Table

OPTIONS = (
    "filter_bits_per_key compression block_bytes table_bytes_target shelf_runs_settle shelf_runs_slow shelf_runs_stop slice_bytes leaf_batch"
).split()
RESHAPE_OPTIONS = "reshape reshape_share reshape_fan reshape_filter_bits reshape_bits".split()
RESHAPE_DEFAULTS = dict(zip(RESHAPE_OPTIONS, (0, 12, 8, 14, 56)))
LEVELS_MAX = 48


class Branches(Table):
    """A file of branches, every byte checked."""

    MAGIC, KIND = b"GLNTTREE", b"tree"

    def __init__(self, data, file_number=None):
        self.data = data
        need(len(data) % PAGE == 0 and len(data) >= 2 * PAGE, f"a file of branches of {len(data)} bytes")
        self.covered = []
        self._header(file_number)
        self.blocks = []
        at = PAGE
        while at < len(data):
            length = -(-u32(data, at + 16) // PAGE) * PAGE
            need(0 < length <= len(data) - at, f"the length of the branch at {at}")
            entries = self._block(at, length)
            need(all(entry.seqno == 0 and isinstance(entry.value, bytes) for entry in entries), "an entry of a branch that is no child")
            keys = [entry.key for entry in entries]
            need(all(one < two for one, two in zip(keys, keys[1:])), "separators are not in order")
            self.blocks.append((at, length, [(entry.key, Child.of(Reader(entry.value), whole=True)) for entry in entries]))
            self.covered.append((at, at + length))
            at += length
        self._gaps()

    def lines(self):
        yield f"branches {self.number}, database {self.database.hex()}"
        for at, _, children in self.blocks:
            yield f"  branch at {at}: {len(children)} children"
            for separator, child in children:
                yield f"    from {separator!r}: {child}"


@dataclass(frozen=True)
class Child:
    """The place of a node, and its checksum."""

    number: int
    offset: int
    length: int
    checksum: int

    @staticmethod
    def of(reader, whole=False):
        number, place = reader.varint(), reader.varint()
        offset, length = (place // 2, reader.varint()) if place % 2 else (place // 2 * PAGE, PAGE)
        child = Child(number, offset, length, reader.fixed(4))
        need(offset >= PAGE and length > 0 and (not whole or reader.done()), "the place of a child")
        return child


@dataclass(frozen=True)
class Root:
    node: Child
    level: int
    entries: int
    tombstones: int
    pointed_bytes: int


@dataclass
class Tree:
    root: Optional[Root] = None
    """(kind, number) -> (nodes, bytes) that the tree needs."""
    files: dict = field(default_factory=dict)
    """(run, key): in the runs up to this one, nothing below the key counts."""
    clip: Optional[tuple] = None


def apply(keyspace, edit):
    """Applies an edit, whose first byte is read, to a keyspace."""
    tree = keyspace.tree

    def live():
        return edit.varint(), edit.varint()

    def file():
        kind = edit.fixed(1)
        need(kind in (0, 1), f"kind {kind} of a file")
        return ("table", "tree")[kind], edit.varint()

    def properties():
        found = edit.bytes()
        number = Reader(found).varint()
        need(number not in keyspace.properties, f"table {number} is added twice")
        keyspace.properties[number] = found
        return number

    def add(name, found):
        need(name not in tree.files, f"{name} is added twice")
        tree.files[name] = found

    while not edit.done():
        operation = edit.fixed(1)
        if operation == 1:
            run = edit.varint()
            keyspace.tables.add((0, run, properties()))
        elif operation == 2:
            place = (0, edit.varint(), edit.varint())
            need(place in keyspace.tables, f"table {place} is removed and not there")
            keyspace.tables.remove(place)
            del keyspace.properties[place[2]]
        elif operation == 3:
            tree.clip = (edit.varint(), edit.bytes())
        elif operation == 4:
            tree.root = None
        elif operation == 5:
            node, level = Child.of(edit), edit.fixed(1)
            need(level <= LEVELS_MAX, f"level {level}")
            tree.root = Root(node, level, edit.varint(), edit.varint(), edit.varint())
        elif operation == 6:
            found = live()
            add(("table", properties()), found)
        elif operation == 7:
            name, _ = ("tree", edit.varint()), edit.varint()
            add(name, live())
        elif operation == 8:
            name, found = file(), live()
            need(all(now <= before for now, before in zip(found, tree.files[name])), f"{name} grows")
            tree.files[name] = found
        elif operation == 9:
            name = file()
            need(name in tree.files, f"{name} is removed and not there")
            del tree.files[name]
            if name[0] == "table":
                del keyspace.properties[name[1]]
        elif operation == 10:
            # Tiers say what to merge next, and nothing of the contents.
            edit.varint(), edit.fixed(1)
        else:
            need(operation == 11, f"operation {operation} of an edit")
            renumber(keyspace)
    if tree.clip:
        runs = {run for _, run, _ in keyspace.tables if run <= tree.clip[0]}
        need(not runs or tree.clip[0] in runs, "the run of the clip is not there")
        tree.clip = tree.clip if runs else None


def renumber(keyspace):
    """Numbers the runs of the shelf from 1 on, the oldest first."""
    tree = keyspace.tree
    runs = sorted({run for _, run, _ in keyspace.tables})
    new = {run: number for number, run in enumerate(runs, 1)}
    if tree.clip:
        need(tree.clip[0] in new, "the run of the clip is not there")
        tree.clip = (new[tree.clip[0]], tree.clip[1])
    keyspace.tables = {(level, new[run], number) for level, run, number in keyspace.tables}


def leaves(tree, tables, branches):
    """The entries of all leaves, in order. `tables` and `branches` give the file with a number."""
    found, needed = [], {}

    def walk(level, node, lower, upper):
        kind = "tree" if level else "table"
        need((kind, node.number) in tree.files, f"a node in {kind} {node.number}, which the tree has not")
        nodes, size = needed.get((kind, node.number), (0, 0))
        needed[kind, node.number] = nodes + 1, size + node.length
        source = branches(node.number) if level else tables(node.number)
        need(u32(source.data, node.offset) == node.checksum, f"checksum of the node at {node.offset} of {kind} {node.number}")
        if level == 0:
            entries = source._block(node.offset, node.length)
            need(all(lower <= entry.key and (upper is None or entry.key < upper) for entry in entries), "a key outside of its leaf")
            found.extend(entries)
            return
        children = next(children for at, length, children in source.blocks if (at, length) == (node.offset, node.length))
        starts = [lower] + [separator for separator, _ in children[1:]]
        ends = starts[1:] + [upper]
        for (_, child), start, end in zip(children, starts, ends):
            walk(level - 1, child, start, end)

    if tree.root:
        walk(tree.root.level, tree.root.node, b"", None)
    need(len(found) == (tree.root.entries if tree.root else 0), "entries of the leaves")
    for name, stated in tree.files.items():
        need(needed.get(name, (0, 0)) == stated, f"what the tree needs of {name}: {stated} stated, {needed.get(name)} found")
    return found
