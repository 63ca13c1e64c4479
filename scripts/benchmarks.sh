#!/bin/sh
# Makes docs/benchmarks.md anew, on a Redis server of its own. Takes some minutes; let nothing else run.
# Words after it go to each `tenure bench`: scripts/benchmarks.sh --span 1s
# TENURE is how the command is called, unless it is to be built first.
set -eu
cd "$(dirname "$0")/.."
if [ -z "${TENURE:-}" ]; then
    cargo build --release --package tenure-cli
    TENURE=target/release/tenure
fi
port=${PORT:-7399}
folder=$(mktemp -d)
redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no --dir "$folder" >"$folder/log" &
server=$!
trap 'kill "$server"; wait "$server" || true; rm -rf "$folder"' EXIT
until redis-cli -p "$port" ping >"$folder/ping" 2>&1; do sleep 0.1; done

page=docs/benchmarks.md
new="$folder/page"
sed '/^<!-- made by/q' "$page" >"$new"
redis="redis://127.0.0.1:$port"
bench() {
    echo >>"$new"
    $TENURE bench "$@" --markdown >>"$new"
}
bench "$redis" --only pairs,one-key,clients,hand-over "$@"
bench "$redis" --beside --only pairs,clients,hand-over "$@"
bench "$redis" --only held --runs 1 "$@"
bench memory: --only pairs,one-key "$@"
bench "sqlite:$folder/locks.sqlite" --only pairs,one-key,clients,hand-over "$@"
# One empty line at a time, none at the end.
cat -s "$new" | sed -e '${/^$/d}' >"$page"
