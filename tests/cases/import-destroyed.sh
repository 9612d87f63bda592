#!/usr/bin/env bash
# Destroyed pools are listed and imported with -D alone, as a real OpenZFS 2.3 does it. Scripts ask for devices with all of -H -v -P -L.
# A package that is cut off says what was received of it.
. "$(dirname "$0")/lib.sh"
disk a
disk b
ok zpool create -O mountpoint=none tank mirror "$T/a" "$T/b"
is "$(zpool list -vHPL tank | cut -f1 | sed 's/^ *//' | xargs)" "tank mirror-0 $T/a $T/b" "the names of 'list -vHPL'"
is "$(zpool list -vHPL tank | awk -F'\t' '{ print NF }' | sort -u | xargs)" 11 "the fields of each line"
ok zfs create tank/fs
ok zfs snapshot -r tank@s
zfs send -R tank@s >package
head -c $(($(stat -c %s package) - 400)) package >cut
fails 1 zfs receive -d tank/fs <cut
ok zpool destroy tank
is "$(zpool import -d "$T" 2>&1)" "no pools available to import" "a destroyed pool is not listed"
says "state: ONLINE (DESTROYED)" zpool import -D -d "$T"
says "no such pool available" zpool import -d "$T" tank
fails 1 zpool import -d "$T" tank
ok zpool import -D -d "$T" tank
is "$(zfs list -H -o name tank/fs)" tank/fs "what it holds"
ok zpool destroy tank
ok zpool import -D -d "$T" -a
is "$(zpool list -H -o name)" tank "all destroyed pools"
ok zpool export tank
is "$(zpool import -D -d "$T" 2>&1)" "no pools available to import" "an exported pool is none that was destroyed"
