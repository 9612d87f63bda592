#!/bin/bash
# A name of 300 bytes left the feature longname enabled instead of active, and its streams unmarked. Without the feature the property was
# accepted all the same.
. "$(dirname "$0")/lib.sh"

disk d0; disk d1
long=$(head -c 300 /dev/zero | tr '\0' n)
feature() { zpool get -H -o value feature@longname "$1"; }
bits() { zfs send "$1" | zuse zstream dump | awk '$1 == "features" { print $3 }'; }
ok zpool create -f -O mountpoint="$T/m" tank "$T/d0"
ok zfs create -o longname=on tank/l
ok zfs mount tank/l
ok touch "$T/m/l/short"
zpool sync tank
is "$(feature tank)" enabled "the feature before"
ok zfs snapshot tank/l@0
ok touch "$T/m/l/$long"
zpool sync tank
is "$(feature tank)" active "the feature after"
ok zfs snapshot tank/l@1
is "$(bits tank/l@0)" 4 "feature bits of a stream without it"
is "$(bits tank/l@1)" 10000004 "feature bits of a stream with it"
zfs send tank/l@1 | zfs receive -u tank/r || differs "receive $?"
ok zfs mount tank/r
is "$(ls "$T/m/r" | tail -1 | wc -c)" 6 "names received"
is "$(ls "$T/m/r" | head -1 | wc -c)" 301 "long names received"

ok zpool create -f -o feature@longname=disabled -O mountpoint="$T/n" old "$T/d1"
ok zfs create old/x
fails 255 zfs set longname=on old/x
fails 1 zfs create -o longname=on old/y
fails 1 zfs create -o dnodesize=auto -o longname=on old/y
zfs send tank/l@1 >s
fails 1 sh -c 'zfs receive -u old/z <s'
zfs unmount -a
zpool destroy old; zpool destroy tank
