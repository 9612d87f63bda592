#!/usr/bin/env bash
# OpenZFS's zdb judges pools that Zuse wrote, one for each way of using one (crates/zuse-sim/examples/make_pool.rs):
# all checksums of all blocks, no leaks, every object listed without complaint.
#
#   ZDB_SCENARIOS="tree gang" scripts/run-suites zdb     only these
# limit: 900
set -euo pipefail
cd "$(dirname "$0")/../.."
top=$PWD

# The build of the tests has it: nothing is built twice.
cargo test --workspace --locked --quiet --no-run
make_pool=${CARGO_TARGET_DIR:-$top/target}/debug/examples/make_pool
oracle=${ORACLE:-$top/target/oracle}
scripts/openzfs-oracle "$oracle"

failed=0 passed=0
fail() {
    echo "zdb: $*" >&2
    failed=$((failed + 1))
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
    elif list_objects "$1" "$2" "$3" "$4"; then
        passed=$((passed + 1))
        echo "$2: sound, $3 objects ($((SECONDS - start)) s)"
    fi
    rm -rf "$1"
}

for scenario in ${ZDB_SCENARIOS:-$("$make_pool")}; do
    dir=$SUITE_TMP/$scenario
    mkdir "$dir"
    if ! "$make_pool" "$scenario" "$dir" >"$SUITE_TMP/$scenario.txt" 2>&1; then
        tail -n 15 "$SUITE_TMP/$scenario.txt" >&2
        fail "$scenario: the pool was not made or our own check refuses it"
        rm -rf "$dir"
        continue
    fi
    objects=$(sed -n 's/^[a-z0-9]*: \([0-9]*\) objects.*/\1/p' "$SUITE_TMP/$scenario.txt")
    kind=full
    case $scenario in plain*) kind=plain ;; esac
    judge "$dir" "$scenario" "$objects" "$kind"
done

echo "$passed pools passed, $failed failures"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
