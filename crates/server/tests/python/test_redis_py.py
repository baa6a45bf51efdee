"""redis-py, as it comes from PyPI, against `glintdb serve`.

The program is found in the environment variable GLINTDB_BIN. Each test runs with RESP2 and with RESP3, on a database of its own number.
"""

import itertools
import os
import signal
import subprocess
import threading
import time

import pytest
import redis

BINARY = os.environ.get("GLINTDB_BIN")

pytestmark = pytest.mark.skipif(not BINARY, reason="GLINTDB_BIN does not name the glintdb program")


class Server:
    """`glintdb serve` on a free port."""

    def __init__(self, directory, *options):
        command = [BINARY, "serve", "--dir", str(directory), "--port", "0", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if line.startswith("listening on "):
                host, _, port = line.removeprefix("listening on ").strip().rpartition(":")
                self.host, self.port = host, int(port)
                break
        else:
            raise RuntimeError(f"the server ended with {self.process.wait()} before it listened")

    def client(self, **options):
        return redis.Redis(host=self.host, port=self.port, **options)

    def end(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout=30)
        self.process.stdout.close()
        return code


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("data") / "db")
    yield server
    assert server.end() == 0


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def r(server, request):
    client = server.client(protocol=request.param, decode_responses=True)
    client.flushall()
    yield client
    client.close()


def test_strings(r):
    assert r.ping() is True
    assert r.set("a", "1") is True
    assert r.get("a") == "1"
    assert r.get("none") is None
    assert r.set("a", "2", nx=True) is None
    assert r.set("a", "2", xx=True, get=True) == "1"
    assert r.setnx("b", "x") is True
    assert r.setnx("b", "y") is False
    assert r.mset({"c": "3", "d": "4"}) is True
    assert r.mget("a", "none", "d") == ["2", None, "4"]
    assert r.msetnx({"d": "5", "e": "5"}) is False
    assert r.incr("n") == 1
    assert r.incrby("n", 41) == 42
    assert r.decr("n", 2) == 40
    assert r.append("text", "ab") == 2
    assert r.append("text", "cd") == 4
    assert r.strlen("text") == 4
    assert r.getdel("text") == "abcd"
    assert r.getset("a", "3") == "2"
    assert r.exists("a", "b", "none") == 2
    assert r.type("a") == "string"
    assert r.type("none") == "none"
    assert r.delete("a", "b", "none") == 2
    assert r.echo("hello") == "hello"
    assert r.time()[0] > 1_600_000_000


def test_bytes_are_kept(server):
    client = server.client()
    every_byte = bytes(range(256))
    client.set(every_byte, every_byte * 300)
    assert client.get(every_byte) == every_byte * 300
    client.set("empty", b"")
    assert client.get("empty") == b""
    client.set("\xffGLINTV\x01", b"\xffGLINTV\x01" + every_byte)
    assert client.get("\xffGLINTV\x01") == b"\xffGLINTV\x01" + every_byte
    large = os.urandom(1 << 20) * 8
    client.set("large", large)
    assert client.get("large") == large
    client.delete(every_byte, "empty", "\xffGLINTV\x01", "large")
    client.close()


def test_errors(r):
    r.set("text", "abc")
    with pytest.raises(redis.ResponseError, match="value is not an integer or out of range"):
        r.incr("text")
    with pytest.raises(redis.ResponseError, match="wrong number of arguments for 'get' command"):
        r.execute_command("GET")
    with pytest.raises(redis.ResponseError, match="unknown command 'NOSUCH'"):
        r.execute_command("NOSUCH", "a")
    with pytest.raises(redis.ResponseError, match="invalid expire time in 'set' command"):
        r.set("a", "1", ex=0)
    with pytest.raises(redis.ResponseError, match="DB index is out of range"):
        r.execute_command("SELECT", 99)


def test_expiry(r):
    assert r.set("a", "1", ex=100) is True
    assert 99 <= r.ttl("a") <= 100
    assert 99_000 < r.pttl("a") <= 100_000
    assert r.persist("a") is True
    assert r.ttl("a") == -1
    assert r.ttl("none") == -2
    assert r.expire("a", 50, nx=True) is True
    assert r.expire("a", 60, nx=True) is False
    assert r.expire("a", 40, gt=True) is False
    assert r.expire("a", 40, lt=True) is True
    r.set("a", "2", keepttl=True)
    assert 38 <= r.ttl("a") <= 40
    r.set("a", "3")
    assert r.ttl("a") == -1
    assert r.setex("b", 10, "x") is True
    assert r.psetex("c", 60, "x") is True
    assert r.pexpire("b", 60) is True
    time.sleep(0.1)
    assert r.get("b") is None
    assert r.exists("c") == 0
    assert r.expireat("a", 9_999_999_999) is True
    assert r.expiretime("a") == 9_999_999_999
    assert r.getex("a", persist=True) == "3"
    assert r.ttl("a") == -1


def test_pipelines(r):
    with r.pipeline(transaction=False) as pipe:
        for n in range(1000):
            pipe.set(f"key{n}", n)
        for n in range(1000):
            pipe.get(f"key{n}")
        pipe.incr("key7").get("key7").mget("key1", "none").delete("key1").get("key1").dbsize()
        answers = pipe.execute()
    assert answers[:1000] == [True] * 1000
    assert answers[1000:2000] == [str(n) for n in range(1000)]
    assert answers[2000:] == [8, "8", ["1", None], 1, None, 999]


