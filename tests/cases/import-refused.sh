#!/usr/bin/env bash
# An import or a split with a bad option was refused only after it was done. The pool was imported, or split, all the same. The process
# that had opened the pool kept it. No command found that process, and the next import waited for ever.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER
disk a
disk b
ok zpool create -O mountpoint=none q mirror "$T/a" "$T/b"
fails 1 zpool split -R relative q new
is "$(zpool list -HLv q | cut -f1 | xargs -n1 basename | xargs)" "q mirror-0 a b" "the devices after a split that was refused"
ok zpool export q
gone
for wrong in bogus=1 ashift=20 failmode=perhaps feature@bogus=enabled; do
    fails 1 timeout 15 zpool import -d "$T" -o "$wrong" q
    is "$(zpool list -H -o name 2>/dev/null)" "" "what is imported after '-o $wrong'"
    gone
    is "$(hosts)" "" "processes that are left after '-o $wrong'"
done
says "cannot set property for 'q'" zpool import -d "$T" -o ashift=20 q
ok timeout 15 zpool import -d "$T" -o comment=there q
is "$(zpool get -H -o value comment q)" there "a property that can be set"
fails 1 timeout 15 zpool import -d "$T" q
# Another container sees that the pool is imported, and is not told to import it with -f.
mkdir -p other/state other/run
chmod 700 other/run
says "status: The pool is currently imported by process $(hosts) ('zuse')." env XDG_STATE_HOME="$T/other/state" XDG_RUNTIME_DIR="$T/other/run" zpool import -d "$T"
ok zpool export q
