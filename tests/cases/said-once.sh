#!/usr/bin/env bash
# Hints that misled. A full folder for unpacking was "a device that fails". A mount in use was said to be so three times. A device that
# was named twice was "in use by another process". The holder of a device was not named.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER
for d in a b; do disk $d; done
ln b hard
ln -s b soft
for twice in "b b" "mirror b b" "b hard" "mirror b soft" "b log soft"; do
    # shellcheck disable=SC2086
    is "$(zpool create z $twice 2>&1)" "cannot create 'z': one or more vdevs refer to the same device" "create z $twice"
done
ok zpool create -O mountpoint=none tank "$T/a"
for twice in "b b" "log mirror b soft" "cache b hard"; do
    # shellcheck disable=SC2086
    is "$(zpool add -f tank $twice 2>&1)" "cannot add to 'tank': one or more vdevs refer to the same device" "add $twice"
done

# No room for what a stream unpacks to.
ok zfs create tank/s
head -c 1M /dev/urandom >f
ok zuse cp f tank/s:/
ok zfs snapshot tank/s@1
zfs send tank/s@1 >stream
mkdir tiny
mount -t tmpfs -o size=64k tmpfs tiny
is "$(TMPDIR=$T/tiny zuse stream ls stream 2>&1)" "cannot read stream: no room in '$T/tiny' to unpack it
--tmp DIR unpacks it elsewhere" "a full folder"
is "$(zuse stream ls --tmp . stream)" f "another one"

# A mount that a process of another user's is in.
ok zfs create -o mountpoint="$T/m" tank/m
(cd m && exec sleep 60) &
for _ in $(seq 100); do [ "$(readlink "/proc/$!/cwd")" != "$T/m" ] || break; sleep 0.05; done
for command in "export" "destroy"; do
    said=$(zpool $command tank 2>&1)
    is "$(grep -c 'cannot unmount' <<<"$said")" 1 "how often $command says it: $said"
    is "$(head -n 1 <<<"$said")" "cannot unmount '$T/m': pool or dataset is busy" "what $command says first"
done
is "$(zfs unmount tank/m 2>&1 | grep -c 'cannot unmount')" 1 "how often unmount says it"
kill %1
wait
# The caller's own directory is in the mount.
for command in "zpool export tank" "zpool destroy tank" "zfs unmount tank/m"; do
    said=$(cd m && $command 2>&1)
    is "$(grep -o 'cannot unmount' <<<"$said" | wc -l)" 1 "how often '$command' says it: $said"
done

# The same without a host, where the mount's own process has the pool.
ok zpool export tank
export ZUSE_HOST_LINGER=0
ok zpool import -N -d . tank
ok zfs mount tank/m
said=$(cd m && zpool export tank 2>&1)
is "$(grep -o 'cannot unmount' <<<"$said" | wc -l)" 1 "how often it is said without a host: $said"

# Who holds it.
ok zpool export tank
mkdir n
zuse --in a mount tank/s n &
for _ in $(seq 100); do mountpoint -q n && break; sleep 0.1; done
said=$(XDG_STATE_HOME=$T/other zpool import -d a tank 2>&1)
is "$(head -n 1 <<<"$said" | sed 's/process [0-9]* /process N /')" "cannot import 'tank': $T/a is in use by process N ('zuse')" "a pool that another process has"
umount n
wait
