"""Runs every example and checks what it prints."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
GLINTDB = os.environ.get("GLINTDB_BIN", str(HERE.parent / "target/debug/glintdb"))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run(words, **environment):
    environment = {**os.environ, "GLINTDB": GLINTDB, **environment}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_session():
    printed = run(["bash", str(HERE / "session.sh")])
    lines = printed.splitlines()
    assert lines[0] == "ada"
    assert '{"key":"user:999","value":"name 999"}' in lines
    assert any(line.startswith("clean: ") for line in lines)
    assert lines[-1].strip() == "1000"


def test_debian_index():
    for program in ("apt-cache", "redis-cli"):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")
    packages = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, check=True).stdout
    if packages.count(b"\n\n") < 1000:
        pytest.skip("apt-cache knows no packages; run `apt-get update` once")
    printed = run(["bash", str(HERE / "debian_index.sh")], PORT=str(free_port()))
    assert "Package: coreutils" in printed


def test_redis_session(tmp_path):
    port = free_port()
    server = subprocess.Popen([GLINTDB, "serve", "--dir", str(tmp_path / "data"), "--port", str(port)], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout.readline().startswith("listening on ")
        printed = run([sys.executable, str(HERE / "redis_session.py"), str(port)])
        assert printed.splitlines() == ["hello", "session has a TTL True", "100 items", "balance 70", "keys 100"]
    finally:
        server.terminate()
        assert server.wait(timeout=20) == 0
