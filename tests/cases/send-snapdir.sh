#!/usr/bin/env bash
# `snapdir=disabled` was sent as the default that is stored in addition for older software.
. "$(dirname "$0")/lib.sh"

disk d 128M
ok zpool create -m none p "$T/d"
ok zfs create -o snapdir=disabled -o redundant_metadata=none p/c
ok zfs snapshot p/c@1
zfs send -p p/c@1 >stream || differs "zfs send"
zfs receive p/r <stream || differs "zfs receive"
is "$(zfs get -H -o value,source snapdir p/r)" $'disabled\treceived' "snapdir"
is "$(zfs get -H -o value,source redundant_metadata p/r)" $'none\treceived' "redundant_metadata"
