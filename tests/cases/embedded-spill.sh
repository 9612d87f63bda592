#!/usr/bin/env bash
# In a stream of OpenZFS, an embedded spill block is a WRITE_EMBEDDED record with offset −2 × its length. Such a stream was refused. OpenZFS
# itself loses the attributes that it sends this way, and overwrites the data of larger files. Zuse sends a SPILL record.
. "$(dirname "$0")/lib.sh"
data=$CASES/../../testdata/send
for s in full more; do zstd -q -d "$data/spill-$s.zstream.zst" -o "$s"; done
content() { sed -E 's/"(ino|blocks|atime_ns)": [0-9]+,?//g; s/,\}/}/; /"path": "\."/d'; }
spills() { zuse zstream dump -v | awk '/^WRITE_EMBEDDED/ && $7 > 2^63' | grep -c .; }
disk a
ok zpool create -o ashift=9 p "$T/a"
is "$(spills <full) $(spills <more)" "15 14" "embedded spill blocks in the streams"
zfs receive p/t <full || differs "the full stream is refused"
is "$(zuse manifest --sha256=all p/t@1 | content)" "$(content <"$data/spill-full.json")" "what the full stream brought"
zfs receive -F p/t <more || differs "the next stream is refused"
is "$(zuse manifest --sha256=all p/t@2 | content)" "$(content <"$data/spill-more.json")" "what the next stream brought"
is "$(zuse manifest --sha256=all p/t@1 | content)" "$(content <"$data/spill-full.json")" "the first snapshot afterwards"

# Our own streams of it, in every form.
for form in "" -e -c -Le -cLe; do
    zfs send $form p/t@1 >s && is "$(spills <s)" 0 "records with '$form' that receivers of OpenZFS lose"
    zfs receive p/r <s || differs "full, with '$form'"
    zfs send $form -i @1 p/t@2 >s && is "$(spills <s)" 0 "records of the next with '$form'"
    zfs receive -F p/r <s || differs "the next, with '$form'"
    is "$(zuse manifest --sha256=all p/r@2 | content)" "$(content <"$data/spill-more.json")" "what '$form' brought"
    ok zfs destroy -r p/r
done
# A resumed receive and a heal meet the record too.
head -c 12000 full | zfs receive -s p/half 2>/dev/null
ok zuse zstream token "$(zfs get -H -o value receive_resume_token p/half)"
ok zfs receive -A p/half
