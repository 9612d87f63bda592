#!/usr/bin/env bash
# Devices of an imported pool are attached, replaced, taken offline and online again. Operations that are not allowed are refused in
# OpenZFS's words.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER

for d in a b c d e; do disk $d 128M; done
disk small 65M
ok zpool create -m "$T/p" p "$T/a"
head -c 5000000 /dev/urandom >p/r
ok cp p/r r
tree() { zpool status "$@" p | awk '/NAME/ { on = 1; next } !NF { on = 0 } on { printf "%s%s %s", sep, $1, $2; sep = ", " } END { print "" }' | sed "s,$T/,,g"; }

says "cannot attach $T/b to $T/zz: no such device in pool" zpool attach p "$T/zz" "$T/b"
says "device is too small" zpool attach p "$T/a" "$T/small"
says "$T/a is busy" zpool attach -f p "$T/a" "$T/a"
says "cannot resolve path '$T/nothing'" zpool attach p "$T/a" "$T/nothing"
fails 255 zpool detach p "$T/a"
fails 255 zpool attach p "$T/zz" "$T/b"
fails 255 zpool replace p "$T/a" "$T/small"
says "cannot detach $T/a: only applicable to mirror and replacing vdevs" zpool detach p "$T/a"
says "cannot offline $T/a: no valid replicas" zpool offline p "$T/a"
says "cannot offline zz: no such device in pool" zpool offline p zz

ok zpool attach -w p "$T/a" "$T/b"
is "$(tree)" "p ONLINE, mirror-0 ONLINE, a ONLINE, b ONLINE" "a mirror"
says "with 0 errors on" zpool status p
ok zpool offline p "$T/a"
is "$(tree)" "p DEGRADED, mirror-0 DEGRADED, a OFFLINE, b ONLINE" "one half is offline"
size=$(zpool list -Hvpo name,size p | awk -v d="$T/a" '$1 == d { print $2 }')
is "$size" "$(stat -c %s a)" "its size stays known as long as the pool is imported"
says "status: One or more devices has been taken offline by the administrator." zpool status p
says "cannot offline $T/b: no valid replicas" zpool offline p "$T/b"
head -c 3000000 /dev/urandom >p/s
ok cp p/s s
ok zpool online p "$T/a"
ok zpool wait -t resilver p
is "$(tree)" "p ONLINE, mirror-0 ONLINE, a ONLINE, b ONLINE" "both halves"

ok zuse tunables -o zfs_scan_suspend_progress=1 p
ok zpool replace p "$T/a" "$T/c"
# It waits as long as the resilver does not go on.
fails 124 timeout 3 zpool wait -t replace p
is "$(tree)" "p ONLINE, mirror-0 ONLINE, replacing-0 ONLINE, a ONLINE, c ONLINE, b ONLINE" "one half is being replaced"
ok zuse tunables -o zfs_scan_suspend_progress=0 p
ok zpool wait -t replace p
is "$(tree)" "p ONLINE, mirror-0 ONLINE, c ONLINE, b ONLINE" "one half was replaced"
ok zpool detach p "$T/b"
is "$(tree)" "p ONLINE, c ONLINE" "the new half alone"
ok cmp p/r r
ok cmp p/s s
# By itself: the file is another one.
ok zpool attach -w p "$T/c" "$T/d"
ok zpool offline -f p "$T/c"
is "$(tree)" "p DEGRADED, mirror-0 DEGRADED, c FAULTED, d ONLINE" "one half is faulted"
rm "$T/c"
disk c 128M
ok zpool replace -w p "$T/c"
is "$(tree)" "p ONLINE, mirror-0 ONLINE, c ONLINE, d ONLINE" "replaced by itself"
ok zpool sync p
kill -9 "$(hosts)"
sleep 0.3
is "$(tree)" "p ONLINE, mirror-0 ONLINE, c ONLINE, d ONLINE" "after the host was killed"
ok cmp p/r r
ok zpool export p
gone
