#!/usr/bin/env bash
# Properties that are set on a mounted dataset take effect at once. Before, acltype, setuid and exec took effect at the next mount only.
. "$(dirname "$0")/lib.sh"

disk d
ok zpool create -O mountpoint="$T/m" p "$T/d"
ok zfs mount p
chmod 755 m
as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }
cp /usr/bin/id m/id
chmod 4755 m/id
echo secret >m/f
chmod 666 m/f
says 'euid=0' as 1234 "$T/m/id"
says secret as 1234 cat m/f
ok zfs set acltype=posix p
ok setfacl -m u:1234:--- m/f
fails 1 as 1234 cat m/f
ok zfs set setuid=off p
silent 'euid=0' as 1234 "$T/m/id"
ok zfs set exec=off p
fails 126 bash -c "$T/m/id"
ok zfs set exec=on setuid=on p
says 'euid=0' as 1234 "$T/m/id"
ok zfs unmount p
ok zfs mount p
fails 1 as 1234 cat m/f
ok zfs set acltype=off p
fails 1 setfacl -m u:1234:rw m/f
ok zfs set snapdir=visible p
is "$(ls -a m | grep -xc .zfs)" 1 ".zfs in a listing once it is visible"
ok zfs set snapdir=disabled p
fails 2 ls m/.zfs
ok zfs set snapdir=hidden p
ok ls m/.zfs
is "$(ls -a m | grep -xc .zfs)" 0 ".zfs in a listing once it is hidden"
