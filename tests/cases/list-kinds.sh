#!/usr/bin/env bash
# 'zfs list' of names with a type, of several names of which one is missing, and of nothing: as a real OpenZFS 2.3 answered.
. "$(dirname "$0")/lib.sh"

says "no pools available" zpool list
is "$(zpool list 2>/dev/null)" "no pools available" "on the output"
for quiet in "zpool list -H" "zfs list -H" "zpool get -H all" "zfs get all" "zfs get -H all"; do
    # shellcheck disable=SC2086
    is "$($quiet 2>&1)" "" "$quiet without pools"
done
fails 1 zpool iostat
disk d
ok zpool create -m none p "$T/d"
ok zfs create p/src
ok zfs snapshot p/src@s1
ok zfs bookmark p/src@s1 p/src#b
is "$(zfs list -t bookmark -H -o name p/src#b)" "p/src#b" "a bookmark by name"
is "$(zfs list -t snapshot -H -o name p/src@s1)" "p/src@s1" "a snapshot by name"
is "$(zfs list -H -o name p/src@s1)" "p/src@s1" "without a kind"
is "$(zfs list -t snapshot -H -o name p/src)" "p/src@s1" "snapshots of a dataset"
for line in "-H p/src#b|bookmark delimiter '#'" "-t snapshot p/src#b|bookmark delimiter '#'" "-t filesystem p/src@s1|snapshot delimiter '@'" \
    "-t bookmark p/src@s1|snapshot delimiter '@'"; do
    # shellcheck disable=SC2086
    fails 1 zfs list ${line%%|*}
    # shellcheck disable=SC2086
    says "${line#*|} is not expected here" zfs list ${line%%|*}
done
fails 1 zfs list -t volume p/src
says "operation not applicable to datasets of this type" zfs list -t volume p/src
is "$(zfs list -t bookmark -H -o name p 2>&1)" "" "no bookmarks"
fails 1 zfs list -H -o name p/src p/nope p
is "$(zfs list -H -o name p/src p/nope p 2>/dev/null | xargs)" "p p/src" "those that are there"
ok zfs rename p/src@s1 p/src@s1
