#!/usr/bin/env bash
# A file was removed and a snapshot taken right after. The snapshot kept the file without a name, which the mount wanted to
# free a moment later. Where the snapshot was received, the first mount freed it, and the next increment was refused:
# "destination has been modified".
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER

disk d
ok zpool create -m "$T/p" p "$T/d"
ok zfs create p/a
ok zfs create p/a/b
for i in 1 2 3 4 5; do
    head -c 5000 /dev/urandom >p/a/file
    head -c 5000 /dev/urandom >p/a/b/file
    ok zpool sync p
    rm p/a/file p/a/b/file
    if [ $((i % 2)) = 0 ]; then ok zfs snapshot "p/a@$i" "p/a/b@$i"; else ok zfs snapshot -r "p/a@$i"; fi
    for f in a a/b; do
        zfs send "p/$f@$i" >stream
        zfs receive "p/${f/\//-}-$i" <stream || differs "$f@$i is refused"
        ok zpool sync p
        is "$(zfs get -Hp -o value written "p/${f/\//-}-$i")" 0 "what the mount of $f@$i changed"
    done
done
