#!/usr/bin/env bash
# Data written through a mapping counted as a hole for SEEK_DATA, so cp copied zeros. copy_file_range stopped at 64 MiB, which programs
# take for the end of the file.
. "$(dirname "$0")/lib.sh"

disk d 512M
ok zpool create -O mountpoint="$T/m" p "$T/d"
cat >holes.py <<'E'
import mmap, os, sys
d = sys.argv[1]
fd = os.open(d + "/f", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
os.ftruncate(fd, 1 << 20)
m = mmap.mmap(fd, 1 << 20)
m[524288:524292] = b"data"
at = os.lseek(fd, 0, os.SEEK_DATA)
print("found" if at <= 524288 else at)
print(os.system(f"cp --sparse=auto {d}/f {d}/g && cmp {d}/f {d}/g"))
m[0:4] = b"more"
os.close(fd)
print(os.lseek(os.open(d + "/f", os.O_RDONLY), 0, os.SEEK_DATA))
E
for options in sync writeback; do
    ok zfs mount -o $options p
    is "$(python3 holes.py "$T/m" 2>&1 | tr '\n' ' ')" "found 0 0 " "after a mapping was written to, -o $options"
    ok zfs unmount p
done
ok zfs mount p
dd if=/dev/urandom of=m/big bs=1M count=100 status=none
cat >copy.py <<'E'
import os, sys
a = os.open(sys.argv[1] + "/big", os.O_RDONLY)
b = os.open(sys.argv[1] + "/copy", os.O_RDWR | os.O_CREAT)
print(os.copy_file_range(a, b, 100 << 20))
E
is "$(python3 copy.py "$T/m")" 104857600 "copy_file_range of 100 MiB"
ok cmp m/big m/copy
