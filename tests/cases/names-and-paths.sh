#!/usr/bin/env bash
# A dataset's name is not a path, whatever the working directory: 'zfs unmount tank/b' in / looked for a directory. 'zfs get' accepts paths.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER
disk a
ok zpool create -O mountpoint="$T/tank" tank "$T/a"
ok zfs create tank/b
ok mkdir tank/b/dir
is "$(zfs get -H -o name,value type "$T/tank/b")" "tank/b	filesystem" "a property by a path"
is "$(zfs get -H -o name,value type "$T/tank/b/dir")" "tank/b	filesystem" "by a directory in it"
says "cannot open '/nowhere/at/all'" zfs get type /nowhere/at/all
# $T/tank/b is there too, as the relative path that the name looks like.
ok zfs unmount tank/b
is "$(mounts | sed "s#$T##" | xargs)" "tank /tank" "the mounts"
ok zfs mount tank/b
says "cannot unmount" zfs unmount ./nothing
(cd tank && zfs unmount tank/b) || differs "unmounting by the name from elsewhere"
is "$(mounts | sed "s#$T##" | xargs)" "tank /tank" "the mounts after both"
ok zfs unmount "$T/tank"
ok zpool export tank
