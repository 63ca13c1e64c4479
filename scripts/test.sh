#!/usr/bin/env bash
# Installs what the tests need and passes all of them. Arguments go to `cargo test`, in place of
# `--workspace`.
#
# On Debian and its relatives, missing packages are installed with apt-get, as root or with sudo.
# Elsewhere, or without either, it says what is missing. A test that is skipped fails the run.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'test.sh: %s\n' "$*" >&2; }

# What the tests call, and the package that has it.
needed() {
    command -v cc >/dev/null 2>&1 || echo build-essential
    command -v redis-server >/dev/null 2>&1 || echo redis-server
    command -v tmux >/dev/null 2>&1 || echo tmux
    command -v faketime >/dev/null 2>&1 || echo faketime
    command -v python3 >/dev/null 2>&1 || echo python3
    command -v go >/dev/null 2>&1 || echo golang-go
    [ -e /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        say "root or sudo is needed to install: $*"
        return 1
    fi
}

install_packages() {
    local packages
    mapfile -t packages < <(needed)
    if [ ${#packages[@]} -eq 0 ]; then
        return
    fi
    if ! command -v apt-get >/dev/null 2>&1; then
        say "install these, or what they are called here: ${packages[*]}"
        return 1
    fi
    say "installing ${packages[*]}"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q </dev/null
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -q -y --no-install-recommends "${packages[@]}" </dev/null
}

find_cargo() {
    command -v cargo >/dev/null 2>&1 && return
    PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    if ! command -v cargo >/dev/null 2>&1; then
        say "cargo was not found; install Rust 1.88 or later first"
        return 1
    fi
}

# Reads what `cargo test` says: something must have run, and nothing may have been skipped.
judge() {
    awk '
        /^test result:/ {
            for (i = 2; i <= NF; i++) {
                if ($i ~ /^passed/) passed += $(i - 1)
                if ($i ~ /^ignored/) ignored += $(i - 1)
            }
        }
        /^test .* \.\.\. (ignored|FAILED)/ { names = names "\n  " $0 }
        END {
            printf "test.sh: %d passed, %d ignored%s\n", passed, ignored, names > "/dev/stderr"
            exit !(passed > 0 && ignored == 0)
        }' "$1"
}

begun=$SECONDS
find_cargo
install_packages
say "packages ready after $((SECONDS - begun)) s"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
export TENURE_REQUIRE_ALL=1
[ $# -gt 0 ] || set -- --workspace
passed=yes
cargo test --locked --all-features --no-fail-fast "$@" </dev/null 2>&1 | tee "$log" || passed=no
judge "$log" || passed=no
say "done after $((SECONDS - begun)) s"
[ "$passed" = yes ]
