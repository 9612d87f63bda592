#!/usr/bin/env bash
# An import gave a pool any new name, also one that no pool may have. No command could name that pool. And 'zfs create -p POOL' failed
# although the pool exists.
. "$(dirname "$0")/lib.sh"

disk a; disk b
ok zpool create -m none p "$T/a"
ok zfs create -p p
ok zpool export p
for name in 'bad*name' mirror mirrors raidz raidz1 draid spare log 'a/b' 'a@b' 'a%b' 1a -a '' "$(printf 'a\nb')" "$(printf 'a%.0s' {1..250})"; do
    fails 1 zpool import -d "$T" p -- "$name"
    fails 1 zpool import -t -d "$T" p -- "$name"
    [ "$name" = a/b ] || fails 1 zpool create -m none -- "$name" "$T/b"
done
is "$(zpool list -H -o name)" "" "pools after refusals"
ok zpool import -d "$T" p 'logs of mine'
is "$(zpool list -H -o name)" "logs of mine" "a name with spaces"
# What is imported is not imported once more, under another name.
fails 1 zpool import -d "$T" 'logs of mine' other
is "$(zpool list -H -o name)" "logs of mine" "pools after a second import"
