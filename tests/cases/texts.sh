#!/usr/bin/env bash
# Texts and statuses that clients read, as OpenZFS 2.3.2 has them.
. "$(dirname "$0")/lib.sh"

# gives STATUS TEXT COMMAND…: both are to be so.
gives() {
    local out got=0
    out=$("${@:3}" 2>&1 </dev/null) || got=$?
    is "$got: $out" "$1: $2" "${*:3}"
}

disk a
ok zpool create -O mountpoint=none tank "$T/a"
ok zfs create tank/src
ok zfs snapshot tank/src@s1
gives 1 "Cannot get properties of nopool: no such pool available." zpool get -Hp all nopool
gives 1 "cannot hold snapshot 'tank/src@nope': dataset does not exist" zfs hold x tank/src@nope
gives 1 "cannot open 'tank/src@nope': dataset does not exist
no datasets available" zfs holds -H tank/src@nope
gives 1 "cannot open 'tank/src#nope': no such pool or dataset" zfs list -t bookmark -H -o name tank/src#nope
gives 0 "" zfs rename tank/src@s1 tank/src@s1
gives 1 "cannot receive: failed to read from stream" zfs receive tank/x

ok zfs create -o compression=off tank/large
ok zfs snapshot tank/large@zero
zfs send tank/large@zero | cat >whole
zfs receive tank/part <whole || differs "receiving"
head -c 4M /dev/urandom >file
ok zuse cp file tank/large:/
ok zfs snapshot tank/large@one
zfs send -i @zero tank/large@one >stream
head -c 3M stream | zfs receive -s tank/part 2>/dev/null
gives 0 "tank/part/%recv" zfs list -H -o name tank/part/%recv
zfs receive -F tank/part <stream 2>said
is "$(cat said)" "cannot receive incremental stream: destination tank/part contains partially-complete state from \"zfs receive -s\"." "receiving onto it"
ok zpool export tank
