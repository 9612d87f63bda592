#!/usr/bin/env bash
# Leaked space: `zuse zdb -bcc` reports it in the lines of OpenZFS's zdb. That zdb ends with 0 up to version 2.3, and with 2 later.
set -euo pipefail
cd "$(dirname "$0")/../.."
top=$PWD

# The build of the tests has made it: nothing is built twice.
cargo test --workspace --locked --quiet --no-run
make_pool=${CARGO_TARGET_DIR:-$top/target}/debug/examples/make_pool
oracle=${ORACLE:-$top/target/oracle}
scripts/openzfs-oracle "$oracle"
export XDG_STATE_HOME=$SUITE_TMP/state

"$make_pool" leaks "$SUITE_TMP"
lines() {
    tr '\r' '\n' | grep -E '^(leaked space|block traversal)|No leaks'
}
ours=0
"$oracle/bin/zdb" -e -p "$SUITE_TMP" -bcc leaks >"$SUITE_TMP/theirs" 2>/dev/null || true
"$ZUSE" zdb -e -p "$SUITE_TMP" -bcc leaks >"$SUITE_TMP/ours" || ours=$?
diff <(lines <"$SUITE_TMP/theirs") <(lines <"$SUITE_TMP/ours")
found=$(lines <"$SUITE_TMP/ours" | grep -c '^leaked space')
[ "$found" -ge 4 ] || { echo "leaks: only $found were told" >&2; exit 1; }
[ "$ours" = 2 ] || { echo "leaks: zuse zdb ended with $ours" >&2; exit 1; }
echo "leaks: $found, the same"

# Copies that must share a vdev: two of each block of data and three of metadata on one vdev, three on two.
head -c 3000000 /dev/urandom >"$SUITE_TMP/data"
dittoed() { # name devices…
    local name=$1 dir=$SUITE_TMP/$1
    shift
    mkdir "$dir"
    "$ZUSE" zpool create "$name" "${@/#/$dir/}" --size 64M
    for copies in 2 3; do
        "$ZUSE" zfs create -o copies=$copies "$name/c$copies"
        "$ZUSE" cp "$SUITE_TMP/data" "$name/c$copies:/data"
    done
    "$ZUSE" zpool export "$name"
    "$oracle/bin/zdb" -e -p "$dir" -bcc "$name" 2>/dev/null | grep Dittoed >"$dir/theirs"
    "$ZUSE" zdb -e -p "$dir" -bcc "$name" | grep Dittoed >"$dir/ours"
    diff "$dir/theirs" "$dir/ours"
    echo "$name:$(cat "$dir/ours")"
}
dittoed one a.img
dittoed two a.img b.img
