#!/usr/bin/env bash
# Imports the Debian package index, one record a package, and reads it back with redis-cli.
# Needs apt-cache with package lists (run `apt-get update` once) and redis-cli (package redis-tools).
# `cargo xtask demo-debian` does the same and also kills imports and checks what is left.
set -euo pipefail
glintdb=${GLINTDB:-glintdb}
port=${PORT:-6389}
dir=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; wait; rm -rf "$dir"' EXIT

apt-cache dumpavail | "$glintdb" import --dir "$dir/data" --format dpkg --quiet -

"$glintdb" serve --dir "$dir/data" --port "$port" &
server=$!
for _ in $(seq 100); do
    redis-cli -p "$port" PING >/dev/null 2>&1 && break
    sleep 0.1
done

echo "packages: $(redis-cli -p "$port" DBSIZE)"
redis-cli -p "$port" --raw GET coreutils | head -5
redis-cli -p "$port" --raw STRLEN bash
