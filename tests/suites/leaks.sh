#!/usr/bin/env bash
# Space that belongs to nothing: `zuse zdb -bcc` tells of it in the lines of OpenZFS's zdb. Which ends with 0 up to 2.3, and with 2 later.
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
ours=0
"$oracle/bin/zdb" -e -p "$SUITE_TMP" -bcc leaks >"$SUITE_TMP/theirs" 2>/dev/null || true
"$ZUSE" zdb -e -p "$SUITE_TMP" -bcc leaks >"$SUITE_TMP/ours" || ours=$?
diff <(lines <"$SUITE_TMP/theirs") <(lines <"$SUITE_TMP/ours")
found=$(lines <"$SUITE_TMP/ours" | grep -c '^leaked space')
[ "$found" -ge 4 ] || { echo "leaks: only $found were told" >&2; exit 1; }
[ "$ours" = 2 ] || { echo "leaks: zuse zdb ended with $ours" >&2; exit 1; }
echo "leaks: $found, the same"
