#!/usr/bin/env bash
# `zfs send -R DS@last` sent the last snapshot alone, with status 0. A backup made with it lost the history.
. "$(dirname "$0")/lib.sh"
disk a && disk b
ok zpool create p "$T/a"
ok zpool create q "$T/b"
ok zfs create p/fs
for snap in init A B final; do
    echo "$snap" >"f$snap"
    ok zuse cp "f$snap" p/fs:/
    ok zfs snapshot -r "p@$snap"
done
ok zfs create p/late
ok zfs snapshot -r p@after
names() { zuse zstream dump | sed -n 's/.*toname = //p' | tail -n +2 | sort | tr '\n' ' '; }
is "$(zfs send -R p@final 2>notes | names)" "p/fs@A p/fs@B p/fs@final p/fs@init p@A p@B p@final p@init " "a package of all"
is "$(grep -c '^skipping snapshot .*@after because' notes)" 2 "what is said of later snapshots"
is "$(grep '^skipping dataset' notes)" "skipping dataset p/late: snapshot final does not exist" "what is said of a later dataset"
is "$(zfs send -R -i @A p/fs@final 2>/dev/null | names)" "p/fs@final " "from one to the last"
is "$(zfs send -R -I @A p/fs@final 2>/dev/null | names)" "p/fs@B p/fs@final " "all from one to the last"
zfs send -R p/fs@final 2>/dev/null | zfs receive q/fs || differs "the package is not received"
is "$(zfs list -H -t snapshot -o name -r q/fs | tr '\n' ' ')" "q/fs@init q/fs@A q/fs@B q/fs@final " "what was received"
is "$(zuse cat q/fs@A:/fA)" A "a file of an earlier snapshot"
ok zfs destroy p/fs@after
says "cannot send p@after recursively: snapshot p/fs@after does not exist" zfs send -R p@after
fails 1 zfs send -R p@after
zfs send -Rs p@after >s 2>notes || differs "-s does not pass over it"
grep -qF "WARNING: skipping dataset p/fs and its children: snapshot after does not exist" notes || differs "-s does not say what it passes over: $(cat notes)"
# A source that is not there makes no full stream.
for from in "-i @nix" "-I @nix" "-i #nix"; do fails 1 zfs send -R $from p/fs@final; done
fails 2 zfs send -s p/fs@final
fails 1 zfs send -X p/fs p/fs@final
