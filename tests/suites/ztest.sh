#!/usr/bin/env bash
# Pools that OpenZFS's own stress test, ztest, has left. `zuse zdb -bcc` prints the same as OpenZFS's zdb, including leaks. All other commands
# that read a pool complete.
#
#   ZTEST_SECONDS=120 ZTEST_ROUNDS=5 scripts/run-suites ztest
#   ZTEST_SHAPE="-m 1 -K draid -r 9 -D 3 -R 2 -S 2"          this layout only (ztest's options)
#
# ztest acts at random and accepts no seed. So it runs only if a time is given, and not in the gate, whose result must not depend on luck.
# Its findings have become `leaks.sh` and tests. It sometimes aborts by itself; such a round is repeated. A pool that shows a difference
# is kept.
# limit: 3600
set -euo pipefail
cd "$(dirname "$0")/../.."
top=$PWD
seconds=${ZTEST_SECONDS:-0} rounds=${ZTEST_ROUNDS:-1}
[ "$seconds" -gt 0 ] || { echo "it goes by chance; ZTEST_SECONDS=120 scripts/run-suites ztest runs it"; exit 77; }

oracle=${ORACLE:-$top/target/oracle}
scripts/openzfs-oracle "$oracle"
# ztest calls zdb by name after each pass, and stops if that finds leaks. They are wanted here: zdb is called below.
mkdir "$SUITE_TMP/bin"
printf '#!/bin/sh\nexit 0\n' >"$SUITE_TMP/bin/zdb"
chmod +x "$SUITE_TMP/bin/zdb"
export PATH=$SUITE_TMP/bin:$oracle/bin:$PATH XDG_STATE_HOME=$SUITE_TMP/state

# Copies, disks and parity; taken in turn. The last one leaves the choice to ztest: it likes mirrors over raidz or dRAID.
shapes=(
    "-m 3 -K raidz -r 1"
    "-m 1 -K raidz -r 5 -R 2"
    "-m 1 -K draid -r 9 -D 3 -R 2 -S 2"
    "-m 1 -K eraidz -r 4 -R 1"
    "-m 1 -K raidz -r 7 -R 3 -a 12"
    ""
)

# The common output: leaks and the sums, without progress. Two parts are left out, because zdb prints them differently from 2.4 on. They
# are the bins of the histogram, and a row for the log of the special class.
figures() {
    tr '\r' '\n' | sed -n \
        -e '/^[[:space:]]*$/d' \
        -e '/Special embedded log/d' \
        -e '/^Block Size Histogram/,/^ *16M:/d' \
        -e '/^leaked space\|^block traversal\|No leaks\|refcount mismatch\|bp \|ganged\|class \|embedded log\|additional, \|Dittoed\|\t/p'
}

# A command that reads the pool: no panic, and no failure where zdb has none.
reads() { # dir name command…
    local dir=$1 name=$2 code=0
    shift 2
    "$@" >"$dir/$name" 2>"$dir/$name.errors" || code=$?
    if [ $code -gt 3 ] || grep -qi 'panicked' "$dir/$name.errors"; then
        head -n 5 "$dir/$name.errors" >&2
        echo "ztest: $name ended with $code on the pool in $dir" >&2
        return 1
    fi
    [ $code = 0 ] || echo "ztest: $name ended with $code: $(head -n 1 "$dir/$name.errors")"
}

compared=0
for ((round = 1; round <= rounds; round++)); do
    shape=${ZTEST_SHAPE-${shapes[(round - 1) % ${#shapes[@]}]}}
    for ((try = 1; ; try++)); do
        dir=$SUITE_TMP/$round.$try
        mkdir "$dir"
        # shellcheck disable=SC2086  # several options
        if ztest -k 0 -T "$seconds" -f "$dir" -s 256m -p ztest $shape >"$dir/log" 2>&1; then break; fi
        [ $try -lt 5 ] || { tail -n 5 "$dir/log" >&2; echo "ztest: it aborted five times" >&2; exit 1; }
        rm -rf "$dir"
    done
    "$oracle/bin/zdb" -e -p "$dir" -bbcc ztest 2>/dev/null | figures >"$dir/theirs" || true
    "$ZUSE" zdb -e -p "$dir" -bbcc ztest 2>"$dir/errors" | figures >"$dir/ours" || true
    if ! grep -q 'bp count' "$dir/theirs"; then
        echo "ztest: round $round: OpenZFS's zdb does not get to its end" >&2
        continue
    fi
    if ! diff "$dir/theirs" "$dir/ours" >&2; then
        head -n 5 "$dir/errors" >&2
        echo "ztest: round $round ($shape): the two disagree about the pool in $dir" >&2
        exit 1
    fi
    reads "$dir" objects "$ZUSE" zdb -e -p "$dir" -dddd ztest
    reads "$dir" list "$ZUSE" --in "$dir" zfs list -r -t all ztest
    echo "ztest: round $round ($shape): $(sed -n 's/.*bp count: *//p' "$dir/ours") blocks, $(grep -c 'leaked space' "$dir/ours") leaks, the same"
    rm -rf "$dir"
    compared=$((compared + 1))
done
[ $compared -gt 0 ] || { echo "ztest: no round was compared" >&2; exit 1; }
