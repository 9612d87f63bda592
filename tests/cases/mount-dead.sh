#!/usr/bin/env bash
# Accesses to a mount whose process was killed returned ENOTCONN, and no command of Zuse removed it. A second mount was put over a regular
# file. fstab did not work, because mount(8) unsets HOME.
. "$(dirname "$0")/lib.sh"

disk d
ok zpool create -m none p "$T/d"
mkdir m
killed() {
    ok zuse mount p m
    kill -9 "$(pgrep -f 'serve -- p' | head -1)"
    sleep 0.3
}
rows() { grep -c " $T/m " /proc/mounts; }
killed
ok zuse umount m
is "$(rows)" 0 "umount DIR"
killed
ok zuse umount p
is "$(rows)" 0 "umount DATASET"
killed
ok zfs unmount -a
is "$(rows)" 0 "unmount -a"
killed
says 'by a process that has ended' zuse mount p m
is "$(rows)" 1 "mount"
ok zuse umount m

echo >file
fails 1 zuse mount p file
ok zuse mount p m
fails 1 zuse mount p file
is "$(cat file)" "" "the file"
ok zuse umount m
ok zpool export p

sed "s#^root:.*#root:x:0:0:root:$T/.own/home:/bin/sh#" /etc/passwd >passwd
mount --bind passwd /etc/passwd
ln -s "$ZUSE" "$T/.own/bin/mount.fuse.zuse"
ok env -u HOME -u XDG_STATE_HOME "$T/.own/bin/mount.fuse.zuse" p "$T/m" -o "device=$T/d"
is "$(rows)" 1 "without HOME"
umount m
