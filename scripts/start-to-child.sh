#!/usr/bin/env bash
# How long it takes from the start of `tenure run` on sqlite until its command runs, beside flock(1) in the
# same run: the medians of 50 alternating starts, and their ratio.
#
#   scripts/start-to-child.sh [PATH OF tenure]     target/release/tenure unless said
set -euo pipefail
cd "$(dirname "$0")/.."

tenure=$(realpath "${1:-target/release/tenure}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Microseconds until the command, which is `date`, tells the time.
start() {
    local begun child
    begun=$(date +%s%N)
    child=$("$@" date +%s%N)
    echo $(((child - begun) / 1000))
}

median() { sort -n "$1" | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }

run=("$tenure" run --engine "sqlite:$folder/locks.sqlite" key --)
start "${run[@]}" >/dev/null
for _ in $(seq 50); do
    start "${run[@]}" >>"$folder/tenure.us"
    start flock "$folder/lock" >>"$folder/flock.us"
done
awk -v tenure="$(median "$folder/tenure.us")" -v flock="$(median "$folder/flock.us")" 'BEGIN {
    printf "tenure %.2f ms, flock %.2f ms: %.1f x\n", tenure / 1000, flock / 1000, tenure / flock
}'
