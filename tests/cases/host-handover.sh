#!/usr/bin/env bash
# With 'zuse host restart' another process, of another copy of the program, takes over the mounts of a pool. Their users notice nothing.
# If the new process fails, the old program continues.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER

disk d 512M
cp "$ZUSE" second
head -c 4000000 /dev/urandom >random
printf '%s' 0123456789abcdef0123456789abcdef >key
ok zpool create -m "$T/p" p "$T/d"
ok zfs create -o compression=off p/a
ok zfs create -o compression=off -o encryption=on -o keyformat=raw -o keylocation="file://$T/key" p/e
mv key nowhere
for i in $(seq 9); do ok zfs create "p/more$i"; done
mkdir p/a/many p/a/stands
(cd p/a/many && seq -f name%g 2000 | xargs touch)
cp random p/e/kept
echo left >p/a/left
ok zfs snapshot p/a@one
ls p/a/.zfs/snapshot/one >/dev/null
exec 5<p/a/.zfs/snapshot/one/left
before=$(zfs get -Hp -o value used p/a)

cat >user.py <<'EOF'
import fcntl, mmap, os, sys
top, random = sys.argv[1], open("random", "rb").read()
def check(what, is_so):
    if not is_so: print("DIFFERS:", what, flush=True)
nameless = open(top + "/nameless", "w+b")
nameless.write(random); nameless.flush()
os.unlink(top + "/nameless")
made = os.open(top, os.O_TMPFILE | os.O_RDWR, 0o600)
os.write(made, b"made")
mapped = open(top + "/mapped", "w+b")
mapped.write(random); mapped.flush()
pages = mmap.mmap(mapped.fileno(), len(random))
pages[0:4] = b"0000"
names = os.scandir(top + "/many")
seen = {next(names).name for _ in range(700)}
locked = open(top + "/locked", "w")
fcntl.flock(locked, fcntl.LOCK_EX)
ranged = open(top + "/ranged", "w")
fcntl.lockf(ranged, fcntl.LOCK_EX)
directory = os.open(top + "/many", os.O_RDONLY)
os.chdir(top + "/stands")
print("ready", flush=True)
for line in sys.stdin:
    os.posix_fadvise(nameless.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    nameless.seek(0)
    check("the file without a name", nameless.read() == random)
    check("its attributes", os.fstat(nameless.fileno()).st_nlink == 0)
    check("the mapping", pages[0:4] == b"0000" and pages[4:] == random[4:])
    pages[4:8] = b"1111"
    pages.flush()
    pages[4:8] = random[4:8]
    check("the working directory", os.listdir(".") == [] and os.stat(".").st_nlink == 2)
    open("new", "w").write("new"); os.unlink("new")
    check("a directory that is open", len(os.listdir(directory)) == 2000)
    print("done", flush=True)
    if line == "end\n": break
seen |= {entry.name for entry in names}
check("the listing", len(seen) == 2000)
os.link("/proc/self/fd/%d" % made, top + "/named", src_dir_fd=directory, follow_symlinks=True)
EOF
mkfifo asked
python3 user.py "$T/p/a" <asked >answers 2>&1 &
user=$!
exec 6>asked
until grep -q ready answers || ! kill -0 $user 2>/dev/null; do sleep 0.1; done
much() { for _ in $(seq 15); do cat random; [ -z "${1:-}" ] || sleep "$1"; done; }
much 0.2 | dd of=p/e/written bs=64k iflag=fullblock 2>/dev/null &
writer=$!
# The old process ends a moment after the new one has begun to serve.
settled() { for _ in $(seq 100); do [ "$(hosts | wc -l)" != 1 ] || return 0; sleep 0.1; done; }
mountinfo() { grep "$T" /proc/self/mountinfo; }
was=$(mountinfo)
old=$(hosts)

# By a process that may not open as many files as there are mounts: another one of the old program goes on.
(ulimit -n 15 && ./second host restart p) >said 2>&1 && differs "a restart by a process that cannot have all mounts"
grep -q "the old version goes on" said || differs "what it says: $(cat said)"
settled
is "$(hosts | wc -l)" 1 "hosts after a failure"
is "$(readlink "/proc/$(hosts)/exe")" "$(readlink -f "$ZUSE")" "the program that goes on"
is "$(mountinfo)" "$was" "mounts after a failure"
between=$(hosts)
echo again >&6
until grep -q done answers || ! kill -0 $user 2>/dev/null; do sleep 0.1; done

# By another copy of the program.
ok ./second host restart p
settled
is "$(readlink "/proc/$(hosts)/exe")" "$T/second" "the program that goes on now"
is "$(mountinfo)" "$was" "the mounts"
is "$(zuse host list | awk 'NR == 2 { print $2 }')" "$(hosts)" "the process that is listed"
[ "$(hosts)" != "$between" ] && [ "$between" != "$old" ] || differs "it is another process: $old, $between, $(hosts)"
is "$(zfs get -H -o value keystatus p/e)" available "the key"
ok cmp random p/e/kept
is "$(cat <&5)" left "a file of a snapshot"
fails 1 flock -n p/a/locked true
fails 1 python3 -c 'import fcntl; fcntl.lockf(open("p/a/ranged", "w"), fcntl.LOCK_EX | fcntl.LOCK_NB)'
fails 1 zfs unmount p/a
wait "$writer"
is "$(sha256sum <p/e/written)" "$(much | sha256sum)" "what was written meanwhile"
echo end >&6
exec 6>&-
wait $user
is "$(grep -v -e ready -e done answers)" "" "who used it"
is "$(cat p/a/named)" made "a file that was made without a name"

# What had no name is free once it is closed, and the pool is sound.
rm p/a/mapped p/a/named p/a/locked p/a/ranged
exec 5<&-
sleep 1.2
ok zpool sync p
after=$(zfs get -Hp -o value used p/a)
[ "$after" -lt $((before + 1000000)) ] || differs "space of what had no name: $before, $after"
ok zpool export p
gone
is "$(hosts; mounts)" "" "after the export"
zdb -bcc -e -p "$T" p >zdb.out 2>&1
grep -q 'No leaks' zdb.out || differs "zdb: $(tail -5 zdb.out)"
