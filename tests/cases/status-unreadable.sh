#!/usr/bin/env bash
# Pools whose devices lost their content while a host holds them. 'zpool status' failed as soon as one property could not be read, and 'list' left
# the pool out. 'status -x' called all pools healthy.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER

for name in a b c d e; do disk "$name" 200M; done
ok zpool create -m none good "$T/d"
ok zpool create -m none one "$T/e"
ok zpool create -m "$T/rz" rz raidz1 "$T/a" "$T/b" "$T/c"
head -c 20M /dev/urandom >rz/x
ok zpool sync rz
truncate -s 1M b c e

is "$(zpool status rz | awk -v t="$T/" 'index($1, t) == 1 && $3 > 0' | head -1 | wc -l)" 1 "errors of devices in the first report"
for pool in rz one; do
    zpool status "$pool" >out 2>err || differs "status of $pool: $(head -c 300 err)"
    is "$(head -1 out)" "  pool: $pool" "status of $pool"
    grep -q '^status: ' out || differs "no reason for $pool: $(cat out)"
    grep -q 'No known data errors' out && differs "errors of $pool: $(cat out)"
    grep -q "^	$pool " out || differs "no table for $pool: $(cat out)"
    is "$(zpool list -H -o name "$pool")" "$pool" "list of $pool"
    [ -n "$(zpool get -H -o value health "$pool")" ] || differs "no health of $pool"
    is "$(zpool get -H -o value guid "$pool" | grep -c '^[0-9]*$')" 1 "guid of $pool"
    is "$(zpool get -H -o value all "$pool" | grep -c '^active$' | sed 's/^[1-9].*/some/')" some "features of $pool"
    ok zpool status -vDit "$pool"
    zpool status -j "$pool" | grep -q "\"name\":\"$pool\"" || differs "status -j of $pool"
done
is "$(zpool status rz | grep -cE "^\s+$T/[abc] ")" 3 "devices in the table"
zpool status -x >out 2>err
grep -q healthy out && differs "with -x: $(cat out)"
is "$(awk '$1 == "pool:" { print $2 }' out | sort | xargs)" "one rz" "the pools with -x"
is "$(zpool list -H -o name | xargs)" "good one rz" "the list"

# One that cannot be opened at all is not called healthy either.
ok zpool create -m none gone "$T/f" --size 128M
ok zuse host stop gone
rm f
zpool status -x good gone >out 2>err && differs "status 0 with a pool that cannot be opened"
grep -q healthy out && differs "with -x: $(cat out)"
grep -q "'gone'" err || differs "no word about it: $(cat err)"
exit 0
