#!/bin/bash
# A pool in which OpenZFS had made a clone was opened read-only, because Zuse did not maintain the list of the clone's own blocks.
. "$(dirname "$0")/lib.sh"

ok "$CASES/../../scripts/unpack-golden" livelist "$T/g"
sum() { zuse cat "$1" | sha256sum | cut -c1-8; }
lists() { zdb -e -p "$T/g" -dddd kern 2>/dev/null | grep -c '^    Livelist: '; }
feature() { zpool get -H -o value feature@livelist kern; }
sound() {
    ok zpool export kern
    says "No leaks" zdb -e -p "$T/g" -bcc kern
    silent ERROR zdb -e -p "$T/g" -y kern
    is "$(lists)" "$1" "lists, $2"
    ok zpool import -N -d "$T/g" kern
}

ok zpool import -f -N -d "$T/g" kern
is "$(feature)" active "as it came"
is "$(sum kern/a:/big) $(sum kern/c:/big)" "5987779e 8ed1f195" "the bytes"
head -c 20000 /dev/urandom >x
head -c 9000 /dev/urandom >y
for file in x y; do
    ok zuse cp $file kern/c:/new
    ok zpool sync kern
done
sound 1 "the clone was written"
is "$(sum kern/c:/big) $(sum kern/c:/new)" "8ed1f195 $(sha256sum <y | cut -c1-8)" "the bytes after that"

ok zfs clone kern/a@s kern/n
ok zuse cp x kern/n:/new
sound 2 "a second clone"
ok zfs destroy -r kern/c
ok zpool wait -t free kern
sound 1 "the first clone is gone"
ok zfs destroy kern/n
ok zpool wait -t free kern
is "$(feature)" enabled "no clone is left"
sound 0 "no clone is left"
is "$(sum kern/a:/big)" 5987779e "the origin's bytes"
ok zpool export kern
