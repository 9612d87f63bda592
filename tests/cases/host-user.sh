#!/usr/bin/env bash
# A user who is not root has hosts as well. Datasets are mounted in the user's own directories, children inside their parents' mounts.
# Elsewhere they are left unmounted, and a message says why and what to do.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER

mkdir u
chown nobody:nogroup u
as() { setpriv --reuid nobody --regid nogroup --clear-groups env HOME="$T/u" XDG_STATE_HOME="$T/u/.s" XDG_RUNTIME_DIR= "$@"; }
ok as zpool create -m "$T/u/p" p "$T/u/d" --size 128M
ok as zfs create p/a
is "$(mounts)" "p $T/u/p" "mounts of a user"
is "$(as sh -c "echo hi >$T/u/p/a/f; cat $T/u/p/a/f")" hi "the child inside"
is "$(as zfs get -H -o value mounted p/a)" yes "mounted"
ok as zfs create -u p/b
is "$(as zfs get -H -o value mounted p/b)" no "create -u"
ok as zfs mount -a
is "$(as zfs get -H -o value mounted p/b)" yes "mount -a"
is "$(mounts)" "p $T/u/p" "it lies inside its parent's mount"
fails 1 as zfs destroy -r p/c
mkdir not-theirs
says "'$T' is not yours" as zfs set mountpoint="$T/q" p
is "$(mounts)" "" "a directory of somebody else"
ok as zfs set mountpoint="$T/u/q" p
is "$(mounts)" "p $T/u/q" "back in a directory of theirs"
ok as zpool export p
gone
is "$(hosts)" "" "after the export"
says "is not mounted on '/p2'" as zpool create p2 "$T/u/d2" --size 128M
ok as zpool export p2
# Another user finds nothing there.
fails 1 zfs list p
