#!/usr/bin/env bash
# A clone below its encryption root could not be promoted if its origin was outside. The message was "the clone and its origin inherit
# keys of different encryption roots". OpenZFS 2.3 promotes it twice along the chain; these are the roots that it showed after each step.
. "$(dirname "$0")/lib.sh"

disk d
echo one12345 >key
chmod 600 key
mkdir m
ok zpool create -m none p "$T/d"
ok zuse mount p "$T/m"
ok zfs create -o encryption=on -o keyformat=passphrase -o keylocation="file://$T/key" p/r
zfs load-key p/r >/dev/null 2>&1
ok zfs create p/r/child
ok zfs snapshot -r p/r@1
ok zfs clone p/r@1 p/c1
ok zfs snapshot p/c1@2
ok zfs clone p/c1@2 p/r/c2
roots() { zfs list -H -r -o name,origin,encryptionroot p | tr '\t\n' ' ;'; }
ok zfs promote p/r/c2
is "$(roots)" "p - -;p/c1 p/r/c2@2 p/r;p/r - p/r;p/r/c2 p/r@1 p/r;p/r/child - p/r;" "the roots after one promotion"
ok zfs promote p/r/c2
is "$(roots)" "p - -;p/c1 p/r/c2@2 p/r/c2;p/r p/r/c2@1 p/r/c2;p/r/c2 - p/r/c2;p/r/child - p/r/c2;" "the roots after the second"
ok zuse umount "$T/m"
for name in p/r p/r/c2 p/c1 p/r/child; do ok zuse --key "$T/key" ls $name:/; done
