#!/usr/bin/env bash
# Which snapshots a send carries, from which sources, with which properties, and what it says: for combinations of
# -R -I -i -p -b -h -s -w -X, on a pool of OpenZFS, as OpenZFS itself answered (scripts/send-combinations made the facts).
. "$(dirname "$0")/lib.sh"
data=$CASES/../../testdata/send
mkdir pool
zstd -q -d "$data/sc.img.zst" -o pool/sc.img
zstd -q -d "$data/combinations.txt.zst" -o facts
sed -n 's/^### //p' facts >list
SEND="zfs send --in $T/pool" DUMP="zuse zstream dump" TMPDIR=$T "$CASES/../../scripts/send-combinations" sc list >ours
# Each combination by itself, so that a difference names it.
split() { mkdir "$2" && awk -v d="$2" '/^### /{n++} {print > (d "/" n)}' "$1"; }
split facts want && split ours got
is "$(ls got | wc -l)" "$(ls want | wc -l)" "combinations"
for n in $(ls want | sort -n); do
    cmp -s "want/$n" "got/$n" || differs "$(head -1 "want/$n"): $(diff "want/$n" "got/$n" | head -6)"
done
