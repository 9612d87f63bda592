#!/usr/bin/env bash
# A checkpoint is made during a replacement. The resilver cannot complete the new device, because it does not read the blocks that only the
# checkpoint has. Once the checkpoint was discarded nothing resilvered again, and 'zpool wait' never ended.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER

disk a
disk b
mkdir -p "$HOME/.config/zuse"
echo 'zfs_scan_suspend_progress = 1' >"$HOME/.config/zuse/tunables"
ok zpool create -m "$T/m" tank "$T/a"
head -c 20M /dev/urandom >m/x
ok zpool sync tank
ok zpool replace tank "$T/a" "$T/b"
ok zpool checkpoint tank
ok zpool export tank
rm "$HOME/.config/zuse/tunables"
ok zpool import -d "$T" tank
ok timeout 60 zpool wait -t resilver tank
says replacing-0 zpool status tank
ok zpool checkpoint -d -w tank
ok timeout 60 zpool wait -t resilver,replace tank
silent replacing zpool status tank
says "$T/b" zpool status tank
ok zpool scrub -w tank
says "repaired 0B" zpool status tank
ok zpool export tank
gone
