#!/usr/bin/env bash
# chattr(1), lsattr(1) and the project id of a file were "not supported" on a mount.
. "$(dirname "$0")/lib.sh"

disk d
ok zpool create -m none p "$T/d"
# The pool's own file system, made before the pool had features, counted no projects.
mkdir own
ok zuse mount p own
echo x >own/f
ok chattr -p 7 own/f
is "$(lsattr -p own/f | awk '{ print $1 }')" 7 "a project in the pool's own file system"
ok zuse umount p
ok zfs create p/a
mkdir m
ok zuse mount p/a m
echo x >m/f
mkdir m/dir
flags() { lsattr -d "$1" 2>&1 | awk '{ print $1 }' | tr -d -; }
ok chattr +i m/f
is "$(flags m/f)" i "immutable"
fails 2 sh -c 'echo y >>m/f'
fails 1 rm m/f
ok chattr -i m/f
ok chattr +a m/f
fails 2 sh -c 'echo y >m/f'
ok sh -c 'echo y >>m/f'
ok chattr -a +d m/f
is "$(flags m/f)" d "no dump"
fails 1 chattr +c m/f
ok chattr -p 7 m/f
is "$(lsattr -p m/f | awk '{ print $1 }')" 7 "project"
ok chattr -p 9 +P m/dir
echo z >m/dir/below
is "$(lsattr -p m/dir/below | awk '{ print $1 }')" 9 "an inherited project"
case "$(lsattr -v m/f | awk '{ print $1 }')" in '' | *[!0-9]*) differs "no version: $(lsattr -v m/f)" ;; esac
ok zuse umount p/a
ok zuse mount p/a m
is "$(flags m/f) $(lsattr -p m/f | awk '{ print $1 }')" "d 7" "after a new mount"
ok zuse umount p/a
