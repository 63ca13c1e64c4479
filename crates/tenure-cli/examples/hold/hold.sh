#!/usr/bin/env bash
# Works under a lock: hold.sh KEY SECONDS
#
# `tenure hold` writes a line of JSON per event and releases when its standard input is closed. That also
# happens when this script dies, whatever killed it.
set -euo pipefail
key=$1 seconds=$2

coproc HOLD { exec tenure hold --ttl 3s -- "$key"; }
# Copies: bash forgets its own names for them when the command ends.
exec {input}>&"${HOLD[1]}" {output}<&"${HOLD[0]}" {HOLD[1]}>&- {HOLD[0]}<&-
hold=$HOLD_PID

# The text of a field; enough for keys and tokens that need no escapes. Use jq for others.
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" <<<"$line"; }

token=
while read -r line <&"$output"; do
    case $(field event) in
        waiting) echo "waiting" ;;
        granted) token=$(field token); break ;;
    esac
done
[ -n "$token" ] || { wait "$hold" || code=$?; echo "not acquired: tenure ended with ${code:-0}" >&2; exit 1; }

echo "granted with token $token"
end=$((SECONDS + seconds))
while [ "$SECONDS" -lt "$end" ]; do
    # A piece of work; its writes carry the token. A line or an end in the meantime means that the lock is lost.
    if read -r -t 0.2 line <&"$output" || [ $? -le 128 ]; then
        echo "lost" >&2
        exit 1
    fi
done

exec {input}>&-
wait "$hold"
echo "released"
