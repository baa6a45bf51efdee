#!/usr/bin/env bash
# A first session with the `glintdb` program, in a directory that is removed at the end.
set -euo pipefail
glintdb=${GLINTDB:-glintdb}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

"$glintdb" put --dir "$dir/data" user:1 ada
"$glintdb" put --dir "$dir/data" user:2 grace
"$glintdb" get --dir "$dir/data" user:1

# Many records at once, one JSON object a line.
for number in $(seq 3 1000); do
    echo "{\"key\":\"user:$number\",\"value\":\"name $number\"}"
done | "$glintdb" import --dir "$dir/data" -

# In the order of their keys; from the end; as JSON.
"$glintdb" scan --dir "$dir/data" --prefix user:99 --limit 3
"$glintdb" scan --dir "$dir/data" --reverse --limit 1 --json

# A copy that is a database itself, the same records as a file, and the proof that every byte is as it was written.
"$glintdb" checkpoint --dir "$dir/data" "$dir/copy"
"$glintdb" export --dir "$dir/copy" --quiet "$dir/users.jsonl"
"$glintdb" check --dir "$dir/copy"
wc -l <"$dir/users.jsonl"
