#!/usr/bin/env bash
# The mount against two suites of other projects, as cargo installs them. pjdfstest tests the POSIX rules of names, modes, owners, times
# and errors. fsx compares random reads, writes, maps, holes and truncations of one file with a copy in memory. The files of fsx are read
# again after an export, and zdb judges the pool. Needs root and /dev/fuse. Copies are block clones if possible (zfs_bclone_enabled); the
# pool counts clones in the form that zdb 2.3 knows. The last runs of fsx use half blocks and sync often, so that many blocks are shared.
#   POSIX_SEED=7 FSX_OPS=20000 scripts/run-suites posix
# limit: 1200
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH="${HOME:-/root}/.cargo/bin:$PATH"
tools=$PWD/target/tools mnt=$SUITE_TMP/mnt
seed=${POSIX_SEED:-1} operations=${FSX_OPS:-3000}
[ -e /dev/fuse ] || { echo "posix: needs /dev/fuse" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "posix: needs root: it acts as other users" >&2; exit 1; }

install_tool() { # name, version
    [ -x "$tools/$1-$2/bin/$1" ] || cargo install --debug --quiet --locked --root "$tools/$1-$2" "$1@$2"
}
install_tool pjdfstest 0.2.2
install_tool fsx 0.3.2

export ZUSE_ZFS_BCLONE_ENABLED=1
export XDG_STATE_HOME=$SUITE_TMP/state
mkdir -p "$mnt" "$SUITE_TMP/pool" "$SUITE_TMP/other" "$SUITE_TMP/artifacts"
# Its other users must get through to the mount.
chmod 755 "$SUITE_TMP" "$mnt"
trap '"$ZUSE" umount posix 2>/dev/null || true' EXIT

"$ZUSE" zpool create -m none -o feature@block_cloning_endian=disabled -O acltype=posix posix "$SUITE_TMP/pool/posix.img" --size 512M
"$ZUSE" zfs create -o recordsize=4K posix/small
"$ZUSE" mount posix "$mnt"
chmod 777 "$mnt"

cat >"$SUITE_TMP/pjdfstest.toml" <<'TOML'
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
TOML
"$tools/pjdfstest-0.2.2/bin/pjdfstest" -c "$SUITE_TMP/pjdfstest.toml" -p "$mnt" -s "$SUITE_TMP/other" >"$SUITE_TMP/pjdfstest.log" 2>&1 || {
    grep -E -A3 ' FAILED$' "$SUITE_TMP/pjdfstest.log"
    exit 1
}
tail -n 1 "$SUITE_TMP/pjdfstest.log"
# A run that skips nearly everything (no users, no rights) proves nothing.
ran=$(sed -n 's/^Summary: .* \([0-9]*\) passed.*/\1/p' "$SUITE_TMP/pjdfstest.log")
[ "$ran" -gt 370 ] || { echo "posix: only $ran of pjdfstest's cases ran" >&2; exit 1; }

cat >"$SUITE_TMP/fsx.toml" <<'TOML'
flen = 1048576
[opsize]
max = 131072
[weights]
close_open = 1
copy_file_range = 3
fdatasync = 0.05
fsync = 0.05
invalidate = 1
mapread = 10
mapwrite = 10
posix_fadvise = 1
posix_fallocate = 1
punch_hole = 5
read = 10
sendfile = 2
truncate = 10
write = 10
TOML
cat >"$SUITE_TMP/clones.toml" <<'TOML'
flen = 1048576
[opsize]
max = 131072
align = 2048
[weights]
close_open = 1
copy_file_range = 12
fdatasync = 1
fsync = 8
invalidate = 1
mapread = 10
mapwrite = 8
posix_fadvise = 1
posix_fallocate = 0
punch_hole = 1
read = 10
sendfile = 2
truncate = 2
write = 20
TOML
for n in 0 1 2 3 4 5; do
    place=$mnt rules=$SUITE_TMP/fsx.toml
    [ $((n % 2)) = 0 ] || place=$mnt/small
    if [ $n -gt 3 ]; then
        place=$mnt/small rules=$SUITE_TMP/clones.toml
    fi
    "$tools/fsx-0.3.2/bin/fsx" -q -f "$rules" -S $((seed + n)) -N "$operations" -P "$SUITE_TMP/artifacts" "$place/fsx$n" || {
        echo "posix: fsx with seed $((seed + n)) failed" >&2
        exit 1
    }
done
# Whether anything was shared at all.
dd if=/dev/urandom of="$mnt/small/fsx-source" bs=128K count=8 status=none
# Blocks are shared once a txg has them; what fsync waits for may be in the log alone.
"$ZUSE" zpool sync posix
cp "$mnt/small/fsx-source" "$mnt/small/fsx-copy"
"$ZUSE" zpool sync posix
saved=$("$ZUSE" zpool get -Hp -o value bclonesaved posix)
[ "$saved" -ge 1048576 ] || { echo "posix: copies share $saved bytes" >&2; exit 1; }
(cd "$mnt" && sha256sum fsx* small/fsx*) >"$SUITE_TMP/sums"
"$ZUSE" umount posix
"$ZUSE" zpool export posix
"$ZUSE" zpool import -d "$SUITE_TMP/pool" posix
"$ZUSE" mount posix "$mnt"
(cd "$mnt" && sha256sum --quiet -c "$SUITE_TMP/sums")
"$ZUSE" umount posix
"$ZUSE" zpool export posix
scripts/zdb-check "$SUITE_TMP/pool" posix -bcc
