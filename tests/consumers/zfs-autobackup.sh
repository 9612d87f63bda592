#!/usr/bin/env bash
# zfs-autobackup selects by a property, takes snapshots, sends them to another place in the same pool and to another one, and thins both
# out; zfs-check sums what is in a snapshot, and finds what differs. (Volumes need /dev/zvol for zfs-check; zfs-autoverify does, too.)
. "$(dirname "$0")/lib.sh"
venv zfs-autobackup zfs-autobackup==3.3 colorama==0.4.6
installed

pools tank backup
ok zfs create tank/data
ok zfs create -o compression=zstd -o user:note=kept tank/data/docs
ok zfs create tank/data/tmp
ok zfs create -V 8M tank/data/vol
ok zfs create tank/copies
ok zfs create backup/here
ok zfs set autobackup:off=true tank/data
ok zfs set autobackup:off=false tank/data/tmp
for fs in data data/docs data/tmp; do head -c 2M /dev/urandom >"/tank/$fs/one"; done
snaps() { zfs list -H -t snapshot -o name -r "$1" | sed 's/.*@//' | sort -u | wc -l; }
sums() { (cd "/$1" && find . -xdev -type f -exec md5sum {} + | sort); }
same() { is "$(sums "$2")" "$(sums "$1")" "/$2"; }

round=0
backup() {
    round=$((round + 1))
    sleep 1.1
    runs "round$round" zfs-autobackup --verbose --debug --strip-path 1 --keep-source 2 --keep-target 3 --exclude-received off "$@"
}
for n in two three four five; do
    backup tank/copies
    runs "snap$n" zfs-autobackup --verbose --no-snapshot --strip-path 1 --keep-source 9 --exclude-received off backup/here
    echo "$n" >"/tank/data/docs/$n"
    ok zpool sync tank # it asks for 'written', which does not count what is not on disk yet
done
backup tank/copies
is "$(snaps tank/data/docs)" 2 "snapshots at the source"
is "$(snaps tank/copies/data/docs)" 3 "snapshots in the same pool"
is "$(zfs list -H -o name -r tank/copies backup/here | tr '\n' ' ')" \
    "backup/here backup/here/data backup/here/data/docs backup/here/data/vol \
tank/copies tank/copies/data tank/copies/data/docs tank/copies/data/vol " "what was sent: not what says autobackup:off=false"
is "$(zfs get -H -o value,source user:note tank/copies/data/docs)" "$(printf 'kept\treceived')" "a property there"
is "$(zfs list -H -t snapshot -o name,guid -s createtxg tank/copies/data/vol | tail -n 2 | cut -d @ -f 2)" \
    "$(zfs list -H -t snapshot -o name,guid -s createtxg tank/data/vol | cut -d @ -f 2)" "the newest snapshots of the volume"
for fs in data data/docs; do same "tank/$fs" "tank/copies/$fs"; done
is "$(zfs holds -H -r tank/data/docs@"$(zfs list -H -t snapshot -o name -s createtxg tank/data/docs | tail -n 1 | cut -d @ -f 2)" |
    cut -f 2)" zfs_autobackup:off "the hold on what both sides need"

# What was changed in the copy is rolled back, only when asked for.
echo more >/tank/copies/data/docs/changed
echo six >/tank/data/docs/six
ok zpool sync tank
runs rollback zfs-autobackup --verbose --strip-path 1 --keep-source 2 --keep-target 3 --rollback --exclude-received off tank/copies
for fs in data data/docs; do same "tank/$fs" "tank/copies/$fs"; done

# Sums of a snapshot's files, of a volume; made on one side and checked on the other.
newest=$(zfs list -H -t snapshot -o name -s createtxg tank/data/docs | tail -n 1 | cut -d @ -f 2)
zfs-check "tank/data/docs@$newest" >docs.sums 2>docs.err || differs "zfs-check: $(tail -n 3 docs.err)"
is "$(grep -c one docs.sums)" 1 "sums of 'one'"
runs check zfs-check --check docs.sums "tank/copies/data/docs@$newest"
sed 's/[0-9a-f]\{39\}/000000000000000000000000000000000000000/' docs.sums >bad.sums
fails "$(wc -l <docs.sums)" zfs-check --check bad.sums "tank/copies/data/docs@$newest"

for pool in tank backup; do ok zpool export "$pool"; done
ended tank backup
