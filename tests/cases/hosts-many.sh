#!/usr/bin/env bash
# `zpool history` without a pool failed where two hosts held the pools. So may other commands for several pools.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER

disk a
disk b
ok zpool create -m "$T/p" p "$T/a"
ok zpool create -m "$T/q" q "$T/b"
for both in "" "p q"; do
    # shellcheck disable=SC2086
    for command in "history -il" "sync" "status" "list -v" "get size" "iostat" "reopen" "events"; do
        case $command in get* | events) [ "${command%% *}:$both" != get: ] && [ "$command:$both" != "events:p q" ] || continue ;; esac
        ok zpool $command $both
        silent "different processes" zpool $command $both
    done
done
is "$(zpool history p q | grep -c "zpool create\\|^History for ")" 4 "lines of two histories"
for command in "scrub -a" "initialize -a" "trim -a" "upgrade -a" "export -a"; do
    # shellcheck disable=SC2086
    ok zpool $command
done
