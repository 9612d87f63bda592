#!/usr/bin/env bash
# Before it unmounted, a receive listed the root directory. That counted as an access, so the access time was written. An incremental
# stream into an unchanged mount then failed with "destination has been modified".
. "$(dirname "$0")/lib.sh"

disk d
ok zpool create -m none p "$T/d"
ok zfs create p/a
mkdir m r
ok zfs set mountpoint="$T/m" p/a
ok zfs mount p/a
echo 1 >m/f1
ok zfs snapshot p/a@1
echo 2 >m/f2
ok zfs snapshot p/a@2
zfs send p/a@1 >full
zfs send -i @1 p/a@2 >more

for name in b c; do
    zfs receive -o mountpoint="$T/r" p/$name <full || differs "status $? of the full stream"
    ok zfs mount p/$name
    [ $name = b ] || ok zfs rollback p/$name@1
    zfs receive p/$name <more || differs "status $? of the incremental stream into p/$name"
    is "$(cat r/f1 r/f2 | xargs)" "1 2" "p/$name after the receive"
    ok zfs unmount p/$name
done

# What a user has written there still prevents it.
ok zfs rollback -r p/c@1
ok zfs mount p/c
echo 3 >r/f3
zfs receive p/c <more 2>said && differs "what was written is lost"
is "$(grep -c 'has been modified' said)" 1 "$(cat said)"
ok zfs unmount p/c
