#!/usr/bin/env bash
# Another process takes over a pool with a temporary name below an alternate root, and one that was imported read-only. It takes over the
# mount of a pool that is not imported, and the mounts of a user. These have children inside their parents' mounts, directories that are
# made up, and the closed place of a dataset without its key.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER

disk d
ok zuse --no-host zpool create -O canmount=noauto -m /m/p p "$T/d"
ok zuse --no-host zfs set canmount=on p
ok zuse --no-host zpool export p
ok zpool import -d "$T/d" -R "$T/alt" -t p q
echo x >alt/m/p/x
exec 7<alt/m/p/x
ok zuse tunables -o zfs_arc_max=64M q
ok zuse host restart q
is "$(zpool list -H -o name,altroot | xargs)" "q $T/alt" "name and alternate root"
is "$(cat <&7) $(zuse tunables -H -c name,value q | awk '$1 == "zfs_arc_max" { print $2 }')" "x 64M" "an open file, and a tunable"
exec 7<&-
ok zpool export q
ok zpool import -d "$T/d" -o readonly=on -R "$T/alt" p
ok zuse host restart p
is "$(zpool get -H -o value readonly p) $(cat alt/m/p/x)" "on x" "a pool that is read only"
(echo y >alt/m/p/y) 2>/dev/null && differs "it was written"
ok zpool export p

mkdir here
ZUSE_HOST_LINGER=0 ok zuse --in "$T/d" mount p "$T/here"
exec 7<here/x
ok zuse host restart p
is "$(cat <&7)" x "an open file of a pool that is not imported"
exec 7<&-
echo z >here/z
ok zuse umount here
gone
is "$(hosts)" "" "processes after it was unmounted"
is "$(zdb -l "$T/d" | awk '$1 == "state:" { print $2; exit }')" 1 "the pool is exported again"

mkdir u
chown nobody:nogroup u
as() { setpriv --reuid nobody --regid nogroup --clear-groups env HOME="$T/u" XDG_STATE_HOME="$T/u/.s" XDG_RUNTIME_DIR= "$@"; }
printf '%s' 0123456789abcdef0123456789abcdef >u/key
chmod 600 u/key
chown nobody u/key
ok as zpool create -m "$T/u/r" r "$T/u/d" --size 128M
ok as zfs create -o canmount=off r/off
ok as zfs create r/off/deep
ok as zfs create -o encryption=on -o keyformat=raw -o keylocation="file://$T/u/key" r/enc
as sh -c "echo one >$T/u/r/off/deep/one; echo two >$T/u/r/enc/two"
ok as zfs unmount r/enc
ok as zfs unload-key r/enc
as bash <<EOF || differs "what a user has open"
cd $T/u/r/off/deep && exec 7<$T/u/r/off 8<one || exit 1
was=\$(ls -id $T/u/r $T/u/r/* $T/u/r/off/*)
$ZUSE host restart r || exit 1
[ "\$(ls /proc/self/fd/7/) \$(cat <&8) \$(ls)" = "deep one one" ] || exit 1
[ "\$(ls -id $T/u/r $T/u/r/* $T/u/r/off/*)" = "\$was" ] || exit 1
touch $T/u/r/enc/no 2>/dev/null && exit 1
exit 0
EOF
ok as zfs load-key r/enc
ok as zfs mount r/enc
ok as zuse host restart r
is "$(as cat "$T/u/r/enc/two")" two "a key that was loaded since"
ok as zpool export r
