"""Databases that `glintdb` has just written, read back from their files alone and compared with what the program says."""

import base64
import json
import os
import random
import subprocess

import pytest

from glint_format.__main__ import main
from glint_format.manifest import Database

GLINTDB = os.environ.get("GLINTDB_BIN")

pytestmark = pytest.mark.skipif(not GLINTDB, reason="GLINTDB_BIN does not name the glintdb program")


def glintdb(*words, stdin=None):
    return subprocess.run([GLINTDB, *map(str, words)], input=stdin, capture_output=True, check=True, timeout=120).stdout


def exported(directory, keyspace):
    records = {}
    for line in glintdb("export", "--dir", directory, "--keyspace", keyspace, "-").splitlines():
        record = json.loads(line)
        decoded = [
            base64.b64decode(record[name + "_base64"]) if name + "_base64" in record else record[name].encode()
            for name in ("key", "value")
        ]
        records[decoded[0]] = decoded[1]
    return records


def imported(directory, keyspace, seed, count):
    """Imports random records: small and large values, awkward keys."""
    chance = random.Random(seed)
    lines = []
    for _ in range(count):
        key = chance.choice([b"", b"\xff", b"user:%06d" % chance.randrange(2000), chance.randbytes(chance.randrange(40))])
        value = chance.randbytes(chance.choice([0, 5, 80, 80, 80, 511, 512, 3000]))
        lines.append(json.dumps({"key_base64": base64.b64encode(key).decode(), "value_base64": base64.b64encode(value).decode()}))
    words = ["import", "--dir", directory, "--keyspace", keyspace, "--quiet", "--batch-records", 50, "-"]
    glintdb(*words, stdin="\n".join(lines).encode())


def check(directory, names=("default", "other")):
    # Read the files first: opening the database moves its log on.
    database = Database(directory)
    assert set(database.keyspaces) == set(names)
    for name in names:
        assert database.keyspaces[name] == exported(directory, name), name
    files = [str(path) for path in directory.iterdir() if path.suffix == ".glint"]
    assert main(files) == 0


@pytest.mark.parametrize("index", ["lsm", "btree"])
def test_a_database_is_read_from_its_files(tmp_path, capsys, index):
    directory = tmp_path / "data"
    glintdb("keyspaces", "--dir", directory, "--create", "other", "--option", f"index={index}")
    imported(directory, "default", 1, 600)
    check(directory)
    imported(directory, "other", 2, 600)
    glintdb("compact", "--dir", directory)
    glintdb("compact", "--dir", directory, "--keyspace", "other")
    check(directory)
    # Of the leaves some are written anew.
    imported(directory, "other", 4, 40)
    glintdb("delete", "--dir", directory, "--keyspace", "other", "--prefix", "user:0002")
    glintdb("compact", "--dir", directory, "--keyspace", "other")
    check(directory)
    imported(directory, "default", 3, 400)
    glintdb("delete", "--dir", directory, "--prefix", "user:0001")
    glintdb("delete", "--dir", directory, "base64:/w==")
    check(directory)
    glintdb("compact", "--dir", directory)
    check(directory)
    capsys.readouterr()


def test_a_database_whose_writer_was_killed_is_read_from_its_files(tmp_path, capsys):
    directory = tmp_path / "data"
    glintdb("keyspaces", "--dir", directory, "--create", "other")
    words = [GLINTDB, "import", "--dir", directory, "--quiet", "--acknowledge", "--batch-records", "10", "-"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        for number in range(1000):
            writer.stdin.write(b'{"key":"key%05d","value":"%s"}\n' % (number, b"v" * (number % 1000)))
        writer.stdin.flush()
        for line in writer.stdout:
            if line == b"acknowledged 900\n":
                break
        writer.kill()
    assert len(Database(directory).keyspaces["default"]) >= 900
    check(directory)
    capsys.readouterr()
