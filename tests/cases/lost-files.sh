#!/usr/bin/env bash
# A read through a mount failed permanently, and 'zpool status' continued to say "No known data errors". Lost blocks belong into the pool's
# error log, in the form that the pool has, with names, also after the next mount.
. "$(dirname "$0")/lib.sh"

damage() { # FILE: four bytes of the first block of the marked file
    python3 - "$1" <<'P'
import sys
data = open(sys.argv[1], 'rb').read()
at = data.find(b'MARKER-ABC' * 50, 4 << 20)
with open(sys.argv[1], 'r+b') as f:
    f.seek(at + 100)
    f.write(b'XXXX')
P
}
unmount() { # until the process that held the pool has ended
    ok zuse umount "$T/m"
    for _ in {1..50}; do
        zpool status "$P" >/dev/null 2>&1 && return
        sleep 0.1
    done
}
for form in enabled disabled; do
    disk "$form"
    P=p$form
    ok zpool create -m none -o feature@head_errlog=$form $P "$T/$form"
    ok zfs create -o compression=off $P/a
    mkdir -p m
    ok zuse mount $P "$T/m"
    mkdir m/a/dir
    python3 -c "print('MARKER-ABC'*20000, end='')" >m/a/dir/f
    echo whole >m/a/whole
    ok zfs snapshot $P/a@s
    unmount
    damage "$form"
    ok zuse mount $P "$T/m"
    fails 1 cat m/a/dir/f
    ok cat m/a/whole
    says "1 data errors, use '-v' for a list" zpool status $P
    says "$T/m/a/dir/f" zpool status -v $P
    ok zpool sync $P
    unmount
    # Nobody has read it since.
    says "$P/a:/dir/f" zpool status -v $P
    silent whole zpool status -v $P
    says "not healthy" bash -c "zpool status -x $P | grep -q 'is healthy' || echo not healthy"
    if [ $form = enabled ]; then
        # The snapshot has the block as well, and is named too; once the head has it no more, it alone.
        says "$P/a@s:/dir/f" zpool status -v $P
        ok zuse mount $P "$T/m"
        rm m/a/dir/f
        unmount
        says "$P/a@s:/dir/f" zpool status -v $P
        silent "$P/a:/dir/f" zpool status -v $P
    fi
    ok zpool export $P
done
