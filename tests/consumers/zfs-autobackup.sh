#!/usr/bin/env bash
# zfs-autobackup selects by a property and takes snapshots. It sends them to another place in the same pool and to another one, and thins
# both out. zfs-check computes checksums of a snapshot and finds differences. (Volumes need /dev/zvol for zfs-check; zfs-autoverify does,
# too.)
. "$(dirname "$0")/lib.sh"
venv zfs-autobackup zfs-autobackup==3.3 colorama==0.4.6
installed

pools ztank zbackup
ok zfs create ztank/data
ok zfs create -o compression=zstd -o user:note=kept ztank/data/docs
ok zfs create ztank/data/tmp
ok zfs create -V 8M ztank/data/vol
ok zfs create ztank/copies
ok zfs create zbackup/here
ok zfs set autobackup:off=true ztank/data
ok zfs set autobackup:off=false ztank/data/tmp
for fs in data data/docs data/tmp; do head -c 2M /dev/urandom >"/ztank/$fs/one"; done
snaps() { zfs list -H -t snapshot -o name -r "$1" | sed 's/.*@//' | sort -u | wc -l; }
sums() { (cd "/$1" && find . -xdev -type f -exec md5sum {} + | sort); }
same() { is "$(sums "$2")" "$(sums "$1")" "/$2"; }

round=0
zbackup() {
    round=$((round + 1))
    sleep 1.1
    runs "round$round" zfs-autobackup --verbose --debug --strip-path 1 --keep-source 2 --keep-target 3 --exclude-received off "$@"
}
for n in two three four five; do
    zbackup ztank/copies
    runs "snap$n" zfs-autobackup --verbose --no-snapshot --strip-path 1 --keep-source 9 --exclude-received off zbackup/here
    echo "$n" >"/ztank/data/docs/$n"
    ok zpool sync ztank # it asks for 'written', which does not count what is not on disk yet
done
zbackup ztank/copies
is "$(snaps ztank/data/docs)" 2 "snapshots at the source"
is "$(snaps ztank/copies/data/docs)" 3 "snapshots in the same pool"
is "$(zfs list -H -o name -r ztank/copies zbackup/here | tr '\n' ' ')" \
    "zbackup/here zbackup/here/data zbackup/here/data/docs zbackup/here/data/vol \
ztank/copies ztank/copies/data ztank/copies/data/docs ztank/copies/data/vol " "what was sent: not what says autobackup:off=false"
is "$(zfs get -H -o value,source user:note ztank/copies/data/docs)" "$(printf 'kept\treceived')" "a property there"
is "$(zfs list -H -t snapshot -o name,guid -s createtxg ztank/copies/data/vol | tail -n 2 | cut -d @ -f 2)" \
    "$(zfs list -H -t snapshot -o name,guid -s createtxg ztank/data/vol | cut -d @ -f 2)" "the newest snapshots of the volume"
for fs in data data/docs; do same "ztank/$fs" "ztank/copies/$fs"; done
is "$(zfs holds -H -r ztank/data/docs@"$(zfs list -H -t snapshot -o name -s createtxg ztank/data/docs | tail -n 1 | cut -d @ -f 2)" |
    cut -f 2)" zfs_autobackup:off "the hold on what both sides need"

# What was changed in the copy is rolled back, only when asked for.
echo more >/ztank/copies/data/docs/changed
echo six >/ztank/data/docs/six
ok zpool sync ztank
runs rollback zfs-autobackup --verbose --strip-path 1 --keep-source 2 --keep-target 3 --rollback --exclude-received off ztank/copies
for fs in data data/docs; do same "ztank/$fs" "ztank/copies/$fs"; done

# Sums of a snapshot's files, of a volume; made on one side and checked on the other.
# A run that was killed leaves its mountpoint, and process numbers come again in this namespace.
rmdir /tmp/zfs-check-* 2>/dev/null || true
newest=$(zfs list -H -t snapshot -o name -s createtxg ztank/data/docs | tail -n 1 | cut -d @ -f 2)
zfs-check "ztank/data/docs@$newest" >docs.sums 2>docs.err || differs "zfs-check: $(tail -n 3 docs.err)"
is "$(grep -c one docs.sums)" 1 "sums of 'one'"
runs check zfs-check --check docs.sums "ztank/copies/data/docs@$newest"
sed 's/[0-9a-f]\{39\}/000000000000000000000000000000000000000/' docs.sums >bad.sums
fails "$(wc -l <docs.sums)" zfs-check --check bad.sums "ztank/copies/data/docs@$newest"

for pool in ztank zbackup; do ok zpool export "$pool"; done
ended ztank zbackup
