#!/usr/bin/env bash
# A command on a host has the same effect as one that opens the pool itself. It has its own group and umask. Mounts are listed in the
# order in which they were made, whichever host has them. The number of a mount's root is that of its object, as with the kernel's ZFS.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER

disk a
disk b
ok zpool create -m "$T/tank" tank "$T/a"
ok zpool create -m "$T/backup" backup "$T/b"
ok zfs create tank/large
is "$(zfs mount | awk '{ print $1 }' | xargs)" "tank backup tank/large" "the order of mounting"
is "$(zfs mount | awk '{ print $2 }' | xargs)" "$T/tank $T/backup $T/tank/large" "the places"

# 34 where OpenZFS made the file system.
number=$(zdb -dddd tank/large 1 | awk '$1 == "ROOT" { print $NF }')
[ "${number:-0}" -gt 1 ] || differs "the root's object: '$number'"
for root in tank tank/large; do
    is "$(stat -c %i $root) $(cd $root && stat -c %i .)" "$number $number" "the number of the root of $root"
done
mkdir tank/d
is "$(python3 -c 'import ctypes, os
libc = ctypes.CDLL(None)
class Entry(ctypes.Structure):
    _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("len", ctypes.c_uint16), ("type", ctypes.c_ubyte), ("name", ctypes.c_char * 256)]
libc.opendir.restype, libc.readdir.restype = ctypes.c_void_p, ctypes.POINTER(Entry)
for place in (b"tank", b"tank/d"):
    dir = ctypes.c_void_p(libc.opendir(place))
    while entry := libc.readdir(dir):
        if (place, entry[0].name) in ((b"tank", b"."), (b"tank/d", b"..")): print(entry[0].ino)' | xargs)" "$number $number" "the number in listings"
python3 -c 'import os, sys
os.stat("tank"); open("/proc/sys/vm/drop_caches", "w").write("2")
sys.exit({os.stat("tank").st_ino, os.stat("tank/d/..").st_ino} != {int(sys.argv[1])})' "$number" || differs "the number when the kernel asks again"

ok setpriv --regid 1234 --groups 77 zfs create tank/theirs
is "$(stat -c %g tank/theirs)" 1234 "the group of who made it"
ok zfs create tank/ours
is "$(stat -c %g tank/ours)" "$(id -g)" "the group of the next one"
ok zpool export tank
ok zpool export backup
