#!/usr/bin/env bash
# Tests zdb-check itself. zdb-check must pass a pool that OpenZFS wrote. It must not pass the pool once some bytes are wrong or missing.
set -euo pipefail
cd "$(dirname "$0")/../.."

scripts/unpack-golden gang "$SUITE_TMP/sound"
scripts/zdb-check "$SUITE_TMP/sound" gang -bcc

refuses() { # what, folder, pool
    if scripts/zdb-check "$2" "$3" -bcc; then
        echo "zdb-check passed $1" >&2
        exit 1
    fi
}

# A sector in each 64 KiB is turned to zero; the labels and most blocks stay.
mkdir "$SUITE_TMP/damaged"
cp --sparse=always "$SUITE_TMP/sound/gang0.img" "$SUITE_TMP/damaged/"
for ((offset = 4 << 20; offset < 60 << 20; offset += 64 << 10)); do
    dd if=/dev/zero of="$SUITE_TMP/damaged/gang0.img" bs=512 seek=$((offset / 512)) count=1 conv=notrunc status=none
done
if cmp -s "$SUITE_TMP/sound/gang0.img" "$SUITE_TMP/damaged/gang0.img"; then
    echo "the damage hit only empty space" >&2
    exit 1
fi
refuses "a pool with damaged blocks" "$SUITE_TMP/damaged" gang
refuses "a pool that is not there" "$SUITE_TMP/sound" no-such-pool
