#!/usr/bin/env bash
# A redacted file system was mounted by an import, as if it were complete. A real kernel mounts it only by its name, with -f.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER

disk d
ok zpool create -m "$T/p" p "$T/d"
ok zfs create p/a
echo secret >p/a/f
ok zfs snapshot p/a@s
ok zfs clone p/a@s p/c
rm p/c/f
ok zfs snapshot p/c@t
ok zfs redact p/a@s book p/c@t
zfs send --redact book p/a@s >stream
zfs receive p/red <stream || differs "the stream is refused"
ok zpool export p
ok zpool import -d "$T" p
is "$(zfs get -H -o value mounted p/a p/c p/red | tr '\n' ' ')" "yes yes no " "what is mounted"
whole="cannot mount 'p/red': Dataset is not complete, was created by receiving a redacted zfs send stream."
says "$whole" zfs mount p/red
fails 1 zfs mount p/red
fails 1 zfs mount -o ro p/red
ok zfs mount -a
is "$(zfs get -H -o value mounted p/red)" no "mounted with all"
ok zfs mount -f p/red
is "$(zfs get -H -o value mounted p/red)" yes "mounted by name"
