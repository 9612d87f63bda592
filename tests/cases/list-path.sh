#!/usr/bin/env bash
# `zfs list` and `zfs get` took a path for a name. Commands for pools that different processes hold were refused.
. "$(dirname "$0")/lib.sh"

disk d
disk e
ok zpool create -O mountpoint="$T/m" p "$T/d"
ok zpool create -O mountpoint="$T/n" q "$T/e"
ok zfs create p/a
ok zfs create p/a/b
ok zfs mount p
ok zfs mount q
mkdir m/a/b/dir
is "$(zfs list -H -o name "$T/m")" p "the root"
is "$(zfs list -H -o name "$T/m/a/b/dir")" p/a/b "below a child"
is "$(cd m/a && zfs get -H -o name,value type .)" "p/a	filesystem" "the working directory"
is "$(zfs list -H -o name "$T/n" "$T/m/a" | tr '\n' ' ')" "p/a q " "two of them"
fails 1 zfs list "$T"
# A project's places are paths, and a dataset's name is none, wherever one stands.
echo x >m/a/b/dir/f
ok zfs project -p 5 -s -r "$T/m/a/b/dir"
is "$(cd m/a/b && zfs project dir "$T/m/a/b/dir/f")" "    5 P dir
    5 P dir/f
    5 P $T/m/a/b/dir/f" "projects by paths"
fails 255 zfs project "$T"
says 'Inappropriate ioctl' zfs project "$T"
mkdir -p w/p/a
is "$(cd w && zfs unmount p/a 2>&1)" "" "unmount by name beside a directory of that name"
fails 1 zfs unmount "$T/m/a"
says 'not a mountpoint' zfs unmount "$T/m/a"
ok zfs mount p/a
says 'not a ZFS filesystem' zfs list "$T"
ok zfs set atime=off p q
is "$(zfs get -H -o value atime p q | tr '\n' ' ')" "off off " "set of two pools"
ok zfs inherit atime p/a q
ok zfs snapshot p@s
ok zfs snapshot q@s
ok zfs hold tag p@s q@s
ok zfs release tag p@s q@s
ok zpool history p q
ok zuse umount p
ok zuse umount q
ok zpool export p q
is "$(zpool list -H)" "" "what is left"
