#!/usr/bin/env bash
# syncoid replicates: first a full stream, then increments. It replicates one file system and trees, within a pool and to another one,
# with and without snapshots of its own. It continues after it was killed in the middle.
. "$(dirname "$0")/lib.sh"
has getfattr:attr pv:pv mbuffer:mbuffer lzop:lzop /usr/share/perl5/Config/IniFiles.pm:libconfig-inifiles-perl
has /usr/share/perl5/Capture/Tiny.pm:libcapture-tiny-perl
debs sanoid=2.1.0-1.1

pools ztank zbackup
ok zfs create ztank/src
ok zfs create ztank/src/a
ok zfs create -o compression=zstd -o recordsize=16K ztank/src/a/b
ok zfs create -V 16M ztank/src/vol
fill() { head -c 3M /dev/urandom >"$1/$2" && mkdir "$1/dir-$2" && ln -s "$2" "$1/dir-$2/link" && setfattr -n user.of -v "$2" "$1/$2"; }
for fs in '' /a /a/b; do fill "/ztank/src$fs" one; done
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

for target in ztank/copy zbackup/copy; do
    sleep 1.1 # its snapshots are named by the second
    runs full syncoid ztank/src/a "$target"
    same ztank/src/a "$target"
    fill /ztank/src/a "for-${target%/*}"
    ok zfs snapshot "ztank/src/a@own-${target%/*}"
    sleep 1.1
    runs increment syncoid ztank/src/a "$target"
    same ztank/src/a "$target"
    is "$(zfs list -H -t snapshot -o name "$target" | grep -c @syncoid)" 1 "snapshots of syncoid's at $target"
    is "$(zfs list -H -t snapshot -o name "$target" | grep -c @own)" "$([ "$target" = ztank/copy ] && echo 1 || echo 2)" "others there"
done

# A tree, with its own snapshots only.
ok zfs snapshot -r ztank/src@first
runs tree syncoid --recursive --no-sync-snap ztank/src zbackup/tree
for fs in '' /a /a/b; do same "ztank/src$fs" "zbackup/tree$fs"; fill "/ztank/src$fs" two; done
ok zfs snapshot -r ztank/src@second
runs tree2 syncoid --recursive --no-sync-snap --create-bookmark ztank/src zbackup/tree
for fs in '' /a /a/b; do same "ztank/src$fs" "zbackup/tree$fs"; done
is "$(zfs list -H -t snapshot -o name -r zbackup/tree | grep -c second)" 4 "snapshots @second in the tree"
is "$(guids zbackup/tree/vol)" "$(guids ztank/src/vol)" "snapshots of the volume"
is "$(zfs list -H -t bookmark -o name -r ztank/src | wc -l)" 4 "bookmarks"
# The common snapshot is gone at the source: the bookmark stands for it.
for fs in '' /a /a/b /vol; do ok zfs destroy "ztank/src$fs@second"; done
fill /ztank/src/a three
ok zfs snapshot -r ztank/src@third
runs tree3 syncoid --recursive --no-sync-snap ztank/src zbackup/tree
for fs in '' /a /a/b; do same "ztank/src$fs" "zbackup/tree$fs"; done
is "$(grep -c '#second' tree3.out)" 0 "names of bookmarks in what is said"

# What was changed there is rolled back.
echo changed >/zbackup/tree/a/one
fill /ztank/src/a four
ok zfs snapshot ztank/src/a@fourth
runs rolled syncoid --no-sync-snap ztank/src/a zbackup/tree/a
same ztank/src/a zbackup/tree/a

# Killed in the middle, it goes on where it was.
ok zfs create -o compression=off ztank/large
head -c 48M /dev/urandom >/ztank/large/file
ok zfs snapshot ztank/large@one
syncoid --no-sync-snap --source-bwlimit=4M ztank/large zbackup/large >killed.out 2>&1 </dev/null &
for _ in $(seq 50); do
    sleep 0.2
    [ "$(zfs get -H -p -o value used zbackup/large 2>/dev/null || echo 0)" -lt 9000000 ] || break
done
pkill -KILL -P $!
pkill -KILL mbuffer
wait 2>/dev/null
# The receiver hears of it at the end of its input, and syncoid looks for one that still runs.
for _ in $(seq 200); do pgrep -f 'zfs receive .*zbackup/large|zfs recv .*zbackup/large' >/dev/null || break; sleep 0.1; done
token=$(zfs get -H -o value receive_resume_token zbackup/large)
[ "${#token}" -gt 20 ] || differs "no token after the kill: '$token'"
runs resumed syncoid --no-sync-snap ztank/large zbackup/large
says 'Resuming interrupted zfs send/receive from ztank/large to zbackup/large' cat resumed.out
same ztank/large zbackup/large
is "$(zfs get -H -o value receive_resume_token zbackup/large)" - "the token afterwards"
runs again syncoid --no-sync-snap ztank/large zbackup/large
is "$(zfs get -H -o value guid zbackup/large@one)" "$(zfs get -H -o value guid ztank/large@one)" "guid of the snapshot"

for pool in ztank zbackup; do ok zpool export "$pool"; done
ended ztank zbackup
