#!/usr/bin/env bash
# `zfs unmount` of a dataset inside its parent's mount returned before its data was on disk, and left mounts below it.
. "$(dirname "$0")/lib.sh"

disk d
ok zpool create -O mountpoint="$T/m" p "$T/d"
ok zfs create p/a
ok zfs create p/a/b
ok zfs mount p
ok zpool sync p
echo data >m/a/foo
cat >map.py <<'E'
import mmap, os, subprocess, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 4096)
m = mmap.mmap(fd, 4096)
m[0:4] = b"page"
sys.exit(subprocess.call(["zfs", "unmount", "-f", "p/a"]))
E
ok python3 map.py "$T/m/a/b/mapped"
silent p/a zfs mount
kill -9 "$(pgrep -f 'serve -- p' | head -1)"
umount -l m
for _ in $(seq 50); do
    zfs mount p >/dev/null 2>&1 && break
    sleep 0.1
done
is "$(cat m/a/foo)" data "what was written before the unmount"
is "$(head -c 4 m/a/b/mapped)" page "what a mapping had written before the unmount"
ok zfs unmount p/a
ok zfs mount p/a
silent p/a/b zfs mount
ok zfs mount p/a/b
is "$(head -c 4 m/a/b/mapped)" page "after it was mounted again"
