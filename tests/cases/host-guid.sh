#!/usr/bin/env bash
# A pool that gets another guid is found by the new guid at once, also after several changes in a row. Names with old guids are removed.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER
disk d 64M
ok zpool create -m none p "$T/d"
for i in $(seq 12); do
    ok zpool reguid p
done
ok zpool reguid -g 4711 p
is "$(hosts | wc -l)" 1 "hosts"
run=$XDG_STATE_HOME/zuse/run
for i in $(seq 50); do
    [ "$(ls "$run" | tr '\n' ' ')" != "4711.name 4711.sock " ] || break
    sleep 0.1
done
is "$(ls "$run" | tr '\n' ' ')" "4711.name 4711.sock " "names of the host"
is "$(zuse host list | awk 'NR == 2 { print $1, $2 }')" "p $(hosts)" "the list of hosts"
ok zpool export p
