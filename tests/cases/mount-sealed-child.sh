#!/usr/bin/env bash
# In the place of an encrypted dataset without its key there was an ordinary directory. Files written there were stored in the dataset
# above, not encrypted.
. "$(dirname "$0")/lib.sh"

disk d
head -c 32 /dev/urandom >key
ok zpool create -O mountpoint="$T/m" p "$T/d"
ok zfs mount p
ok zfs create -o encryption=on -o keyformat=raw -o keylocation="file://$T/key" p/enc
ok zfs create p/enc/child
echo secret >m/enc/f
ok zpool export p
ok zpool import -d "$T" p
ok zfs mount p
is "$(zfs get -H -o value keystatus p/enc)" unavailable "the key"
fails 1 bash -c "echo leak >$T/m/enc/leak"
fails 1 mkdir m/enc/child/leak
fails 1 rmdir m/enc
fails 1 mv m/enc m/other
is "$(ls -A m/enc)" child "what is seen of it"
echo beside >m/beside
ok zfs load-key p/enc
ok zfs mount p/enc
is "$(cat m/enc/f)" secret "the file in it"
ok test ! -e m/enc/leak
echo more >m/enc/more
ok zfs unmount p/enc
ok zfs unload-key p/enc
fails 1 bash -c "echo leak >$T/m/enc/leak"
ok zfs load-key p/enc
ok zfs mount p/enc
is "$(cat m/enc/more)" more "a file from before the key went"
