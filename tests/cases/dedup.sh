#!/usr/bin/env bash
# Datasets with dedup on: data that is written twice is stored once, in both forms of the table. It is freed with the last pointer.
. "$(dirname "$0")/lib.sh"

head -c 1048576 /dev/urandom >one
head -c 262144 /dev/urandom >other
cat one other >both
for form in enabled disabled; do
    disk "$form"
    at="--in $T/$form"
    ok zpool create -m none -o feature@fast_dedup=$form -O dedup=on -O compression=off "$form" "$T/$form"
    ok zfs create -o dedup=edonr,verify "$form/e"
    ok zpool export "$form"
    ok zuse $at cp one "$form:/a"
    is "$(zpool $at list -H -o dedupratio "$form")" 1.00x "$form: one of each"
    ok zuse $at cp both "$form:/b"
    ok zuse $at cp one "$form:/c"
    # Whole blocks of 128K: one is there three times, other once.
    is "$(zpool $at list -H -o dedupratio "$form")" 2.60x "$form: shared"
    ok zuse $at cp one one "$form/e:/" -f
    ok zuse $at cp one "$form/e:/again"
    is "$(zpool $at list -H -o dedupratio "$form")" 2.33x "$form: with another table"
    says "No leaks" zdb -e -p "$T/$form" -bcc "$form"
    says "DDT-edonr" zdb -e -p "$T/$form" -D "$form"
    is "$(zpool $at get -H -o value feature@fast_dedup "$form")" "${form/enabled/active}" "the feature"
    ok zfs $at snapshot "$form@s"
    ok zuse $at cp -f other "$form:/a"
    ok zuse $at cp -f other "$form:/b"
    is "$(zuse $at cat "$form@s:/b" | cmp - both && zuse $at cat "$form:/c" | cmp - one)" "" "$form: bytes"
    # A table that is full takes no new entries; those that are there are shared.
    ok zpool $at set dedup_table_quota=1 "$form"
    head -c 500000 /dev/urandom >new
    before=$(zdb -e -p "$T/$form" -DD "$form" | awk '$1 == "Total" { print $2 }')
    ok zuse $at cp new "$form:/new"
    ok zuse $at cp one "$form:/d"
    is "$(zdb -e -p "$T/$form" -DD "$form" | awk '$1 == "Total" { print $2 }')" "$before" "$form: entries beyond the quota"
    is "$(zuse $at cat "$form:/new" | cmp - new && zuse $at cat "$form:/d" | cmp - one)" "" "$form: bytes beyond the quota"
    says "No leaks" zdb -e -p "$T/$form" -bcc "$form"
    for word in none auto; do
        ok zpool $at set dedup_table_quota=$word "$form"
        is "$(zpool $at get -Ho value,source dedup_table_quota "$form")" "$word	local" "$form: the quota's words"
    done
    ok zfs $at destroy "$form@s"
    ok zfs $at destroy "$form/e"
    says "No leaks" zdb -e -p "$T/$form" -bcc "$form"
    silent "DDT-edonr-zap-duplicate" zdb -e -p "$T/$form" -D "$form"
done
# Pruning: texts and statuses are those of OpenZFS's tools.
disk prune
ok zpool create -m none -O dedup=on prune "$T/prune"
fails 0 zpool ddtprune -d 1 prune
for wrong in "-d 0:invalid days value" "-p 0:invalid percentage value" "-p 101:invalid percentage value" "-p x:invalid percentage value" \
    "-d 1 -p 1:-p cannot be combined with -d option" ":missing amount option (-d|-p <value>)"; do
    fails 2 zpool ddtprune ${wrong%%:*} prune
    says "${wrong#*:}" zpool ddtprune ${wrong%%:*} prune
done
says "missing pool argument" zpool ddtprune -p 5
disk old
ok zpool create -m none -o feature@fast_dedup=disabled -O dedup=on old "$T/old"
ok zuse cp one old:/one
fails 255 zpool ddtprune -p 50 old
says "cannot prune dedup table on 'old': operation not supported on this type of pool" zpool ddtprune -p 50 old
