#!/usr/bin/env bash
# A raw stream of a clone was received onto its origin after the origin's key had been changed. The received wrapping restored the old
# key. The key that its root named did not open the origin any more.
. "$(dirname "$0")/lib.sh"

disk d
echo one12345 >k1
echo two12345 >k2
chmod 600 k1 k2
ok zpool create -m none p "$T/d"
ok zfs create -o encryption=on -o keyformat=passphrase -o keylocation="file://$T/k1" p/r
ok zfs snapshot p/r@1
ok zuse --key "$T/k1" zfs clone p/r@1 p/c
ok zfs snapshot p/c@2
zfs send -w -i p/r@1 p/c@2 >clone.zs || differs "send"
ok zuse --key "$T/k1" zfs change-key -o keylocation="file://$T/k2" p/r
ok zfs load-key -n p/r
zfs receive -o origin=p/r@1 p/got <clone.zs || differs "receive"
for dataset in p/c p/got; do
    is "$(zfs get -H -o value encryptionroot $dataset)" p/r "the root of $dataset"
done
ok zpool export p
ok zpool import -d "$T/d" p
ok zfs load-key -n p/r
ok zfs load-key -n -L "file://$T/k2" p/r
fails 255 zfs load-key -n -L "file://$T/k1" p/r
