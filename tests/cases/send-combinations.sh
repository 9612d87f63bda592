#!/usr/bin/env bash
# Which snapshots a send contains, from which sources, with which properties; its messages and its exit status. It tests combinations of
# -R -I -i -p -b -h -s -w -X -L -c -e -n. The pool of OpenZFS has snapshots, clones, origins, children, encrypted datasets and bookmarks,
# and some sources are missing or late. The expectations are OpenZFS's own answers (made by scripts/send-combinations).
. "$(dirname "$0")/lib.sh"
data=$CASES/../../testdata/send
mkdir pool
zstd -q -d "$data/sc.img.zst" -o pool/sc.img
# One of COMBINATIONS (8) is asked, `make soak` asks all.
zstd -q -d -c "$data/combinations.txt.zst" |
    awk -v of="${COMBINATIONS:-8}" '/^### /{ n++ } n % of == 0' >facts
echo 12345678 >key
chmod 600 key
sed -n 's/^### //p' facts >list
# Four at a time: each opens the pool for itself.
split -n l/4 list part.
for part in part.??; do
    SEND="zfs send --in $T/pool --key $T/key" DUMP="zuse zstream dump" TMPDIR=$T \
        "$CASES/../../scripts/send-combinations" sc "$part" >"ours.$part" &
done
wait
cat ours.part.?? >ours

# What OpenZFS 2.3 says and we do not, or otherwise.
differently() {
    awk -v pool=sc '
    # Its usage is its own.
    /^err: usage:/ { usage = 1 }
    usage && /^err: / { next }
    { usage = 0 }
    /^### / { refused = 0 }
    # What is refused writes nothing: there the package was begun and given up.
    /^err: warning: cannot send / { refused = 1 }
    refused && !/^(err|###)/ { next }
    # A bookmark that is not there is no process that is not there.
    /^err: warning: cannot send .*: No such process$/ { sub(/No such process$/, "dataset does not exist") }
    # A hint of ours.
    /^err: none of the devices named with -d belongs to it$/ { next }
    { print }' "$1"
}
differently facts >facts.told
differently ours >ours.told
# Each combination by itself, so that a difference names it.
split_up() { mkdir "$2" && awk -v d="$2" '/^### /{n++} {print > (d "/" n)}' "$1"; }
split_up facts.told want && split_up ours.told got
is "$(ls got | wc -l)" "$(ls want | wc -l)" "combinations"
# Those that differ on purpose, and why:
#   a source that is the target itself: there the snapshots behind it go, before the package fails;
#   the estimate from a bookmark of the origin: there it counts what the clone shares with the origin;
#   heads: there the pool was open for writing, so that they cannot be sent, and `#bk` is looked for later than that;
#   a pool that is not there: we look for the pool first;
#   -i and -I at once: both refuse it, in words of their own.
cat >on-purpose <<'END'
-R (-[swpb] )*-[iI] @c P/[^ ]*@c
(-[pwn] )*-i P/top/fs1#bk P/top/clone1@c
(-i [^ ]+ |-w |-n |-L -c -e )?P/top(/fs1|/vol|/clone1)?
-[RI].* (nix/a@c|P)
-i @a -I @a .*
END
for n in $(ls want | sort -n); do
    cmp -s "want/$n" "got/$n" && continue
    line=$(sed -n '1s/^### //p' "want/$n")
    grep -qxE -f on-purpose <<<"$line" && continue
    differs "$line: $(diff "want/$n" "got/$n" | head -6)"
done
