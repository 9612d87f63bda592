#!/usr/bin/env bash
# What `zfs receive` may not set or exclude: properties on which the data depends, and the encryption of an increment, which is that of
# its dataset. Both were accepted without a message.
. "$(dirname "$0")/lib.sh"
disk a
ok zpool create p "$T/a"
ok zfs create p/a
ok zfs snapshot p/a@1
ok zfs snapshot p/a@2
zfs send p/a@1 >full && zfs send -i @1 p/a@2 >more && zfs send -R p/a@2 >all
echo 12345678 >key
chmod 600 key
secret=(-o encryption=on -o keyformat=passphrase -o "keylocation=file://$T/key")
for name in normalization casesensitivity utf8only volblocksize version volsize; do
    out=$(zfs receive -x "$name" p/x <full 2>&1) && differs "-x $name is taken"
    grep -qF "$name" <<<"$out" || differs "-x $name: $out"
done
zfs receive -o normalization=formC p/x <full 2>/dev/null && differs "-o normalization is taken"
is "$(zfs list -H -o name -r p | tr '\n' ' ')" "p p/a " "what is there"
zfs receive "${secret[@]}" p/e <full || differs "a new encryption root"
is "$(zfs get -H -o value encryptionroot p/e)" p/e "the root"
for set in encryption=on encryption=off "keylocation=file://$T/key" pbkdf2iters=200000; do
    out=$(zfs receive -o "$set" p/e <more 2>&1) && differs "-o $set is taken with an incremental stream"
    grep -qF "encryption property '${set%%=*}' cannot be set for incremental streams" <<<"$out" || differs "-o $set: $out"
done
zfs receive --key "$T/key" p/e <more || differs "the incremental stream itself"
is "$(zfs get -H -o value encryption p/e@2)" aes-256-gcm "what it is encrypted with"
zfs receive "${secret[@]}" p/all <all || differs "a package that begins in full"
is "$(zfs list -H -t snapshot -o name -r p/all | tr '\n' ' ')" "p/all@1 p/all@2 " "all of it"
is "$(zfs get -H -o value encryptionroot p/all)" p/all "its root"
