#!/usr/bin/env python3
"""Python's `redis` client against `glintdb serve`. Run it with:

    glintdb serve &
    pip install redis
    python redis_session.py 6380
"""

import sys

import redis


def main(port):
    db = redis.Redis(host="127.0.0.1", port=port, decode_responses=True)

    db.set("greeting", "hello")
    print(db.get("greeting"))

    # A key that expires after half an hour.
    db.set("session:42", "ada", ex=1800)
    print("session has a TTL", 0 < db.ttl("session:42") <= 1800)

    # The commands of a pipeline are committed together.
    with db.pipeline(transaction=False) as pipe:
        for number in range(100):
            pipe.set(f"item:{number:03}", number)
        pipe.execute()
    print(len(db.mget([f"item:{number:03}" for number in range(100)])), "items")

    # Read, decide and write. If another client changes `balance` meanwhile, the transaction runs again.
    def withdraw(pipe):
        balance = int(pipe.get("balance") or 100)
        pipe.multi()
        pipe.set("balance", balance - 30)

    db.transaction(withdraw, "balance")
    print("balance", db.get("balance"))
    print("keys", sum(1 for _ in db.scan_iter(match="item:*")))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6380)
