#!/usr/bin/env bash
# An imported pool has one process that holds it. Many commands share it at a time, and it is started again after it was killed. It ends
# with the export, after the configured time without work, and when no client can find it any more.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER

disk d
ok zpool create -m "$T/p" p "$T/d"
is "$(hosts | wc -l)" 1 "hosts after the creation"
is "$(zuse host list | awk 'NR == 2 { print $1, $2 }')" "p $(hosts)" "the list of hosts"
ok zfs create p/a
head -c 3000000 /dev/urandom >p/a/r
zfs snapshot p/a@1
zfs send p/a@1 | zfs receive p/b
is "${PIPESTATUS[*]}" "0 0" "send into the same pool"
ok cmp p/a/r p/b/r
is "$(hosts | wc -l)" 1 "hosts after all that"

# The host keeps nothing open that its starter had.
ok zpool export p
exec 9>lock
flock -n 9
ok zpool import -d "$T/d" p
exec 9>&-
flock -n lock true || differs "the host holds a lock of who started it"

# What a command has changed is on the disk when it ends, and what was written is when it is unmounted.
echo kept >p/a/kept
ok zfs unmount p/a
ok zfs mount p/a
echo copied >copied
ok zuse cp copied p/b:/
kill -9 "$(hosts)"
sleep 0.3
is "$(zfs list -H -o name -r p | xargs)" "p p/a p/b" "the next command goes on"
is "$(hosts | wc -l)" 1 "hosts after one was killed"
is "$(cat p/a/kept p/b/copied | xargs)" "kept copied" "what was there when it was killed"
is "$(mounts | wc -l)" 3 "mounts are made again"

# SIGTERM: all is written and unmounted, the pool stays imported.
echo late >p/a/late
kill "$(hosts)"
gone
is "$(hosts; mounts)" "" "after SIGTERM"
is "$(zfs get -H -o value mounted p/a; cat p/a/late)" "yes
late" "the next command"
ok zuse host restart p
is "$(mounts | wc -l)" 3 "mounts after a restart"
fails 1 zuse host stop q

# Forwarded commands have the directory and the time zone of who asked.
mkdir -p far/away
(cd far/away && zuse cp p/a:/late here) || differs "copying out"
is "$(cat far/away/here)" late "what was copied into the asker's directory"
born=$(zfs get -Hp -o value creation p)
is "$(TZ=Asia/Tokyo zfs get -H -o value creation p)" "$(TZ=Asia/Tokyo date -d "@$born" '+%a %b %e %k:%M %Y')" "a date in the asker's zone"

ok zpool export p
gone
is "$(hosts; mounts)" "" "after the export"

# A command about all pools reaches the hosts of all.
disk e
ok zpool create -m none q "$T/e"
ok zpool import -d "$T/d" p
ok zfs snapshot p/a@h
ok zfs snapshot q@h
ok zfs hold kept p/a@h q@h
is "$(zfs holds -H p/a@h q@h | awk '{ print $1, $2 }' | xargs)" "p/a@h kept q@h kept" "holds in two pools"
ok zfs release kept p/a@h q@h
ok zpool export -a
gone
is "$(hosts; mounts; zpool list -H)" "" "after the export of all"

# For as long as it is told.
ZUSE_HOST_LINGER=1 ok zpool import -N -d "$T/d" p
is "$(hosts | wc -l)" 1 "hosts after the import"
sleep 2
is "$(hosts)" "" "a second later"
is "$(zpool list -H -o name)" p "it stays imported"
ok zpool export p
ok zpool import -N -d "$T/d" p
rm -r "$XDG_STATE_HOME"
gone
is "$(hosts)" "" "without its state directory"

# No hosts at all.
ok zuse --no-host zpool import -f -N -d "$T/d" p
is "$(hosts)" "" "with --no-host"
is "$(ZUSE_HOST_LINGER=0 zfs list -H -o name -r p | xargs)" "p p/a p/b" "a command that opens the pool itself"
is "$(hosts)" "" "with zuse_host_linger=0"
