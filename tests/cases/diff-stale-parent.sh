#!/usr/bin/env bash
# A file records the directory of its newest name. That name can be removed while an older one exists. 'zfs diff' then had no path to print.
. "$(dirname "$0")/lib.sh"

disk d
ok zpool create -O mountpoint="$T/m" p "$T/d"
ok zfs mount p
mkdir m/src m/dest
echo x >m/src/file
ln m/src/file m/dest/second
rm m/dest/second
ok zfs snapshot p@2
mv m/src/file m/src/renamed
mkdir m/new
ln m/src/renamed m/new/link
ok zfs snapshot p@3
silent on_delete_queue zfs diff -FH p@2 p@3
says "M	F	$T/m/new/link	(+1)" zfs diff -FH p@2 p@3
ok zuse umount p
ok zpool export p
