#!/usr/bin/env bash
# If one of several names does not exist, the others are shown, and the exit status says so. A command for file systems prints OpenZFS's
# message for a volume or a snapshot.
. "$(dirname "$0")/lib.sh"

disk a
ok zpool create -O mountpoint=none tank "$T/a"
ok zfs create tank/fs
ok zfs create -V 8M tank/vol
ok zfs snapshot tank/fs@s
for command in 'zpool list' 'zpool status'; do
    # shellcheck disable=SC2086
    fails 1 $command tank gone
    # shellcheck disable=SC2086
    says "no such pool" $command tank gone
    # shellcheck disable=SC2086
    says tank $command tank gone
done
fails 1 zfs list tank/fs tank/gone
says "cannot open 'tank/gone': dataset does not exist" zfs list tank/fs tank/gone
kind="operation not applicable to datasets of this type"
for command in 'zfs mount' 'zfs userspace' 'zfs wait'; do
    # shellcheck disable=SC2086
    fails 1 $command tank/vol
    # shellcheck disable=SC2086
    says "cannot open 'tank/vol': $kind" $command tank/vol
done
for command in 'zfs mount' 'zfs wait'; do
    # shellcheck disable=SC2086
    says "cannot open 'tank/fs@s': snapshot delimiter '@' is not expected here" $command tank/fs@s
done
ok zfs userspace tank/fs@s
ok zpool export tank
# With hosts, too, the command itself says that a place is not there.
unset ZUSE_HOST_LINGER
says "cannot import 'gone': no such pool available" zpool import -d "$T/nowhere" gone
silent 'cannot start a process' zpool import -d "$T/nowhere" gone
