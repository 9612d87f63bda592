#!/usr/bin/env bash
# `zuse check` reports that a sound pool is sound. In a broken pool it names what is broken and where: as text, as JSON, and by its status.
# A pool that a host holds is checked by that host.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER

disk d 128M
ok zpool create -O compression=off -m none tank "$T/d"
ok zfs create tank/a
seq 1 200000 >big
ok zuse cp big tank/a:/
ok zfs snapshot tank/a@s
is "$(hosts | wc -l)" 1 "a host"
says "tank: sound" zuse check tank
is "$(hosts | wc -l)" 1 "the host afterwards"
ok zpool export tank
gone
says "tank: sound" zuse check --in "$T/d" tank
is "$(zuse check -j --in "$T/d" tank | grep -c '"problems":\[\]')" 1 "problems as JSON"
at=$(LC_ALL=C grep -obUa 150000 d | head -1 | cut -d: -f1)
printf XXXXXX | dd of=d bs=1 seek="$at" conv=notrunc status=none
fails 1 zuse check --in "$T/d" tank
says "data-unreadable: no copy of the data gives what its checksum says" zuse check --in "$T/d" tank
says "tank: 1 thing is broken" zuse check --in "$T/d" tank
says '"counts":{"data-unreadable":1}' zuse check -j --in "$T/d" tank
says "tank: sound" zuse check --metadata --in "$T/d" tank
fails 2 zuse check
fails 1 zuse check nosuch
[ "$(zuse check --list | wc -l)" -ge 60 ] || differs "findings that are named"
