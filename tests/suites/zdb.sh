#!/usr/bin/env bash
# OpenZFS's zdb judges pools that Zuse wrote, one for each kind of use (crates/zuse-sim/examples/make_pool.rs). It checks all checksums of
# all blocks, finds no leaks, and lists every object without an error.
#
#   ZDB_SCENARIOS="tree gang" scripts/run-suites zdb     only these
# limit: 900
set -euo pipefail
cd "$(dirname "$0")/../.."
top=$PWD
oracle=${ORACLE:-$top/target/oracle}
make_pool=${CARGO_TARGET_DIR:-$top/target}/debug/examples/make_pool

fail() {
    echo "zdb: $*" >&2
    return 1
}

# Lists every object of a pool; complaints are what zdb says outside of the indented contents.
list_objects() { # dir pool objects kind
    local out=$1/objects.txt err=$1/errors.txt code=0 listed
    "$oracle/bin/zdb" -e -p "$1" -dddd "$2" >"$out" 2>"$err" || code=$?
    if [ $code != 0 ] || [ -s "$err" ]; then
        head -n 5 "$err" >&2
        fail "$2: zdb -dddd exited with $code and complained"
        return 1
    fi
    if grep -E '^[^[:space:]]' "$out" | grep -iE "error|unable|cannot|can't|failed|assert|invalid|corrupt|mismatch|incorrect|leaked" | head -n 5 | grep .; then
        fail "$2: zdb -dddd complained (above)"
        return 1
    fi
    grep -q 'feature refcount of .* is correct' "$out" || [ "$4" = plain ] || { fail "$2: zdb -dddd did not come to its end"; return 1; }
    listed=$(grep -cE '^ +Object +lvl' "$out")
    if [ "$listed" -lt "$3" ]; then
        fail "$2: zdb lists $listed objects, there are $3"
        return 1
    fi
}

judge() { # dir pool objects kind
    local start=$SECONDS
    if ! scripts/zdb-check "$1" "$2" -bcc >"$1/zdb.txt" 2>&1; then
        tail -n 15 "$1/zdb.txt" >&2
        fail "$2: zdb -bcc does not pass"
        return 1
    fi
    list_objects "$1" "$2" "$3" "$4" || return 1
    echo "$2: sound, $3 objects ($((SECONDS - start)) s)"
}

scenario() { # name
    local dir=$SUITE_TMP/$1 objects kind=full code=0
    mkdir "$dir"
    if ! "$make_pool" "$1" "$dir" >"$SUITE_TMP/$1.txt" 2>&1; then
        tail -n 15 "$SUITE_TMP/$1.txt" >&2
        fail "$1: the pool was not made or our own check refuses it" || code=1
    else
        objects=$(sed -n 's/^[a-z0-9]*: \([0-9]*\) objects.*/\1/p' "$SUITE_TMP/$1.txt")
        case $1 in plain*) kind=plain ;; esac
        judge "$dir" "$1" "$objects" "$kind" || code=1
    fi
    rm -rf "$dir"
    [ $code != 0 ] || touch "$SUITE_TMP/$1.sound"
}
if [ "${1:-}" = --one ]; then
    scenario "$2"
    exit 0
fi

# The build of the tests has it: nothing is built twice.
cargo test --workspace --locked --quiet --no-run
scripts/openzfs-oracle "$oracle"
read -ra chosen <<<"$(echo ${ZDB_SCENARIOS:-$("$make_pool")})"
# zdb sleeps for most of its time.
printf '%s\0' "${chosen[@]}" | xargs -0 -n 1 -P 4 "$0" --one || true
passed=$(find "$SUITE_TMP" -name '*.sound' | wc -l)
echo "$passed of ${#chosen[@]} pools passed"
[ "$passed" = "${#chosen[@]}" ] && [ "$passed" -gt 0 ]
