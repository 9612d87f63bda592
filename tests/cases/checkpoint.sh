#!/usr/bin/env bash
# A checkpoint keeps the state of the whole pool. Deleting files frees no space. Rewinding brings everything back, and a discard gives the
# state up.
. "$(dirname "$0")/lib.sh"
disk a.img
ok zpool create -m none tank "$T/a.img"
ok zfs create tank/a
head -c 3000000 /dev/urandom >file
ok zuse cp file tank/a:/file
fails 1 zpool checkpoint -d tank
says "cannot discard checkpoint in 'tank': checkpoint does not exist" zpool checkpoint -d tank
fails 2 zpool checkpoint -w tank
ok zpool checkpoint tank
says "cannot checkpoint 'tank': checkpoint exists" zpool checkpoint tank
says "'zpool checkpoint' doesn't work on datasets." zpool checkpoint tank/a
fails 1 zpool checkpoint tank/a
says "warning: will not scrub state that belongs to the checkpoint of pool 'tank'" zpool scrub -w tank
says 'checkpoint: created ' zpool status tank
says 'spa checkpoint checkpointed uberblock txg=' zpool history -i tank
is "$(zpool get -Ho value feature@zpool_checkpoint tank)" active 'the feature'
ok zfs destroy tank/a
ok zfs create tank/b
ok zpool wait -t free tank
kept=$(zpool list -Hpo checkpoint tank)
[ "$kept" -ge 3000000 ] || differs "the checkpoint holds $kept bytes"
says 'No leaks' zdb -bcc tank
ok zpool export tank
ok zpool import -d "$T" -N --rewind-to-checkpoint tank
is "$(zfs list -Ho name -r tank | tr '\n' ' ')" 'tank tank/a ' 'datasets after going back'
is "$(zuse cat tank/a:/file | sha256sum)" "$(sha256sum <file)" 'the file after going back'
silent 'checkpoint:' zpool status tank
says 'checkpoint rewind rewound state to txg=' zpool history -i tank
ok zpool checkpoint tank
ok zfs destroy -r tank/a
ok zpool wait -t free tank
ok zpool checkpoint -d -w tank
silent 'checkpoint:' zpool status tank
is "$(zpool list -Ho checkpoint tank)" - 'space of the checkpoint after its discard'
is "$(zpool get -Ho value feature@zpool_checkpoint tank)" enabled 'the feature after the discard'
for did in started finished; do
    says "spa discard checkpoint $did discarding checkpointed state from the pool" zpool history -i tank
done
ok zpool wait -t discard tank
says 'No leaks' zdb -bcc tank
# What the checkpoint holds is counted once: there is room for what fits beside it.
disk b.img 128M
ok zpool create -m none small "$T/b.img"
ok zfs create small/a
head -c 20000000 /dev/urandom >big
ok zuse cp big small/a:/big
ok zpool checkpoint small
ok zfs destroy small/a
ok zfs create small/b
ok zuse cp big small/b:/big
fails 1 zuse cp big small/b:/more
ok zfs destroy small/b
ok zpool checkpoint -d -w small
ok zfs create small/c
ok zuse cp big small/c:/big
ok zuse cp big small/c:/more
ok zpool export small
ok zpool export tank
says "cannot import 'tank': checkpoint does not exist" zpool import -d "$T" -N --rewind-to-checkpoint tank
