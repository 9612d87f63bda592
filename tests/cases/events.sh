#!/usr/bin/env bash
# `zpool events`: the events in a pool's host, in OpenZFS's words and form. Events in a file and for a command, up to the export.
# Followers.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER
export ZUSE_EVENTS_FILE=$T/lines ZUSE_EVENTS_COMMAND="echo \$ZEVENT_SUBCLASS \$ZEVENT_POOL >>$T/seen"

is "$(zpool events)" "TIME                           CLASS" "no pool, no events"
disk d
ok zpool create -m none tank "$T/d"
ok zfs snapshot tank@a
is "$(zpool events -H | cut -f2 | grep -c pool_create)" 1 "that it was made"
line='^[A-Z][a-z]{2} [ 0-9][0-9] [0-9]{4} [0-9:]{8}\.[0-9]{9} sysevent.fs.zfs.history_event$'
[ "$(zpool events | grep -cE "$line")" -ge 1 ] || differs "a line: $(zpool events | tail -1)"
is "$(zpool events -v | grep -A6 -B6 'history_dsname = "tank@a"' | awk '{ print $1 }' | xargs)" \
    "class pool pool_guid pool_state pool_context history_hostname history_dsname history_internal_str history_internal_name history_dsid history_txg history_time time" \
    "fields of an event"
timeout 20 zpool events -f -H tank >followed &
follower=$!
for _ in $(seq 50); do grep -q history followed && break; sleep 0.1; done
ok zfs snapshot tank@b
for _ in $(seq 50); do [ "$(grep -c history followed)" -ge 2 ] && break; sleep 0.1; done
[ "$(grep -c history followed)" -ge 2 ] || differs "who follows hears: $(cat followed)"
kill "$follower" 2>/dev/null
says cleared zpool events -c
is "$(zpool events -H)" "" "events that were cleared"
fails 2 zpool events -c tank
ok zpool export tank
gone
for class in pool_create history_event pool_export; do
    grep -q "\"class\":\"sysevent.fs.zfs.$class\",\"pool\":\"tank\"" lines || differs "$class in the file: $(tail -2 lines)"
    grep -qx "$class tank" seen || differs "$class of the command: $(sort seen | uniq -c)"
done

# What becomes of devices.
disk a 96M
disk s 96M
disk n 96M
ok zpool create -m none pool mirror "$T/d" "$T/a" -f
ok zpool add pool spare "$T/s"
ok zpool replace pool "$T/a" "$T/s"
ok zpool wait -t resilver pool
ok zpool add -f pool "$T/n"
ok zpool trim -r 1 pool "$T/n"
ok zpool trim -s pool "$T/n"
ok zpool trim -r 1 pool "$T/n"
ok zpool trim -c pool "$T/n"
ok zpool trim -w pool "$T/n"
disk l 96M
disk c 96M
disk u 96M
ok zpool add pool log "$T/l" cache "$T/c" spare "$T/u"
ok zpool remove pool "$T/l"
is "$(zpool events -v pool | grep -A9 'vdev_remove_dev' | grep -c "vdev_path = \"$T/l\"")" 1 "path of the log"
ok zpool remove pool "$T/c"
ok zpool remove pool "$T/u"
is "$(zpool events -H pool | cut -f2 | grep -c vdev_remove_aux)" 2 "events of a cache device and a spare"
ok zpool reguid pool
is "$(zpool events -v pool | grep -A3 'class = "sysevent.fs.zfs.pool_reguid"' | grep -c "$(printf 0x%x "$(zpool get -Hp -o value guid pool)")")" 1 \
    "the new guid is the event's"
for class in vdev_remove_dev vdev_remove_aux pool_reguid vdev_attach vdev_spare vdev_add trim_start trim_suspend trim_resume trim_cancel trim_finish; do
    [ "$(zpool events -H pool | cut -f2 | grep -cx "sysevent.fs.zfs.$class")" -ge 1 ] || differs "no event $class"
done
ok zpool export pool
gone
