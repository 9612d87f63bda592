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
    sleep 1.1 # its snapshots are named by the second
    runs full syncoid tank/src/a "$target"
    same tank/src/a "$target"
    fill /tank/src/a "for-${target%/*}"
    ok zfs snapshot "tank/src/a@own-${target%/*}"
    sleep 1.1
    runs increment syncoid tank/src/a "$target"
    same tank/src/a "$target"
    is "$(zfs list -H -t snapshot -o name "$target" | grep -c @syncoid)" 1 "snapshots of syncoid's at $target"
    is "$(zfs list -H -t snapshot -o name "$target" | grep -c @own)" "$([ "$target" = tank/copy ] && echo 1 || echo 2)" "others there"
done

# A tree, with its own snapshots only.
ok zfs snapshot -r tank/src@first
runs tree syncoid --recursive --no-sync-snap tank/src backup/tree
for fs in '' /a /a/b; do same "tank/src$fs" "backup/tree$fs"; fill "/tank/src$fs" two; done
ok zfs snapshot -r tank/src@second
runs tree2 syncoid --recursive --no-sync-snap --create-bookmark tank/src backup/tree
for fs in '' /a /a/b; do same "tank/src$fs" "backup/tree$fs"; done
is "$(zfs list -H -t snapshot -o name -r backup/tree | grep -c second)" 4 "snapshots @second in the tree"
is "$(guids backup/tree/vol)" "$(guids tank/src/vol)" "snapshots of the volume"
is "$(zfs list -H -t bookmark -o name -r tank/src | wc -l)" 4 "bookmarks"
# The common snapshot is gone at the source: the bookmark stands for it.
for fs in '' /a /a/b /vol; do ok zfs destroy "tank/src$fs@second"; done
fill /tank/src/a three
ok zfs snapshot -r tank/src@third
runs tree3 syncoid --recursive --no-sync-snap tank/src backup/tree
for fs in '' /a /a/b; do same "tank/src$fs" "backup/tree$fs"; done
is "$(grep -c '#second' tree3.out)" 0 "names of bookmarks in what is said"

# What was changed there is rolled back.
echo changed >/backup/tree/a/one
fill /tank/src/a four
ok zfs snapshot tank/src/a@fourth
runs rolled syncoid --no-sync-snap tank/src/a backup/tree/a
same tank/src/a backup/tree/a

# Killed in the middle, it goes on where it was.
ok zfs create -o compression=off tank/large
head -c 48M /dev/urandom >/tank/large/file
ok zfs snapshot tank/large@one
syncoid --no-sync-snap --source-bwlimit=4M tank/large backup/large >killed.out 2>&1 </dev/null &
for _ in $(seq 50); do
    sleep 0.2
    [ "$(zfs get -H -p -o value used backup/large 2>/dev/null || echo 0)" -lt 9000000 ] || break
done
pkill -KILL -P $!
pkill -KILL mbuffer
wait 2>/dev/null
token=$(zfs get -H -o value receive_resume_token backup/large)
[ "${#token}" -gt 20 ] || differs "no token after the kill: '$token'"
runs resumed syncoid --no-sync-snap tank/large backup/large
says 'Resuming interrupted zfs send/receive from tank/large to backup/large' cat resumed.out
same tank/large backup/large
is "$(zfs get -H -o value receive_resume_token backup/large)" - "the token afterwards"
runs again syncoid --no-sync-snap tank/large backup/large
is "$(zfs get -H -o value guid backup/large@one)" "$(zfs get -H -o value guid tank/large@one)" "guid of the snapshot"

for pool in tank backup; do ok zpool export "$pool"; done
ended tank backup
