#!/usr/bin/env bash
# A raw stream contains the number of PBKDF2 rounds of its key. One with 4 294 967 280 kept 'load-key' busy for hours, and it could not be
# interrupted. It held a lock for which every other command of the mount's process waited.
. "$(dirname "$0")/lib.sh"
here=$CASES/../..

disk p.img
mkdir m
zstd -q -d "$here/testdata/streams/raw-it32.zs.zst" -o stream
zpool create -O mountpoint=none p p.img
# The stream is taken: a backup has to go through, and nothing is derived for it.
zfs receive p/r <stream || differs 'receive'
load() { printf 'password1\n' | timeout 10 zfs load-key "$@" p/r 2>&1; }
refused='4294967280 rounds of PBKDF2'
grep -qF "$refused" <<<"$(load)" || differs "load-key: $(load)"
zuse mount p m
grep -qF "$refused" <<<"$(load)" || differs "load-key in the mount's process: $(load)"
load -n >/dev/null
is "$?" 1 'status of load-key'
for line in "zfs create -o encryption=on -o keyformat=passphrase -o pbkdf2iters=10000001 p/x" \
    "zfs create -o encryption=on -o keyformat=passphrase -o pbkdf2iters=4294967297 p/x"; do
    got=$(printf 'password1\n' | timeout 10 $line 2>&1) && differs "$line went well"
    grep -qF 'rounds of PBKDF2' <<<"$got" || differs "$line: $got"
done
printf 'password1\n' | zfs create -o encryption=on -o keyformat=passphrase p/e || differs 'create'
got=$(printf 'password2\n' | zfs change-key -o pbkdf2iters=20000000 p/e 2>&1) && differs 'change-key went well'
grep -qF 'rounds of PBKDF2' <<<"$got" || differs "change-key: $got"

# A tunable raises it. Then it takes long: nobody waits for that, and Ctrl-C ends it.
ok zuse tunables -o zuse_pbkdf2_iters_max=4294967295 p
printf 'password1\n' | zfs load-key p/r >/dev/null 2>&1 &
asker=$!
sleep 1
began=$SECONDS
ok timeout 10 zfs create p/meanwhile
[ $((SECONDS - began)) -lt 5 ] || differs "a command waited for $((SECONDS - began)) s"
kill -KILL $asker
wait $asker 2>/dev/null
for process in /proc/[0-9]*; do
    tr '\0' ' ' <"$process/cmdline" | grep -q ' serve ' && holder=$process
done 2>/dev/null
busy() { awk '{ print $14 }' "$holder/stat"; }
sleep 1
one=$(busy)
sleep 1
[ $(($(busy) - one)) -lt 50 ] || differs 'it goes on deriving although nobody waits'
ok zuse umount m

# A key file that others may read, and one that they may not.
printf 'password1\n' >key
chmod 644 key
load() { zfs create -o encryption=on -o keyformat=passphrase -o "keylocation=file://$T/key" "$1" 2>&1; }
grep -qF 'is not yours alone' <<<"$(load p/k1)" || differs 'no warning of a key file that others may read'
chmod 600 key
is "$(load p/k2)" '' 'words about a key file of its own'
