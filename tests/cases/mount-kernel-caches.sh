#!/usr/bin/env bash
# Stale kernel caches of a mount: block counts from a file's creation, and names in a case-insensitive dataset. Also listings that began
# before a file was created, and pages that were read beside an asynchronous O_DIRECT write.
. "$(dirname "$0")/lib.sh"

disk d
ok zpool create -O mountpoint="$T/m" p "$T/d"
ok zfs mount p

# Block counts, once a txg is written: by itself, by fsync, by a sync of the pool.
blocks() { stat -c %b "$1"; }
head -c 3000000 /dev/urandom >m/f
blocks m/f >first
ok zpool sync p
[ "$(blocks m/f)" -gt 5800 ] || differs "blocks after zpool sync: $(blocks m/f)"
head -c 3000000 /dev/urandom >m/g
blocks m/g >first
ok sync m/g
[ "$(blocks m/g)" -gt 5800 ] || differs "blocks after fsync: $(blocks m/g)"
head -c 3000000 /dev/urandom >m/h
blocks m/h >first
for _ in $(seq 90); do
    [ "$(blocks m/h)" -gt 5800 ] && break
    sleep 0.1
done
[ "$(blocks m/h)" -gt 5800 ] || differs "blocks after a while: $(blocks m/h)"
: >m/h
blocks m/h >first
ok zpool sync p
[ "$(blocks m/h)" -lt 100 ] || differs "blocks of an emptied file: $(blocks m/h)"

# Names: of one entry, as many as there are ways to write it.
ok zfs create -o casesensitivity=insensitive p/case
fails 2 ls m/case/foo
echo a >m/case/FOO
says a cat m/case/foo
says a cat m/case/FoO
ok rm m/case/foo
fails 2 ls m/case/FOO
fails 2 ls m/case/FoO
ok mkdir m/case/Dir
ok ls m/case/dir
ok mv m/case/DIR m/case/other
fails 2 ls m/case/dir
fails 2 ls m/case/Dir
ok ls m/case/OTHER
ok zfs create -o normalization=formD -o utf8only=on p/form
one=$'\xc3\xa9' two=$'e\xcc\x81'
fails 2 ls "m/form/$one"
echo a >"m/form/$two"
says a cat "m/form/$one"
ok rm "m/form/$one"
fails 2 ls "m/form/$two"

# Listings: who has made a file finds it in its own next listing.
mkdir m/many
cat >list.py <<'E'
import os, random, sys, threading, time
d, end = sys.argv[1], time.time() + float(sys.argv[2])
missing, listings = [], [0] * 8
def work(k):
    r, mine = random.Random(k), set()
    while time.time() < end:
        name = f"t{k}-{r.randrange(40)}"
        what = r.choice("cruL")
        if what == "c":
            open(f"{d}/{name}", "w").close()
            mine.add(name)
        elif what == "r" and name in mine:
            other = f"t{k}-{r.randrange(40)}"
            os.rename(f"{d}/{name}", f"{d}/{other}")
            mine.discard(name)
            mine.add(other)
        elif what == "u" and name in mine:
            os.unlink(f"{d}/{name}")
            mine.discard(name)
        elif what == "L":
            missing.extend(mine - set(os.listdir(d)))
            listings[k] += 1
threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
print(len(missing), "of", sum(listings) > 8)
E
is "$(python3 list.py "$T/m/many" 4)" "0 of True" "own files that a listing lacks"

# Pages: once an asynchronous O_DIRECT write is complete, a buffered read has its bytes.
cat >direct.py <<'E'
import ctypes, mmap, os, struct, sys, threading, time
p, stop = sys.argv[1], time.time() + float(sys.argv[2])
size, piece = 1 << 20, 1 << 17
open(p, "wb").write(b"\0" * size)
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
SETUP, EVENTS, SUBMIT = (206, 208, 209) if os.uname().machine == "x86_64" else (0, 4, 2)
ctx = ctypes.c_ulong(0)
assert libc.syscall(SETUP, 64, ctypes.byref(ctx)) == 0
fd = os.open(p, os.O_RDWR | os.O_DIRECT)
memory = mmap.mmap(-1, size)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
def read():
    f = os.open(p, os.O_RDONLY)
    while time.time() < stop:
        os.pread(f, size, 0)
threads = [threading.Thread(target=read) for _ in range(3)]
[t.start() for t in threads]
reader, value, rounds, old = os.open(p, os.O_RDONLY), 0, 0, 0
while time.time() < stop:
    value = value % 250 + 1
    memory[:] = bytes([value]) * size
    blocks = [ctypes.create_string_buffer(struct.pack("=QIiHhIQQqQII", at, 0, 0, 1, 0, fd, address + at, piece, at, 0, 0, 0))
              for at in range(0, size, piece)]
    pointers = (ctypes.c_void_p * len(blocks))(*[ctypes.addressof(one) for one in blocks])
    assert libc.syscall(SUBMIT, ctx, len(blocks), pointers) == len(blocks)
    events = ctypes.create_string_buffer(32 * len(blocks))
    assert libc.syscall(EVENTS, ctx, len(blocks), len(blocks), events, None) == len(blocks)
    rounds += 1
    old += os.pread(reader, size, 0) != bytes([value]) * size
[t.join() for t in threads]
print(old, "of", rounds > 3)
E
is "$(python3 direct.py "$T/m/direct" 4)" "0 of True" "buffered reads with old bytes"
