#!/usr/bin/env bash
# 'zpool import -o readonly=on' imported for one command only. The pool stays imported, and nothing on it is changed.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER

disk d
ok zpool create -m "$T/p" p "$T/d"
echo hi >p/f
ok zfs snapshot p@1
ok zpool export p
sum=$(sha256sum <d)
for linger in "" 0; do
    [ -z "$linger" ] || export ZUSE_HOST_LINGER=$linger
    ok zpool import -o readonly=on -d "$T/d" p
    is "$(zpool get -H -o value readonly p)" on "readonly with linger '$linger'"
    is "$(zpool list -H -o name)" p "it is imported"
    fails 1 zfs snapshot p@2
    [ "$(zfs send p@1 | wc -c)" -gt 10000 ] || differs "no stream"
    [ -n "$linger" ] || is "$(cat p/f; touch p/g 2>/dev/null && echo written)" hi "the mount"
    ok zpool export p
    is "$(sha256sum <d)" "$sum" "the device"
done
