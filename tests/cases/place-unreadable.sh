#!/usr/bin/env bash
# For an image that the user may not read, '--in' printed that it has no datasets, with status 0.
. "$(dirname "$0")/lib.sh"

disk a
ok zpool create -m none tank "$T/a"
ok zpool export tank
mkdir secret own
chmod 700 secret
chmod 600 a
chown 65534 own
other() { setpriv --reuid 65534 --regid 65534 --clear-groups env HOME="$T/own" XDG_STATE_HOME="$T/own" XDG_RUNTIME_DIR="$T/own" "$@"; }
for command in 'zfs list' 'zpool list' 'zfs list tank' 'zpool status'; do
    # shellcheck disable=SC2086
    is "$(other "$ZUSE" --in "$T/a" $command 2>&1; echo $?)" "cannot look for pools in '$T/a': Permission denied
1" "$command of a file"
done
is "$(other "$ZUSE" --in "$T/secret" zfs list 2>&1; echo $?)" "cannot look for pools in '$T/secret': Permission denied
1" "a folder"
chmod 644 a
is "$(other "$ZUSE" --in "$T/a" zfs list -H -o name 2>&1; echo $?)" "tank
0" "a file that may be read"