def test_an_error_in_a_pipeline_leaves_the_rest(r):
    pipe = r.pipeline(transaction=False)
    pipe.set("a", "x").incr("a").set("b", "1").incr("b")
    answers = pipe.execute(raise_on_error=False)
    assert answers[0] is True and answers[2:] == [True, 2]
    assert isinstance(answers[1], redis.ResponseError)


def test_transactions(r):
    with r.pipeline(transaction=True) as pipe:
        pipe.set("a", 1).incr("a").get("a").mset({"b": 2, "c": 3}).mget("b", "c")
        assert pipe.execute() == [True, 2, "2", True, ["2", "3"]]
    with r.pipeline() as pipe:
        pipe.set("d", 1)
        pipe.execute_command("GET")
        with pytest.raises(redis.exceptions.ResponseError):
            pipe.execute()
    assert r.exists("d") == 0


def test_watch_conflict(r):
    r.set("a", 1)
    with r.pipeline() as pipe:
        pipe.watch("a")
        value = int(pipe.get("a"))
        r.set("a", 100)
        pipe.multi()
        pipe.set("a", value + 1)
        with pytest.raises(redis.WatchError):
            pipe.execute()
    assert r.get("a") == "100"
    with r.pipeline() as pipe:
        pipe.watch("a", "other")
        value = int(pipe.get("a"))
        pipe.multi()
        pipe.set("a", value + 1)
        assert pipe.execute() == [True]
    assert r.get("a") == "101"
    with r.pipeline() as pipe:
        pipe.watch("a")
        r.set("a", 5)
        pipe.unwatch()
        pipe.multi()
        pipe.get("a")
        assert pipe.execute() == ["5"]


def test_transactions_of_many_threads_lose_nothing(server, r):
    def add(pipe):
        value = int(pipe.get("counter") or 0)
        pipe.multi()
        pipe.set("counter", value + 1)

    def work():
        client = server.client()
        for _ in range(30):
            client.transaction(add, "counter")
            client.incr("plain")
        client.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (r.get("counter"), r.get("plain")) == ("120", "120")


def test_locks_of_redis_py_without_scripts(r):
    # redis-py's own Lock needs Lua; what it is built on does not.
    assert r.set("lock", "me", nx=True, px=5000) is True
    assert r.set("lock", "you", nx=True, px=5000) is None
    assert r.delete("lock") == 1


def test_scan(r):
    keys = {f"user:{n}" for n in range(500)}
    r.mset(dict.fromkeys(keys, "v") | {"other": "v"})
    assert set(r.scan_iter()) == keys | {"other"}
    assert sorted(r.scan_iter(match="user:1*", count=7)) == sorted(k for k in keys if k.startswith("user:1"))
    assert list(r.scan_iter(match="nothing*")) == []
    assert set(r.scan_iter(_type="STRING")) == keys | {"other"}
    cursor, found = r.scan(count=10)
    assert cursor != 0 and len(found) == 10
    assert r.dbsize() == 501


def test_ordered_ranges(r):
    r.mset({"a": 1, "b": 2, "c": 3, "d": 4})
    assert r.execute_command("GRANGE", "[b", "+", "KEYSONLY") == ["b", "c", "d"]
    assert r.execute_command("GRANGE", "-", "+", "REV", "LIMIT", 2, "KEYSONLY") == ["d", "c"]
    pairs = r.execute_command("GRANGE", "(a", "[c")
    flat = list(itertools.chain.from_iterable(pairs)) if isinstance(pairs[0], list) else pairs
    assert flat == ["b", "2", "c", "3"]


def test_databases(server, r):
    r.set("a", "0")
    three = server.client(db=3, decode_responses=True)
    assert three.get("a") is None
    three.set("a", "3")
    assert r.get("a") == "0" and three.dbsize() == 1
    three.flushdb()
    assert r.get("a") == "0" and three.dbsize() == 0
    three.close()


def test_introspection(r):
    info = r.info()
    assert info["redis_version"].startswith("7.") and info["connected_clients"] >= 1
    assert r.info("replication")["role"] == "master"
    assert r.config_get("save") == {"save": ""}
    assert r.config_get("max*")["maxclients"].isdigit()
    assert r.client_setname("tester") is True
    assert r.client_getname() == "tester"
    assert any(client["name"] == "tester" for client in r.client_list())
    assert r.client_info()["name"] == "tester"
    assert r.client_id() > 0
    assert r.command_count() > 50
    assert "get" in r.command()
    assert r.command_getkeys("MSET", "a", 1, "b", 2) == ["a", "b"]


def test_data_outlives_the_server(tmp_path):
    server = Server(tmp_path / "db")
    client = server.client(decode_responses=True)
    client.mset({f"key{n}": n for n in range(1000)})
    client.set("expiring", "1", ex=1000)
    # Answered means kept, whatever happens to the process.
    server.end(signal.SIGKILL)
    server = Server(tmp_path / "db")
    client = server.client(decode_responses=True)
    assert client.dbsize() == 1001
    assert client.get("key999") == "999"
    assert 900 < client.ttl("expiring") <= 1000
    with pytest.raises(redis.exceptions.ConnectionError):
        client.execute_command("SHUTDOWN")
    assert server.process.wait(timeout=30) == 0
    server.process.stdout.close()
