#!/usr/bin/env bash
# Open files and working directories survive a rollback if the object is the same. A file handle finds its file after the kernel has
# forgotten it.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER

disk d
ok zpool create -m "$T/p" p "$T/d"
for where in p/a p/b; do
    ok zfs create $where
    echo one >$where/f
    mkdir $where/d
    ok zfs snapshot $where@1
    exec 9>>$where/f 8<$where/f
    echo gone >$where/g
    exec 7<$where/g
    cd $where/d || exit 2
    ok zfs rollback $where@1
    echo more >&9 || differs "writing to an open file"
    is "$(cat <&8 | xargs)" "one more" "reading an open file"
    ls . >/dev/null || differs "listing the working directory"
    cat <&7 >/dev/null 2>&1 && differs "a file that is not in the snapshot can be read"
    cd "$T" || exit 2
    is "$(xargs <$where/f)" "one more" "the file by its name"
    exec 9>&- 8<&- 7<&-
done
python3 - p/a/f <<'P' || differs "the file handle"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]
handle, mount = Handle(128, 0), ctypes.c_int()
path = sys.argv[1].encode()
assert libc.name_to_handle_at(-100, path, ctypes.byref(handle), ctypes.byref(mount), 0) == 0, os.strerror(ctypes.get_errno())
open("/proc/sys/vm/drop_caches", "w").write("2")
top = os.open(os.path.dirname(sys.argv[1]), os.O_RDONLY)
fd = libc.open_by_handle_at(top, ctypes.byref(handle), os.O_RDONLY)
assert fd >= 0, os.strerror(ctypes.get_errno())
assert os.read(fd, 100) == b"one\nmore\n"
P
ok zpool export p
