#!/usr/bin/env bash
# The judge itself is judged: zdb-check must pass a pool that OpenZFS wrote, and must not pass it once bytes of it are wrong or missing.
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

# The bytes of one file's data blocks are turned to zero; the labels and most metadata stay.
mkdir "$SUITE_TMP/damaged"
cp --sparse=always "$SUITE_TMP/sound/gang0.img" "$SUITE_TMP/damaged/"
python3 - "$SUITE_TMP/damaged/gang0.img" <<'EOF'
import sys
with open(sys.argv[1], "r+b") as image:
    size = image.seek(0, 2)
    hit = 0
    for offset in range(4 << 20, size - (1 << 20), 64 << 10):
        image.seek(offset)
        if any(image.read(4096)):
            image.seek(offset)
            image.write(bytes(4096))
            hit += 1
            if hit == 40:
                break
    assert hit > 0, "the image is empty past its labels"
EOF
refuses "a pool with damaged blocks" "$SUITE_TMP/damaged" gang
refuses "a pool that is not there" "$SUITE_TMP/sound" no-such-pool
