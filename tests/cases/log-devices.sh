#!/usr/bin/env bash
# A log device is missing. The pool is imported without it only on request; the message says so, and the pool works then. A lone log
# device goes offline and comes back. OpenZFS's zdb finds nothing wrong with logs on a mirror, claimed or not.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER
options=allow_other,zuse_intent_log=1,zfs_txg_timeout=3600
promise() { dd if=/dev/zero of="m/$1" bs=5000 count=1 conv=fsync status=none || differs "fsync of $1"; }

disk d
disk l1
disk l2
ok zpool create -m none p "$T/d" log mirror "$T/l1" "$T/l2"
mkdir m copy
ok zuse mount -o "$options" p m
promise begun
ok zpool sync p
promise one
promise two
# The second is in the log alone.
cp --sparse=always d l1 l2 copy/
kill -KILL $(hosts)
umount -l m
says "No leaks" "$CASES/../../scripts/zdb-check" copy p
ok zuse mount -o "$options" p m
is "$(echo m/*)" "m/begun m/one m/two" "after replay"
ok zpool offline p "$T/l1"
promise three
ok zpool offline p "$T/l2"
promise four
promise five
says DEGRADED zpool list -H -o health p
ok zpool online p "$T/l1"
ok zpool online p "$T/l2"
promise six
says ONLINE zpool list -H -o health p
ok zpool export p
gone
says "No leaks" "$CASES/../../scripts/zdb-check" "$T" p
rm d l1 l2

rm copy/l1 copy/l2
fails 1 zpool import -f -N -d copy p
says "use '-m' to import the pool anyway" zpool import -f -N -d copy p
says "had promised" zpool import -f -m -N -d copy p
ok zuse mount -o "$options" p m
is "$(echo m/*)" "m/begun" "without the log"
promise new
promise newer
kill -KILL $(hosts)
umount -l m
# The host that had it opens it again.
ok zuse mount -o "$options" p m
is "$(echo m/*)" "m/begun m/new m/newer" "after another crash"
ok zpool export p
gone
fails 1 zpool import -d copy p
ok zpool import -m -N -d copy p
log=$(zpool status -gP p | awk '/^\tlogs/ { getline; print $1 }')
ok zpool remove p "$log"
ok zpool export p
gone
ok zpool import -N -d copy p
ok zpool export p
gone
says "No leaks" "$CASES/../../scripts/zdb-check" copy p
