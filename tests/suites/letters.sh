#!/usr/bin/env bash
# zdb's letters: `zuse zdb` prints of the golden pools what OpenZFS's zdb 2.3 prints of them, line by line, beside what
# docs/zdb.md allows. `brt` is left out: OpenZFS's zdb of this version aborts on it.
#
#   LETTERS="-DD -iii" scripts/run-suites letters     only these
#   POOLS=all scripts/run-suites letters              not only those that have something to show
# limit: 900
set -euo pipefail
cd "$(dirname "$0")/../.."
top=$PWD

oracle=${ORACLE:-$top/target/oracle}
scripts/openzfs-oracle "$oracle"
export XDG_STATE_HOME=$SUITE_TMP/state

# Of the two columns of traffic nothing is compared; 2.3 does not know one feature of 2.4, and names bits of a mask.
plain() {
    tr '\r' '\n' | sed -E \
        -e '/physical_rewrite feature refcount/d' -e '/^\t\t\tAT_/d' -e '/^loading |^verifying /d' \
        -e 's/( +[0-9.]+[KMG]?){4}((     0){3})$/ -\2/'
}

failed=0 compared=0
compare() { # name command…
    local name=$1
    shift
    "$oracle/bin/zdb" "$@" 2>/dev/null | plain >"$SUITE_TMP/theirs" || true
    "$ZUSE" zdb "$@" 2>"$SUITE_TMP/errors" | plain >"$SUITE_TMP/ours" || true
    [ -s "$SUITE_TMP/theirs" ] || { echo "letters: $name $*: OpenZFS's zdb prints nothing" >&2; failed=$((failed + 1)); return; }
    if ! diff "$SUITE_TMP/theirs" "$SUITE_TMP/ours" >"$SUITE_TMP/diff"; then
        echo "letters: $name: zdb $* differs" >&2
        head -n 10 "$SUITE_TMP/diff" "$SUITE_TMP/errors" >&2
        failed=$((failed + 1))
    fi
    compared=$((compared + 1))
}

pools=${POOLS:-dedup dedup-legacy zil zil-slog}
[ "$pools" != all ] || pools=$(scripts/unpack-golden --list)
for folder in $pools; do
    [ "$folder" != brt ] || continue
    dir=$SUITE_TMP/$folder
    scripts/unpack-golden "$folder" "$dir"
    # Cache devices do not know their pool.
    pool=$(for device in "$dir"/*.img; do "$ZUSE" zdb -l "$device"; done | sed -n "s/^    name: '\(.*\)'/\1/p" | head -n 1)
    for letters in ${LETTERS:--DDDDD -S -s -u -i -iii -iiiii}; do
        compare "$folder" -e -p "$dir" "$letters" "$pool"
    done
    for device in "$dir"/*.img; do
        # The headers of cache devices are not printed.
        "$ZUSE" zdb -l "$device" | grep -q '^    vdev_tree:' || continue
        for letters in -l -lu -luuu; do compare "$folder" "$letters" "$device"; done
    done
    rm -rf "$dir"
done
echo "letters: $compared texts compared, $failed differ"
[ "$failed" = 0 ] && [ "$compared" -gt 0 ]
