#!/usr/bin/env bash
# The expected size of a stream is printed without the key of an encrypted dataset, as by OpenZFS. The stream itself needs the key, and a
# package with its properties can only be sent raw.
. "$(dirname "$0")/lib.sh"

disk d
printf '%s' 0123456789abcdef0123456789abcdef >key
chmod 600 key
ok zpool create -O mountpoint=none tank "$T/d"
ok zfs create -o encryption=on -o keyformat=raw -o keylocation="file://$T/key" tank/enc
for i in 1 2 3; do ok zfs snapshot tank/enc@s$i; done
ask() { for how in '-vnP -I tank/enc@s1' '-nvP' '-nP -i @s2'; do zuse --key key zfs send $how tank/enc@s3; done; }
with=$(ask 2>&1)
ask() { for how in '-vnP -I tank/enc@s1' '-nvP' '-nP -i @s2'; do zfs send $how tank/enc@s3; done; }
is "$(ask 2>&1)" "$with" "sizes without the key"
is "$(grep -c '^size' <<<"$with")" 3 "sizes"
says 'incremental	s1	tank/enc@s2	624' zfs send -vnP -I tank/enc@s1 tank/enc@s3
says "cannot send 'tank/enc@s3': dataset key must be loaded" zfs send tank/enc@s3
says 'encrypted dataset tank/enc may not be sent with properties without the raw flag' zfs send -R tank/enc@s3
fails 1 zfs send -R tank/enc@s3
ok zpool export tank
