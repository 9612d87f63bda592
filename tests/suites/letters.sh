#!/usr/bin/env bash
# zdb's letters: for the golden pools `zuse zdb` prints the lines that OpenZFS's zdb 2.3 prints, except for the differences in
# docs/zdb.md. Of `brt` only the clones are compared, because this version of OpenZFS's zdb aborts on the rest.
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

# The two columns of traffic are not compared; 2.3 does not know one feature of 2.4, and names bits of a mask.
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
# Letters that a pool must have something for; of what zdb 2.3 prints otherwise, `-k` alone shows nothing.
if [ -z "${LETTERS:-}${POOLS:-}" ]; then
    while read -r folder letters; do
        dir=$SUITE_TMP/$folder
        scripts/unpack-golden "$folder" "$dir"
        pool=${folder/zil-slog/zil_slog}
        pool=${pool/deg-raidz2/deg_raidz2} pool=${pool/draid/xdraid}
        for one in $letters; do compare "$folder" -e -p "$dir" "$one" "$pool"; done
        rm -rf "$dir"
    done <<'EOF'
brt -T -TT -TTT -TTTT
stripe -T -M
classes -TTT -M -MM -CC
v28 -T -M -hh
dsl -T -M -h -hh -y -CC -bcc
checkpoint -y -kC -kd -kcc -kh
removed -M -CC
draid -CC
expanded -CC
deg-raidz2 -CC
zil-slog -CC
EOF
    # A stream is the same to the last byte: of a snapshot and of a head, in each form.
    dir=$SUITE_TMP/dsl
    scripts/unpack-golden dsl "$dir"
    for flags in "91" "91 cLe" "91 w" "82 L" "82 c"; do
        read -r object form <<<"$flags"
        # shellcheck disable=SC2086  # no form at all is no argument
        "$oracle/bin/zdb" -B -e -p "$dir" "dsl/$object" $form >"$SUITE_TMP/theirs" 2>/dev/null
        # shellcheck disable=SC2086
        "$ZUSE" zdb -B -e -p "$dir" "dsl/$object" $form >"$SUITE_TMP/ours"
        [ -s "$SUITE_TMP/theirs" ] && cmp "$SUITE_TMP/theirs" "$SUITE_TMP/ours" >&2 || {
            echo "letters: -B dsl/$flags differs" >&2
            failed=$((failed + 1))
        }
        compared=$((compared + 1))
    done
    # A block by its place, as bytes and as numbers, and who says where it was found.
    block=$("$ZUSE" zdb -e -p "$dir" -u dsl | sed -n 's/.*bp = DVA\[0\]=<\([^>]*\)>.*/\1/p')
    for flags in "" :e :r; do
        "$oracle/bin/zdb" -e -p "$dir" -R dsl "$block$flags" >"$SUITE_TMP/theirs" 2>&1
        "$ZUSE" zdb -e -p "$dir" -R dsl "$block$flags" >"$SUITE_TMP/ours" 2>&1
        [ -s "$SUITE_TMP/theirs" ] && cmp "$SUITE_TMP/theirs" "$SUITE_TMP/ours" >&2 || {
            echo "letters: -R dsl $block$flags differs" >&2
            failed=$((failed + 1))
        }
        compared=$((compared + 1))
    done
    rm -rf "$dir"
fi
echo "letters: $compared texts compared, $failed differ"
[ "$failed" = 0 ] && [ "$compared" -gt 0 ]
