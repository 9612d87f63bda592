#!/usr/bin/env bash
# A file system that appears inside its parent's mount was unmounted and destroyed although a process stood in it or had a file open.
. "$(dirname "$0")/lib.sh"

disk d
ok zpool create -O mountpoint="$T/m" p "$T/d"
ok zfs create p/a
ok zfs create p/a/b
ok zfs mount p
echo hi >m/a/f
exec 7<m/a/f
fails 1 zfs unmount p/a
fails 1 zfs destroy -r p/a
says 'pool or dataset is busy' zfs destroy -r p/a
is "$(cat <&7)" hi "the open file"
exec 7<&-
(cd m/a/b && exec sleep 60) &
sleep 0.3
fails 1 zfs destroy p/a/b
says '(sleep) uses' zfs unmount p/a
ok zfs unmount -f p/a
ok zfs mount p/a
kill %1
wait
ok zfs mount p/a/b
ok zfs destroy -r p/a
ok zuse umount p
