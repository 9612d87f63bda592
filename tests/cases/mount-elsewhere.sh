#!/usr/bin/env bash
# A container that starts while a mount exists gets a copy of it in its own mount namespace. `zuse umount` waited for its end, and after
# umount(8) the dataset counted as mounted.
. "$(dirname "$0")/lib.sh"

disk d
ok zpool create -m none p "$T/d"
mkdir m
ok zuse mount -o writeback p m
unshare --mount --propagation private sh -c 'exec sleep 60' &
sleep 0.5
echo kept >m/f
says 'had a copy of' timeout 20 zuse umount m
ok timeout 10 zpool export p
kill %1
ok zpool import -d "$T/d" p
is "$(zuse cat p:/f)" kept "what was written before"

ok zuse mount p m
unshare --mount --propagation private sh -c 'exec sleep 60' &
sleep 0.5
ok umount m
ok timeout 20 zuse mount p m
is "$(cat m/f)" kept "after it was mounted again"
ok zuse umount p
kill %2
ok zpool export p
