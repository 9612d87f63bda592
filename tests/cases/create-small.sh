#!/bin/bash
# Small refusals and messages of `zfs create`, `get`, `rename`, `upgrade`: volumes with a key of their own, owners' limits, dry runs.
. "$(dirname "$0")/lib.sh"

disk d0
ok zpool create -f -O mountpoint="$T/m" tank "$T/d0"
ok zfs create tank/c

echo password >key
for location in prompt "file://$T/key"; do
    zfs create -V 16M -o encryption=on -o keyformat=passphrase -o keylocation="$location" tank/v <<<password || differs "$location $?"
    is "$(zfs get -H -o value encryptionroot tank/v)" tank/v "root with $location"
    ok zfs destroy tank/v
done

is "$(zfs get -H -o property userquota@root tank/c)" userquota@root "an owner by name"
is "$(zfs get -H -o property userquota@0 tank/c)" userquota@0 "an owner by number"
ok zfs create -o userquota@0=1M tank/u
is "$(zfs get -Hp -o value userquota@0 tank/u)" 1048576 "a limit given at creation"
fails 1 zfs create -o userused@0=1M tank/w
fails 1 zfs list tank/w
ok zfs get -Hpp used tank
ok zfs get -HrH used tank
is "$(zfs create -n tank/n)" "" "words of a dry run without -v"
says "would create tank/n" zfs create -nv tank/n
says "cannot verify 'tank/n': invalid property 'foo'" zfs create -n -o foo=bar tank/n
fails 1 zfs create -n -o foo=bar tank/n
fails 1 zfs create -o utf8only=off -o normalization=formC tank/x
ok zfs create -o utf8only=on -o normalization=formC tank/x
ok zfs snapshot tank/c@1
ok zfs rename tank/c@1 new
is "$(zfs list -H -o name -t snapshot)" tank/c@new "a snapshot's new name alone"
ok zfs create -o version=4 tank/v4
ok zfs mount tank/v4
echo old >"$T/m/v4/f"
says "1 filesystems upgraded" zfs upgrade tank/v4
is "$(zfs get -H -o value version tank/v4)" 5 "version of what was mounted"
is "$(cat "$T/m/v4/f")" old "a file over the upgrade"
echo new >"$T/m/v4/g"
zfs send tank/c@new >s
fails 1 sh -c 'zfs receive -u -x normalization tank/q <s'
fails 1 sh -c 'zfs receive -u -o utf8only=on tank/q <s'
ok sh -c 'zfs receive -u -x compression tank/q <s'
zfs unmount -a
zpool destroy tank
