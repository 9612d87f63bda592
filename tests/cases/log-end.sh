#!/usr/bin/env bash
# The end of an intent log is a block that was never written. Finding it counted as a checksum error of the device, and the status of
# a pool that had crashed said that its device was bad.
. "$(dirname "$0")/lib.sh"

ok "$CASES/../../scripts/unpack-golden" zil-crash "$T/crash"
# A log that is claimed, and waits: what its records wrote outside of it is no leak.
ok zpool import -N -f -d "$T/crash" gukz1
ok zpool export gukz1
says "gukz1: sound" zuse check --in "$T/crash" gukz1
ok zpool import -d "$T/crash" gukz1
mkdir m
ok zuse mount gukz1 "$T/m"
errors=$(zpool status -p gukz1 | awk '$2 == "ONLINE" && NF == 5 { print $3, $4, $5 }' | sort -u)
is "$errors" "0 0 0" "errors after the replay"
says "No known data errors" zpool status gukz1
