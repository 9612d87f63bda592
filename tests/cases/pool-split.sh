#!/usr/bin/env bash
# A pool of mirrors is split in two. A vdev uses the space that its devices have gained.
. "$(dirname "$0")/lib.sh"
for d in a b c d e; do disk $d 96M; done
ok zpool create -m none tank mirror "$T/a" "$T/b" mirror "$T/c" "$T/d" log "$T/e"
ok zfs create -o mountpoint=none tank/fs
head -c 3000000 /dev/urandom >file
ok zuse cp file tank/fs:/file
is "$(zpool split -n tank half "$T/a" | sed "s,$T,,")" "would create 'half' with the following layout:

	half
	  /a
	  /d" "a dry run"
says "Unable to split tank: pool already exists" zpool split tank tank
says "Unable to split tank: name is reserved" zpool split tank mirror
says "Device list must include at most one disk from each mirror" zpool split tank half "$T/a" "$T/b"
says "Device list must include at most one disk from each mirror" zpool split tank half "$T/e"
says "cannot resolve path '$T/none'" zpool split tank half "$T/none"
fails 2 zpool split tank
ok zpool split -o comment=hello tank half
status=$(zpool status tank | sed "s,$T,,")
for line in "	  /a  " "	  /c  " "	  /e  "; do
    case $status in *"$line"*) ;; *) differs "'$line' is missing in $status" ;; esac
done
silent mirror zpool status tank
ok zpool import -d "$T" half
is "$(zpool get -Ho value comment half)" hello "the new pool's comment"
for pool in tank half; do
    is "$(zuse cat $pool/fs:/file | sha256sum)" "$(sha256sum <file)" "the file in $pool"
    says "No leaks" zdb -bcc $pool
done
silent logs zpool status half
says "Source pool must be composed only of mirrors" zpool split half third

# Room that comes with larger devices.
before=$(zpool list -Hpo size half)
is "$(zpool list -Ho expandsize half)" "-" "nothing to grow by"
truncate -s 160M "$T/b"
ok zpool reopen half
is "$(zpool list -Ho expandsize half)" 64M "what the pool could grow by"
is "$(zpool list -Hpv half | awk -v b="$T/b" '$1 == b { print $6 }')" $((4 << 24)) "what its device has"
ok zpool online -e half "$T/b"
is "$(zpool list -Hpo size half)" $((before + (4 << 24))) "four metaslabs more"
ok zpool set autoexpand=on half
truncate -s 160M "$T/d"
ok zpool reopen half
is "$(zpool list -Hpo size half)" $((before + (8 << 24))) "as many on the other"
ok zuse cp file half/fs:/again
ok zpool export half
ok zpool import -d "$T" half
is "$(zuse cat half/fs:/again | sha256sum)" "$(sha256sum <file)" "what was written then"
says "No leaks" zdb -bcc half
