#!/usr/bin/env bash
# 'zpool wait' and 'zpool trim -w' did not end if a device that was being trimmed went offline, or left its pool.
HOSTS=1
. "$(dirname "$0")/lib.sh"
for d in a b; do disk $d 96M; done
ok zpool create -m none tank mirror "$T/a" "$T/b"
# So slow that it is under way still.
ok zpool trim -r 1 tank "$T/b"
says "trimmed, started at" zpool status -t tank
ok zpool offline tank "$T/b"
ok timeout 20 zpool wait -t trim tank
ok timeout 20 zpool wait tank
ok zpool online tank "$T/b"
says "trimmed, started at" zpool status -t tank
ok zpool detach tank "$T/b"
ok timeout 20 zpool wait tank
ok timeout 20 zpool trim -w tank
ok zpool export tank
gone
