#!/usr/bin/env bash
# 'zpool upgrade -a' printed its first line again for each pool that has a host.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER
for d in a b; do
    disk $d 96M
    ok zpool create -d -m none $d "$T/$d"
done
said=$(zpool upgrade -a)
is "$(grep -c 'This system supports ZFS pool feature flags' <<<"$said")" 1 "the first line"
is "$(grep -c 'Enabled the following features on' <<<"$said")" 2 "what was enabled"
# How one process tells another that others do the rest is no option, and nothing that the history keeps.
fails 2 zpool upgrade --one-of-many a
is "$(zpool history b | sed -n 's/.* zpool upgrade/zpool upgrade/p')" 'zpool upgrade -V 5000 b' "what the history says"
is "$(zpool upgrade a | head -1)" 'This system supports ZFS pool feature flags.' "the first line of a pool alone"
for d in a b; do ok zpool export $d; done
gone
