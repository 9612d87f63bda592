#!/usr/bin/env bash
# An idle host woke up ten times a second, and visited each mount every second. Now it is notified: of an unmount, of a command, and of
# the removal of its socket. 'zpool create -R' mounted the pool without its alternate root.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER
disk a
ok zpool create -R "$T/alt" tank "$T/a"
ok zfs create tank/d
is "$(mounts | tr '\n' ' ')" "tank $T/alt/tank tank/d $T/alt/tank/d " "the mounts below the alternate root"
host=$(hosts)
# How often its threads were woken that used to look by the clock.
wakes() { grep -lE '^(zuse|zuse-socket)$' /proc/$host/task/*/comm | sed 's/comm$/status/' | xargs awk '/^voluntary/ { n += $2 } END { print n }'; }
sleep 0.5
before=$(wakes)
sleep 2
woken=$(($(wakes) - before))
[ "$woken" -le 2 ] || differs "the host was woken $woken times in 2 s at rest"

# What it hears of.
umount "$T/alt/tank/d"
for _ in $(seq 30); do [ "$(zfs get -Ho value mounted tank/d)" = yes ] || break; sleep 0.1; done
is "$(zfs get -Ho value mounted tank/d)" no "what others have unmounted"
ok zfs mount tank/d
echo there >"$T/alt/tank/d/f"
kill "$host"
for _ in $(seq 100); do [ -n "$(hosts)" ] || break; sleep 0.1; done
is "$(hosts)" '' "the host after a signal"
is "$(cat "$T/alt/tank/d/f" 2>/dev/null)" '' "the file without a host"
ok zfs list tank
is "$(cat "$T/alt/tank/d/f")" there "the file with the next host"
rm -r "$T/.own/state"
for _ in $(seq 100); do [ -n "$(hosts)" ] || break; sleep 0.1; done
is "$(hosts)" '' "the host whose directory is gone"
