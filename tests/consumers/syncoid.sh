#!/usr/bin/env bash
# syncoid replicates: first whole, then increments, one file system and trees, within a pool and to another one, with snapshots of its own
# and without, and goes on after it was killed in the middle.
. "$(dirname "$0")/lib.sh"
has getfattr:attr pv:pv mbuffer:mbuffer lzop:lzop /usr/share/perl5/Config/IniFiles.pm:libconfig-inifiles-perl
has /usr/share/perl5/Capture/Tiny.pm:libcapture-tiny-perl
debs sanoid=2.1.0-1.1

pools tank backup
ok zfs create tank/src
ok zfs create tank/src/a
ok zfs create -o compression=zstd -o recordsize=16K tank/src/a/b
ok zfs create -V 16M tank/src/vol
fill() { head -c 3M /dev/urandom >"$1/$2" && mkdir "$1/dir-$2" && ln -s "$2" "$1/dir-$2/link" && setfattr -n user.of -v "$2" "$1/$2"; }
for fs in '' /a /a/b; do fill "/tank/src$fs" one; done
# What is in a file system, without those below it: names, modes, owners, sizes, links, attributes and sums.
content() {
    (
        cd "/$1" || exit
        find . -xdev ! -type d -printf '%p %y %m %u %g %s %l %n %T@\n' | sort
        find . -xdev -type d -printf '%p %y %m %u %g\n' | sort
        find . -xdev -type f -exec md5sum {} + | sort
        find . -xdev -exec getfattr -dhm- {} + | sort
    )
}
same() { is "$(diff <(content "$1") <(content "$2"))" '' "/$2 beside /$1"; }
count() { zfs list -H -t snapshot -o name -r "$1" | wc -l; }
guids() { zfs list -H -t snapshot -o name,guid -r "$1" | sed "s|^$1||"; }

for target in tank/copy backup/copy; do
    runs full syncoid "tank/src/a" "$target"
    same tank/src/a "$target"
    fill /tank/src/a "for-${target%/*}"
    ok zfs snapshot "tank/src/a@own-${target%/*}"
    runs increment syncoid "tank/src/a" "$target"
    same tank/src/a "$target"
    is "$(zfs list -H -t snapshot -o name "$target" | grep -c @syncoid)" 1 "snapshots of syncoid's at $target"
    is "$(zfs list -H -t snapshot -o name "$target" | grep -c @own)" "$([ "$target" = tank/copy ] && echo 1 || echo 2)" "others there"
done

# A tree, with its own snapshots only.
ok zfs snapshot -r tank/src@first
runs tree syncoid --recursive --no-sync-snap tank/src backup/tree
for fs in '' /a /a/b; do same "tank/src$fs" "backup/tree$fs"; fill "/tank/src$fs" two; done
ok zfs snapshot -r tank/src@second
ok zfs destroy tank/src/a/b@first
runs tree2 syncoid --recursive --no-sync-snap --create-bookmark tank/src backup/tree
for fs in '' /a; do same "tank/src$fs" "backup/tree$fs"; done
is "$(zfs list -H -t snapshot -o name -r backup/tree | grep -c second)" 3 "snapshots @second in the tree"
is "$(guids backup/tree/vol)" "$(guids tank/src/vol)" "snapshots of the volume"
