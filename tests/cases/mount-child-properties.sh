#!/usr/bin/env bash
# File systems below a mounted one are in its mount, and its properties applied to all of them. Now acltype, setuid, devices and exec of a
# child apply, set before or while it is mounted.
. "$(dirname "$0")/lib.sh"

disk d
ok zpool create -O mountpoint="$T/m" p "$T/d"
ok zfs mount p
chmod 755 m
as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }
flags() { awk -v at="$T/m" '$2 == at { print $4 }' /proc/mounts | tr ',' '\n' | grep -xE "$1" | tr '\n' ' '; }

# exec=off: programs do not run, the mode is shown as it is, and others run.
ok zfs create -o exec=off p/exec
ok zfs create p/x
for dir in exec x; do cp /usr/bin/id "m/$dir/id"; done
fails 126 bash -c "$T/m/exec/id"
is "$(stat -c %a m/exec/id)" 755 "the mode of a program that may not run"
ok cmp m/exec/id /usr/bin/id
ok bash -c "$T/m/x/id"
ok zfs set exec=off p/x
fails 126 bash -c "$T/m/x/id"
ok zfs set exec=on p/x
ok bash -c "$T/m/x/id"

# setuid=off, devices=off: for the whole mount, as long as it shows such a file system.
chmod 4755 m/x/id
says 'euid=0' as 1234 "$T/m/x/id"
ok zfs create -o setuid=off p/setuid
silent 'euid=0' as 1234 "$T/m/x/id"
is "$(flags nosuid)" "nosuid " "a mount that shows setuid=off"
ok zfs destroy p/setuid
says 'euid=0' as 1234 "$T/m/x/id"
ok zfs set setuid=off p/x
silent 'euid=0' as 1234 "$T/m/x/id"
ok zfs inherit setuid p/x
says 'euid=0' as 1234 "$T/m/x/id"

# acltype: each file system's own.
ok zfs create -o acltype=posix p/acl
ok zfs create -o acltype=off p/off
for dir in acl off; do
    echo hello >"m/$dir/f"
    chmod 644 "m/$dir/f"
    mkdir "m/$dir/d"
done
says hello as 1234 cat m/off/f
ok as 1234 ls m/off/d
ok setfacl -m u:1234:--- m/acl/f
fails 1 as 1234 cat m/acl/f
says hello as 1235 cat m/acl/f
fails 1 setfacl -m u:1234:--- m/off/f
# And while it is mounted: what the kernel keeps of ACLs, also that there are none, is forgotten.
says hello as 1234 cat m/off/f
ok zfs set acltype=posix p/off
ok setfacl -m u:1234:--- m/off/f
fails 1 as 1234 cat m/off/f
ok zfs set acltype=off p/off
says hello as 1234 cat m/off/f
ok zfs set acltype=posix p/off
fails 1 as 1234 cat m/off/f
# Masks of creators count where a directory has no default ACL, in both.
(umask 027; : >m/off/masked; : >m/acl/masked; : >m/x/masked)
is "$(stat -c %a m/off/masked m/acl/masked m/x/masked | tr '\n' ' ')" "640 640 640 " "the mask"

# A read-only child says so at open.
ok zfs set readonly=on p/x
fails 1 bash -c ": >>$T/m/x/id"
