#!/usr/bin/env bash
# `zfs send -b` sends received properties, also those of snapshots. Before, it sent values that were set locally since.
. "$(dirname "$0")/lib.sh"
disk a
ok zpool create p "$T/a"
ok zfs create p/s
ok zfs snapshot -o org.x:p=val -o org.x:q=sent p/s@1
zfs send -p p/s@1 >s && zfs receive p/b <s || differs "not received"
ok zfs set org.x:p=new org.x:local=here p/b@1
zfs send -bp p/b@1 >b && zfs receive p/r <b || differs "not received again"
is "$(zfs get -H -o value org.x:p,org.x:q,org.x:local p/r@1 | tr '\n' ' ')" "val sent - " "properties of the snapshot"
zfs send -p p/b@1 >n && zfs receive p/n <n || differs "not received without -b"
is "$(zfs get -H -o value org.x:p p/n@1)" new "what is sent without -b"
