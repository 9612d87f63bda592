#!/usr/bin/env bash
# The power failed while a device was being added to a pool. It has labels of a txg that was never committed, and no uberblock. The pool
# is opened without it, and the command can be repeated. A device that really was in the pool is refused without -f.
. "$(dirname "$0")/lib.sh"
for d in a b c d; do disk $d 96M; done
rings() { # device: no uberblock is left
    local size at
    size=$(stat -c %s "$1")
    for at in 0 256 $((size / 1024 - 512)) $((size / 1024 - 256)); do
        dd if=/dev/zero of="$1" bs=1K seek=$((at + 128)) count=128 conv=notrunc status=none
    done
}
ok zpool create -m none t mirror "$T/a" "$T/b"
ok zpool export t
mkdir before
cp --sparse=always a b before/
ok zpool import -d "$T" t
ok zpool replace -w t "$T/b" "$T/c"
ok zpool add -f t "$T/d"
ok zpool export t
mkdir later
mv c d later/
cp --sparse=always before/* .
ok zpool import -d "$T" t
mv later/* .
for words in "replace t $T/b $T/c" "attach t $T/b $T/c" "add -f t $T/d"; do
    says "is part of active pool 't'" zpool $words
done
rings c
rings d
ok zpool replace -w t "$T/b" "$T/c"
ok zpool add -f t "$T/d"
ok zpool scrub -w t
says "errors: No known data errors" zpool status t
is "$(zpool status t | awk -v t="$T/" '/NAME/ { on = 1; next } !NF { on = 0 } on { sub(t, "", $1); printf "%s ", $1 }')" "t mirror-0 a c d " "the pool"
says "$T/c is busy" zpool attach t "$T/d" "$T/c"
