#!/usr/bin/env bash
# `zfs mount -a` skipped file systems whose mountpoint is not below that of their parent, and children that had been unmounted by name.
# Its exit status did not report failed mounts.
. "$(dirname "$0")/lib.sh"

disk d
ok zpool create -O mountpoint="$T/m" p "$T/d"
ok zfs create p/a
ok zfs create -o mountpoint="$T/r/0" p/0
ok zfs create -o mountpoint="$T/r/c" p/c
ok zfs create -o mountpoint="$T/r/c/x" p/c/x
ok zfs create -o canmount=noauto -o mountpoint="$T/n" p/n
list() { zfs mount | awk '{ print $1 }' | sort | tr '\n' ' '; }
all='p p/0 p/a p/c p/c/x '
ok zfs mount -a
is "$(list)" "$all" "after mount -a"
silent already zfs mount -a
ok zfs mount -a
ok zfs unmount p/a
is "$(list)" 'p p/0 p/c p/c/x ' "after unmount of a child"
ok zfs mount -a
is "$(list)" "$all" "the child again"
ok zfs unmount -a
is "$(list)" '' "after unmount -a"
echo >file
ok zfs set mountpoint="$T/file" p/0
fails 1 zfs mount -a
is "$(list)" 'p p/a p/c p/c/x ' "the others, after one failed"
ok zfs unmount -a
