#!/usr/bin/env bash
# `zpool create -t` while hosts are on: the host has the pool under its temporary name, as after `zpool import -t`. It had it under the name
# on the devices, and then nothing could list pools.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER

disk d
disk e
ok zpool create -m none -t temp t3 "$T/d"
ok zpool create -m none other "$T/e"
is "$(zpool list -H -o name,health,tname | xargs)" "other ONLINE - temp ONLINE temp" "the pools"
is "$(zfs list -H -o name | xargs)" "other temp" "the datasets"
is "$(zpool get -H -o value health temp)" ONLINE "its health"
ok zfs create temp/a
ok zfs snapshot temp/a@s
is "$(zpool status temp | head -1)" "  pool: temp" "its status"
fails 1 zpool status t3
is "$(zpool events -v temp | grep -c 'pool = "temp"' | sed 's/^[1-9].*/some/')" some "events under its temporary name"
is "$(zdb -l "$T/d" | grep '^    name')" "    name: 't3'" "the name on the device"
ok zpool export temp
gone
is "$(zdb -l "$T/d" | grep '^    name')" "    name: 't3'" "the name on the device after the export"
ok zpool import -d "$T/d" t3
is "$(zfs list -H -o name -r t3 | xargs)" "t3 t3/a" "what was made under the temporary name"
fails 2 zpool create -m none -t a,b t4 "$T/e"
ok zpool export -a
gone
