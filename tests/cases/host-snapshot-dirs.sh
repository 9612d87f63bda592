#!/usr/bin/env bash
# Directories created, removed and renamed in .zfs/snapshot are snapshots created, destroyed and renamed. Only root may do that.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER

disk d
ok zpool create -m "$T/p" p "$T/d"
for where in p p/a; do
    [ $where = p ] || ok zfs create $where
    s=$T/$where/.zfs/snapshot
    echo one >$where/f
    ok mkdir "$s/1"
    echo two >$where/f
    is "$(cat "$s/1/f")" one "the file in the snapshot"
    fails 1 mkdir "$s/1"
    fails 1 mkdir "$s/not@a name"
    ok mv "$s/1" "$s/first"
    is "$(zfs list -H -o name -t snapshot $where)" "$where@first" "renamed"
    is "$(ls "$s")" first "listed"
    ok zfs hold here $where@first
    fails 1 rmdir "$s/first"
    ok zfs release here $where@first
    fails 1 setpriv --reuid nobody --regid nogroup --clear-groups mkdir "$s/theirs"
    ok rmdir "$s/first"
    is "$(zfs list -H -o name -t snapshot $where)" "" "destroyed"
    is "$(ls "$s")" "" "not listed any more"
done
