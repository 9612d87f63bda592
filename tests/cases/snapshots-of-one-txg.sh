#!/bin/bash
# `snapshot -r` took no snapshots above a half-received filesystem. Two snapshots of one filesystem in one command had one creation txg.
. "$(dirname "$0")/lib.sh"

disk d0
snapshots() { zfs list -H -o name -t snapshot -r tank | tr '\n' ' '; }
ok zpool create -f -O mountpoint="$T/m" tank "$T/d0"
ok zfs create tank/a
head -c 8000000 /dev/urandom >x
ok zuse cp x tank/a:/
ok zfs snapshot tank/a@1
zfs send tank/a@1 >s
head -c 4000000 s | zfs receive -s tank/b 2>/dev/null
ok zfs snapshot -r tank@all
is "$(snapshots)" "tank@all tank/a@1 tank/a@all " "snapshots above a half-received filesystem"
fails 1 zfs snapshot tank/b@x

fails 1 zfs snapshot tank/a@2 tank/a@3
says "multiple snapshots of same fs not allowed" zfs snapshot tank/a@2 tank/a@3
fails 1 zfs snapshot -r tank@4 tank/a@5
ok zfs snapshot tank@6 tank/a@7
ok zfs snapshot -r tank@8 tank/a@8
is "$(snapshots)" "tank@all tank@6 tank@8 tank/a@1 tank/a@all tank/a@7 tank/a@8 " "snapshots at the end"
zpool destroy tank
