#!/usr/bin/env bash
# GRUB reads what Zuse writes: a pool with compatibility=grub2-2.06 gives files' exact bytes to Debian's grub-fstest.
# Needs apt (grub-common is unpacked, not installed) and the libraries that grub-fstest is linked with.
# limit: 300
set -euo pipefail
cd "$(dirname "$0")/../.."

export XDG_STATE_HOME=$SUITE_TMP/state
grub=$SUITE_TMP/grub image=$SUITE_TMP/boot.img
mkdir -p "$grub"
(cd "$grub" && apt-get -qq -o APT::Sandbox::User= download grub-common && dpkg-deb --extract grub-common_*.deb root)
fstest=$grub/root/usr/bin/grub-fstest
[ -x "$fstest" ] || { echo "grub: no grub-fstest in grub-common" >&2; exit 1; }

"$ZUSE" zpool create -m none -o compatibility=grub2-2.06 boot "$image" --size 128M
"$ZUSE" zfs create -o mountpoint=none boot/default
head -c 3000000 /dev/urandom >"$SUITE_TMP/large"
printf 'timeout=5\n' >"$SUITE_TMP/small"
seq 1 400000 >"$SUITE_TMP/packed"
mkdir -p "$SUITE_TMP/many"
for i in $(seq 1 3000); do echo "$i" >"$SUITE_TMP/many/entry-$i"; done
"$ZUSE" cp "$SUITE_TMP/large" "$SUITE_TMP/small" "$SUITE_TMP/packed" boot/default:/
"$ZUSE" cp -r "$SUITE_TMP/many" boot/default:/
"$ZUSE" cp "$SUITE_TMP/small" boot:/
"$ZUSE" zpool export boot

same() { # path in GRUB's words, file
    "$fstest" "$image" cat "(loop0)$1" >"$SUITE_TMP/got"
    cmp "$SUITE_TMP/got" "$2" || { echo "grub: $1 differs" >&2; exit 1; }
}
same /@/small "$SUITE_TMP/small"
for name in large small packed; do same "/default@/$name" "$SUITE_TMP/$name"; done
same "/default@/many/entry-2718" "$SUITE_TMP/many/entry-2718"

# The check can fail: a pool with all features is not for GRUB 2.06.
"$ZUSE" zpool create -m none all "$SUITE_TMP/all.img" --size 128M
"$ZUSE" cp "$SUITE_TMP/small" all:/
"$ZUSE" zpool export all
if "$fstest" "$SUITE_TMP/all.img" cat "(loop0)/@/small" 2>/dev/null | cmp -s - "$SUITE_TMP/small"; then
    echo "grub: it reads a pool with all features: the check shows nothing" >&2
    exit 1
fi
scripts/zdb-check "$SUITE_TMP" boot -bc
