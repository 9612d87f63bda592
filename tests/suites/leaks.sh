#!/usr/bin/env bash
# Space that belongs to nothing: `zuse zdb -bcc` tells of it in the lines, and ends with the code, of OpenZFS's zdb.
set -euo pipefail
cd "$(dirname "$0")/../.."
top=$PWD

cargo build --release --locked --quiet -p zuse-sim --example make_pool
make_pool=${CARGO_TARGET_DIR:-$top/target}/release/examples/make_pool
oracle=${ORACLE:-$top/target/oracle}
scripts/openzfs-oracle "$oracle"
export XDG_STATE_HOME=$SUITE_TMP/state

"$make_pool" leaks "$SUITE_TMP"
lines() {
    tr '\r' '\n' | grep -E '^(leaked space|block traversal)|No leaks'
}
theirs=0 ours=0
"$oracle/bin/zdb" -e -p "$SUITE_TMP" -bcc leaks >"$SUITE_TMP/theirs" 2>/dev/null || theirs=$?
"$ZUSE" zdb -e -p "$SUITE_TMP" -bcc leaks >"$SUITE_TMP/ours" || ours=$?
diff <(lines <"$SUITE_TMP/theirs") <(lines <"$SUITE_TMP/ours")
found=$(lines <"$SUITE_TMP/ours" | grep -c '^leaked space')
[ "$found" -ge 4 ] || { echo "leaks: only $found were told" >&2; exit 1; }
[ "$ours" = "$theirs" ] || { echo "leaks: OpenZFS's zdb ended with $theirs, ours with $ours" >&2; exit 1; }
echo "leaks: $found, the same"
