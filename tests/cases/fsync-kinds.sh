#!/usr/bin/env bash
# Each way in which a program can request durability, on a mount whose process is killed before a txg ends. What was requested is there,
# and nothing else.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER
options=allow_other,zuse_intent_log=1,zfs_txg_timeout=3600

disk d
ok zpool create -m none p "$T/d"
ok zfs create -o sync=always p/always
ok zfs create -o sync=disabled p/disabled
mkdir m a n
ok zuse mount -o "$options" p m
ok zuse mount -o "$options" p/always a
ok zuse mount -o "$options" p/disabled n
python3 - <<'E2' || differs "the program"
import mmap, os

def opened(name, flags=0, size=0):
    fd = os.open(name, os.O_RDWR | os.O_CREAT | flags)
    if size:
        os.write(fd, b"o" * size)
        os.fsync(fd)
    return fd

for top in ("m", "a", "n"):
    # The log begins, and is on disk.
    opened(top + "/begun", size=1)

os.write(opened("m/dsync", os.O_DSYNC), b"new")
os.write(opened("m/sync", os.O_SYNC), b"new")
fd = opened("m/fdatasync")
os.write(fd, b"new")
os.fdatasync(fd)
for name in ("msync", "mapped"):
    fd = opened("m/" + name, size=9000)
    view = mmap.mmap(fd, 9000)
    view[5000:5003] = b"new"
    # flush() is msync(); fsync() writes changed pages too.
    view.flush() if name == "msync" else os.fsync(fd)
source, copy = opened("m/source", size=300_000), opened("m/copy")
assert os.copy_file_range(source, copy, 300_000, 0, 0) == 300_000
os.fsync(copy)
fd = opened("m/range", size=200_000)
os.pwrite(fd, b"new", 70_000)
os.fsync(fd)
fd = opened("m/xattr")
os.setxattr(fd, "user.x", b"new")
os.fsync(fd)
os.rename("m/source", "m/renamed")
os.fsync(os.open("m", os.O_RDONLY))
os.write(opened("a/always"), b"new")
fd = opened("n/disabled")
os.write(fd, b"new")
os.fsync(fd)
os.write(opened("m/nothing"), b"new")
E2
kill -KILL $(hosts)
umount -l m a n
for pair in "p m" "p/always a" "p/disabled n"; do ok zuse mount -o "$options" $pair; done
for name in m/dsync m/sync m/fdatasync a/always; do is "$(cat "$name" 2>&1)" new "$name"; done
for name in m/msync m/mapped; do is "$(stat -c %s "$name") $(tail -c +5001 "$name" | head -c 3)" "9000 new" "$name"; done
is "$(tail -c +70001 m/range | head -c 3)" new m/range
is "$(head -c 300000 /dev/zero | tr '\0' o | cmp - m/copy 2>&1)" "" m/copy
is "$(stat -c %s m/renamed m/copy | tr '\n' ' ')" "300000 300000 " "sizes"
is "$(getfattr --only-values -n user.x m/xattr 2>&1)" new "extended attribute"
is "$(ls m/source m/nothing n/disabled 2>/dev/null)" "" "what was not asked for"
ok zpool export p
gone
says "p: sound" zuse check --in "$T/d" p
