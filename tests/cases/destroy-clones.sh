#!/bin/bash
# `destroy -R` stopped at a clone of a clone, and `-r` at an incomplete receive. Below a pool's own filesystem nothing was destroyed.
. "$(dirname "$0")/lib.sh"

disk d0
names() { zfs list -H -o name -t all -r tank | tr '\n' ' '; }
ok zpool create -f -O mountpoint="$T/m" tank "$T/d0"
chain() {
    zfs create tank/0; zfs snapshot tank/0@a; zfs clone tank/0@a tank/1; zfs create tank/1/x
    zfs snapshot -r tank/1@a; zfs clone tank/1@a tank/2; zfs clone tank/1/x@a tank/3
}
chain
fails 1 zfs destroy -r tank/0
says tank/3 zfs destroy -r tank/0
is "$(zfs destroy -npR tank/0 | cut -f2 | tr '\n' ' ')" "tank/2 tank/3 tank/1/x@a tank/1/x tank/1@a tank/1 tank/0@a tank/0 " "-npR"
ok zfs destroy -R tank/0
is "$(names)" "tank " "after -R of a filesystem"
chain
ok zfs destroy -R tank/0@a
is "$(names)" "tank tank/0 " "after -R of a snapshot"
zfs destroy tank/0

zfs create -o compression=off tank/s; zfs snapshot tank/s@1
zfs send tank/s@1 >one
ok sh -c 'zfs receive -u tank/r <one'
zfs mount tank/s; head -c 1000000 /dev/urandom >"$T/m/s/data"; zfs snapshot tank/s@2
zfs send -i @1 tank/s@2 | head -c 100000 >part
half() { zfs receive -su tank/r <part 2>/dev/null; }
half
ok zfs destroy -r tank/r
is "$(names)" "tank tank/s tank/s@1 tank/s@2 " "after -r with a saved receive"

# What a receive has half made is not there for anybody else.
ok sh -c 'zfs receive -u tank/r <one'
half
r=tank/r/%recv
for c in "promote $r" "rename $r tank/x" "snapshot $r@a" "create $r/x" "clone tank/r@1 tank/r/%recv2" "destroy $r" \
    "rollback $r@1"; do
    fails 1 zfs $c
done
silent "rc=0" sh -c "zfs set atime=off $r; echo rc=\$?"
fails 1 zfs destroy tank/r@1
ok zfs receive -A tank/r
half
zfs send -t "$(zfs get -H -o value receive_resume_token tank/r)" >rest
ok sh -c 'zfs receive -su tank/r <rest'
is "$(names)" "tank tank/r tank/r@1 tank/r@2 tank/s tank/s@1 tank/s@2 " "after going on"

zfs unmount -a
fails 1 zfs destroy tank
says "use 'zfs destroy -r tank' to destroy all datasets in the pool" zfs destroy tank
zfs snapshot -r tank@all; zfs clone tank@all tank/c
ok zfs destroy -r tank
is "$(names)" "tank " "after -r of the pool's filesystem"
zpool destroy tank
