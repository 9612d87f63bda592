#!/usr/bin/env bash
# A command that needs a feature or version which the pool lacks is refused, as by a real kernel. Before, a dedup checksum was accepted,
# pruning reported success, and any word was accepted as a set of features.
. "$(dirname "$0")/lib.sh"
disk d 64M
ok zpool create -d -m none p "$T/d"
upgraded="pool and or dataset must be upgraded to set this property or value"
ok zfs set dedup=on p
for value in blake3 sha512 sha512,verify edonr,verify skein; do
    fails 255 zfs set dedup=$value p
    says "$upgraded" zfs set dedup=$value p
done
says "cannot prune dedup table on 'p': operation not supported on this type of pool" zpool ddtprune -d 1 p
fails 255 zpool ddtprune -d 1 p
fails 1 zpool set compatibility=nope p
is "$(zpool get -Ho value compatibility p)" off "the set of features"
ok zpool set compatibility=legacy p
ok zpool set compatibility=openzfs-2.2-linux p
ok zpool set compatibility=off p
ok zpool set feature@blake3=enabled p
ok zfs set dedup=blake3 p
disk o 64M
ok zpool create -o version=14 -m none o "$T/o"
says "o: can not be upgraded; the pool version needs to first be upgraded" zfs upgrade o
says "to version 24" zfs upgrade o
says "o: can not be downgraded; it is already at version 3" zfs upgrade -V 2 o
fails 1 zfs upgrade -V 2 o
says "invalid version 9" zfs upgrade -V 9 o
fails 2 zfs upgrade -V 9 o
