#!/usr/bin/env bash
# A first session with the `glintdb` program. It works in a temporary directory and removes it at the end.
set -euo pipefail
glintdb=${GLINTDB:-glintdb}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

"$glintdb" put --dir "$dir/data" user:1 ada
"$glintdb" put --dir "$dir/data" user:2 grace
"$glintdb" get --dir "$dir/data" user:1

# Import many records at once: one JSON object a line.
for number in $(seq 3 1000); do
    echo "{\"key\":\"user:$number\",\"value\":\"name $number\"}"
done | "$glintdb" import --dir "$dir/data" -

# Scan in key order: the first three with a prefix, then the last record, as JSON.
"$glintdb" scan --dir "$dir/data" --prefix user:99 --limit 3
"$glintdb" scan --dir "$dir/data" --reverse --limit 1 --json

# Make a checkpoint, which is a database itself. Export its records to a file, and verify every byte of it.
"$glintdb" checkpoint --dir "$dir/data" "$dir/copy"
"$glintdb" export --dir "$dir/copy" --quiet "$dir/users.jsonl"
"$glintdb" check --dir "$dir/copy"
wc -l <"$dir/users.jsonl"
