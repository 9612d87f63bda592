#!/usr/bin/env bash
# `zpool wait -t resilver` returned when a resilver had ended, although the device had missed writes meanwhile. The next resilver began two
# seconds later. A scrub in between found blocks to repair, because the device was not complete yet.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER

disk a
disk b
ok zpool create -m "$T/p" p mirror "$T/a" "$T/b"
for i in 1 2 3 4 5; do
    head -c 3000000 /dev/urandom >"p/$i"
    ok zpool sync p
    ok zpool offline -f p "$T/a"
    ok zpool clear p
    ok zpool wait -t resilver p
    ok zpool scrub -w p
    says "scrub repaired 0B" zpool status p
done
