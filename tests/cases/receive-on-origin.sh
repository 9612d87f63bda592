#!/usr/bin/env bash
# A full stream on top of an unrelated snapshot (`receive -o origin=`) was refused if a file had a smaller block there. Objects of the
# snapshot after the last object of the stream were not removed.
. "$(dirname "$0")/lib.sh"
disk a
ok zpool create p "$T/a"
ok zfs create -o recordsize=512 p/one
ok zfs create p/two
head -c 8192 /dev/urandom >small && head -c 600000 /dev/urandom >large && : >empty && mkdir dir
ok zuse cp small large p/one:/
ok zuse cp -r empty dir large p/two:/
for i in $(seq 40); do echo "$i" >"f$i"; done
ok zuse cp f* p/two:/
ok zfs snapshot p/one@s p/two@s
zfs send p/one@s >one && zfs send p/two@s >two
zfs receive -o origin=p/two@s p/r1 <one || differs "one on two is refused"
zfs receive -o origin=p/one@s p/r2 <two || differs "two on one is refused"
content() { zuse manifest --sha256=all "$1@s" | sed -E 's/"(ino|blocks|atime_ns)": [0-9]+,?//g; s/,\}/}/; /"path": "\."/d'; }
for i in "one r1" "two r2"; do
    set -- $i
    is "$(content "p/$2")" "$(content "p/$1")" "the content of $2"
    objects() { zdb -dd "p/$1" | awk '$1 ~ /^[0-9]+$/ && $1 > 0' | wc -l; }
    is "$(objects "$2")" "$(objects "$1")" "objects of $2"
    is "$(zfs get -H -o value origin "p/$2" | grep -c @s)" 1 "whether $2 is a clone"
done
