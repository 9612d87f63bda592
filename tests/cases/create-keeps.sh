#!/usr/bin/env bash
# 'zpool create' took a device with a file system, swap space or a partition table without a warning. With -f it took the device of a pool
# that was imported and not mounted. The same bytes have several names: links, loop devices.
. "$(dirname "$0")/lib.sh"

disk a; disk b
mkfs.ext4 -q -F a
says "$T/a contains a filesystem of type 'ext4'" zpool create -m none p "$T/a"
says "use '-f'" zpool create -m none p "$T/a"
fails 1 zpool create -m none p "$T/b" "$T/a"
is "$(blkid -p -o value -s TYPE a)" ext4 "the file system after a refusal"
ok zpool create -f -m none p "$T/a"
is "$(blkid -p -o value -s TYPE a)" zfs_member "what others see once it was taken"
ok zpool destroy p
ok zpool create -m none p "$T/a"

# A device of an imported pool, by any name.
ln -s a soft; ln a hard
loop=$(losetup -f --show "$T/a")
trap 'losetup -d "$loop"; case_end' EXIT
for name in "$T/a" "$T/soft" "$T/hard" "$loop"; do
    says "$name is part of active pool 'p'" zpool create -f -m none q "$name"
    fails 1 zpool create -f -m none q "$name"
done
fails 1 zpool create -f -m none q mirror "$T/b" "$T/b"
ln -s b other
fails 1 zpool create -f -m none q mirror "$T/b" "$T/other"
mkdir m
ok zuse mount p "$T/m"
elsewhere=$T/elsewhere
for name in "$T/a" "$T/soft" "$T/hard" "$loop"; do
    fails 1 zpool create -f -m none q "$name"
done
# Who has imported it elsewhere and holds it is named, whether -f is given or not: it would not help.
for force in "" -f; do
    says "$T/a is part of active pool 'p', which another process holds" \
        env XDG_STATE_HOME="$elsewhere" zpool create $force -m none q "$T/a"
    silent "use '-f'" env XDG_STATE_HOME="$elsewhere" zpool create $force -m none q "$T/a"
done
# A user who has other pools imported. An import waits for a while for who holds the device.
fails 1 env XDG_STATE_HOME="$elsewhere" zpool create -f -m none q "$loop"
fails 1 env XDG_STATE_HOME="$elsewhere" zpool import -f -d "$T/hard" p
ok zuse umount "$T/m"
# Once nobody holds it, it is potentially active, which -f overrides.
timeout 60 flock a true
says "is part of potentially active pool 'p'" env XDG_STATE_HOME="$elsewhere" zpool create -m none q "$T/a"
ok zpool export p
says "$T/a is part of exported pool 'p'" zpool create -m none q "$T/a"
ok zpool create -f -m none q "$T/a"
ok zpool destroy q

# What the system itself uses.
mkfs.ext4 -q -F "$loop"
mount "$loop" m
fails 1 zpool create -f -m none q "$loop"
fails 1 zpool create -f -m none q "$T/a"
umount m
dd if=/dev/zero of=a bs=1M count=4 conv=notrunc status=none
chmod 600 b; mkswap b >/dev/null 2>&1
says "$T/b contains a filesystem of type 'swap'" zpool create -m none q "$T/b"
printf '\000\000\000\000\203\000\000\000\000\010\000\000\000\000\001\000' | dd of=a bs=1 seek=446 conv=notrunc status=none
printf '\125\252' | dd of=a bs=1 seek=510 conv=notrunc status=none
says "$T/a contains a partition table of type 'dos'" zpool create -m none q "$T/a"

# What is rarely meant.
disk large 400M; disk c
says "mirror contains devices of different sizes" zpool create -m none q mirror "$T/c" "$T/large"
fails 1 zpool create -m none q mirror "$T/c" "$T/large"
mkdir -p full/x
says "exists and is not empty" zpool create -m "$T/full" q "$T/c"
fails 1 zpool create -m "$T/full" q "$T/c"
ok zpool create -m none -o ashift=12 -o cachefile="$T/cf" q "$T/c"
is "$(zpool get -H -o value,source ashift,cachefile q | tr '\t\n' '  ')" "12 local $T/cf local " "properties of the creation"
[ -s cf ] || differs "the cache file that was named is missing"
ok zpool destroy q
[ ! -e cf ] || differs "the cache file stays behind the last pool"
