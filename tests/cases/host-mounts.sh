#!/usr/bin/env bash
# What is mounted, moved and unmounted as a side effect of commands, as a real OpenZFS 2.3 did it with the same commands.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER
m() { mounts | sed "s#$T##" | sort | xargs; }

disk d
ok zpool create -O mountpoint="$T/p" p "$T/d"
is "$(m)" "p /p" "create"
ok zfs create p/a
ok zfs unmount p/a
[ -d p/a ] || differs "unmounting takes the directory away"
ok zfs destroy p/a
[ ! -d p/a ] || differs "the directory of a destroyed file system is left"
ok zfs create -o mountpoint="$T/x/y" p/b
ok zfs set mountpoint="$T/z" p/b
[ -d x/y ] || differs "a directory that was named is taken away"
is "$(m)" "p /p p/b /z" "set mountpoint"
ok zfs destroy p/b
[ -d z ] || differs "a directory that was named is taken away"
ok zfs create p/c
ok zfs rename p/c p/d
is "$(ls p)" d "the directory follows the name"
is "$(m)" "p /p p/d /p/d" "rename"

# A process has its working directory in it.
(cd p/d && exec sleep 60) &
sleep 0.3
for refused in "1 zfs unmount p/d" "255 zfs set mountpoint=$T/q p/d" "255 zfs set canmount=off p/d" "1 zfs rename p/d p/e" \
    "1 zfs destroy p/d" "1 zpool export p" "1 zfs unmount p"; do
    # shellcheck disable=SC2086
    fails $refused
    # shellcheck disable=SC2086
    says "cannot unmount '$T/p/d': pool or dataset is busy" ${refused#* }
    is "$(m)" "p /p p/d /p/d" "after $refused"
done
ok zfs set canmount=noauto p/d
is "$(m)" "p /p p/d /p/d" "canmount=noauto leaves it"
kill %1
wait
fails 1 zfs mount p/d
ok zfs set canmount=off p/d
is "$(m)" "p /p" "canmount=off"
says "'canmount' property is set to 'off'" zfs mount p/d
ok zfs set canmount=on p/d
is "$(m)" "p /p" "canmount=on does not mount"
ok zfs set mountpoint=none p/d
says "no mountpoint set" zfs mount p/d
ok zfs set mountpoint=legacy p/d
says "legacy mountpoint" zfs mount p/d
ok zfs set mountpoint="$T/w" p/d
is "$(m)" "p /p p/d /w" "a mountpoint after none"
ok zfs set canmount=noauto p/d
ok zfs set mountpoint="$T/w2" p/d
is "$(m)" "p /p p/d /w2" "noauto, mounted: it moves"
ok zfs unmount p/d
ok zfs set mountpoint="$T/w3" p/d
is "$(m)" "p /p" "noauto, not mounted: it stays so"
ok zfs set canmount=on p/d
fails 1 zfs unmount p/d
ok zfs set mountpoint="$T/w4" p/d
is "$(m)" "p /p p/d /w4" "a mountpoint mounts"
ok zfs inherit mountpoint p/d
is "$(m)" "p /p p/d /p/d" "inherit"

mkdir full
touch full/x
fails 1 zfs create -o overlay=off -o mountpoint="$T/full" p/f
says "directory is not empty" zfs mount p/f
ok zfs destroy p/f
ok zfs create -u p/g
ok zfs rename -u p/g p/h
is "$(m)" "p /p p/d /p/d" "create -u, rename -u"
ok zfs create -p p/h/i/j
ok zfs create -o canmount=noauto p/n
ok zfs create p/n/o
is "$(m)" "p /p p/d /p/d p/h/i /p/h/i p/h/i/j /p/h/i/j p/n/o /p/n/o" "create -p, noauto"
ok zfs snapshot p/h@1
ok zfs clone p/h@1 p/hc
zfs send p/h@1 | zfs receive p/r || differs "receive"
zfs send p/h@1 | zfs receive -u p/ru || differs "receive -u"
is "$(m)" "p /p p/d /p/d p/h/i /p/h/i p/h/i/j /p/h/i/j p/hc /p/hc p/n/o /p/n/o p/r /p/r" "clone, receive"
ok zfs unmount p
is "$(m)" "" "unmounting takes along what is below"
ok zfs mount p
is "$(m)" "p /p" "mounting does not"
ok zfs mount -a
is "$(m | wc -w)" 18 "mount -a"

# Each is a file system of its own, as find and df see it.
[ "$(stat -c %d p)" != "$(stat -c %d p/d)" ] || differs "the child has its parent's device"
is "$(df --output=target p/d/. | tail -1)" "$T/p/d" "df"
touch p/d/inside
is "$(find p -xdev -name inside)" "" "find -xdev"

# Keys stay with the host.
echo password >key
chmod 600 key
ok zfs create -o encryption=on -o keyformat=passphrase -o keylocation="file://$T/key" p/k
is "$(zfs get -H -o value keystatus,mounted p/k | xargs)" "available yes" "a new encrypted file system"
says "'p/k' is busy" zfs unload-key p/k
ok zfs unmount p/k
ok zfs unload-key p/k
says "encryption key not loaded" zfs mount p/k
ok zfs load-key p/k
ok zfs mount p/k
ok zpool export p
ok zpool import -N -d "$T/d" p
is "$(m)" "" "import -N"
ok zpool export p
ok zpool import -R "$T/alt" -d "$T/d" p
is "$(m | tr ' ' '\n' | grep -c "^/alt$T/p")" 9 "import -R: $(m)"
ok zpool destroy p
is "$(m)" "" "destroy"
