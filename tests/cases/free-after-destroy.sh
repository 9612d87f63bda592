#!/usr/bin/env bash
# 'zpool destroy' and 'zpool export' of a mounted pool returned while its former holder still locked the devices. The next command found
# them in use.
. "$(dirname "$0")/lib.sh"

disk a
mkdir m
for _ in 1 2 3 4 5; do
    ok zpool create -f -m none p "$T/a"
    ok zuse mount p "$T/m"
    head -c 3M /dev/urandom >m/f
    ok zpool export p
    ok zpool import -d "$T" p
    ok zuse mount p "$T/m"
    ok zpool destroy p
    # Nobody locks it: a program that does not wait gets it at once.
    ok flock -n "$T/a" true
done
