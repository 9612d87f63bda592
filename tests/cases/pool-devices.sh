#!/usr/bin/env bash
# Devices are added to a pool and removed from it: the checks that OpenZFS makes, and its messages.
. "$(dirname "$0")/lib.sh"

for d in a b c d e f g h; do disk $d 96M; done
disk big 200M
disk tiny 32M
ok zpool create -m none tank "$T/a"

# What would be, class by class; the pool's own first.
is "$(zpool add -nf tank mirror "$T/b" "$T/c" log mirror "$T/d" "$T/e" cache "$T/f" spare "$T/g" special "$T/h" | sed "s,$T,,")" "would update 'tank' to the following configuration:

	tank
	  /a
	  mirror
	    /b
	    /c
	special
	  /h
	logs
	  mirror
	    /d
	    /e
	cache
	  /f
	spares
	  /g" "a dry run"

# Refused without -f, and what cannot be at all.
says "mismatched replication level: pool uses file and new vdev is mirror" zpool add tank mirror "$T/b" "$T/c"
says "mirror contains devices of different sizes" zpool add tank mirror "$T/b" "$T/big"
says "$T/a is part of active pool 'tank'" zpool add tank "$T/a"
says "invalid vdev specification: cache requires at least 1 devices" zpool add tank cache mirror "$T/b" "$T/c"
says "invalid vdev specification: unsupported 'log' device: raidz" zpool add tank log raidz "$T/b" "$T/c"
says "cannot add to 'tank': device is less than the minimum size (64M)" zpool add tank "$T/tiny"
says "cannot resolve path '$T/none'" zpool add tank "$T/none"
says "adding devices with different physical sector sizes is not allowed" zpool add -o ashift=13 tank "$T/b"
fails 2 zpool add tank
fails 2 zpool add -f --allow-in-use tank "$T/b"
is "$(zpool list -Hpo size tank)" $((5 << 24)) "nothing was added by what was refused"

# All kinds, and the pool comes back with them.
ok zpool add tank "$T/b" log "$T/c" cache "$T/d" spare "$T/e"
ok zpool add tank special "$T/f"
is "$(zpool list -Hpo size tank)" $((15 << 24)) "two vdevs for data and one for metadata"
says "$T/e is reserved as a hot spare for pool tank" zpool add tank "$T/e"
ok zpool export tank
ok zpool import -d "$T" tank
status=$(zpool status tank | sed "s,$T,,")
for line in "	  /b  " "	logs	" "	  /c  " "	cache" "	  /d  " "	spares" "	  /e  " "	special	"; do
    case $status in *"$line"*) ;; *) differs "'$line' is missing in $status" ;; esac
done

# What can leave.
says "cannot remove nosuch: no such device in pool" zpool remove tank nosuch
says "cannot cancel removal: operation is not in progress" zpool remove -s tank
says "Memory that will be used after removing $T/c: 0" zpool remove -n tank "$T/c"
fails 1 zpool remove tank "$T/b"
ok zpool checkpoint tank
says "cannot remove $T/c: checkpoint exists" zpool remove tank "$T/c"
says "cannot reguid 'tank': checkpoint exists" zpool reguid tank
ok zpool checkpoint -dw tank
ok zpool remove tank "$T/c" "$T/d" "$T/e"
silent "logs" zpool status tank
silent "cache" zpool status tank
silent "spares" zpool status tank
# They are nobody's any more, and the slot of the log is not used again.
ok zpool add tank log "$T/c" spare "$T/e"

# Another guid.
ok zpool reguid -g 4711 tank
is "$(zpool get -Hpo value guid tank)" 4711 "the guid that was asked for"
says "cannot reguid 'tank': pool already exists" zpool reguid -g 4711 tank
fails 255 zpool reguid -g 0 tank
fails 2 zpool reguid -g x tank
ok zpool reguid tank
ok zpool export tank
ok zpool import -d "$T" tank
says "No leaks" zdb -bcc tank
