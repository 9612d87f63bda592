#!/usr/bin/env bash
# OpenZFS's zdb finds pools sound that were written with unusual tunables: micro ZAPs above 128K, small indirect blocks, attributes in every place.
set -euo pipefail
cd "$(dirname "$0")/../.."
export XDG_STATE_HOME=$SUITE_TMP/state XDG_CONFIG_HOME=$SUITE_TMP/config
mkdir -p "$XDG_STATE_HOME" "$XDG_CONFIG_HOME/zuse" "$SUITE_TMP/pool" "$SUITE_TMP/mnt" "$SUITE_TMP/tree"
printf 'zap_micro_max_size=1M # directories of 16,383 names in one block\nzfs_arc_max=64M\n' >"$XDG_CONFIG_HOME/zuse/tunables"

[ "$("$ZUSE" tunables -Hp -c value,source -o zfs_default_ibs=15 | sed -n 1p)" = "67108864	$XDG_CONFIG_HOME/zuse/tunables" ]
"$ZUSE" zpool create tank "$SUITE_TMP/pool/tank.img" --size 256M
python3 - "$SUITE_TMP/tree" <<'PY'
import os, sys
for n in range(5000):
    open(os.path.join(sys.argv[1], f"file-{n:06}"), "w").close()
PY
"$ZUSE" --tune zfs_default_ibs=15 cp -r "$SUITE_TMP/tree" tank:/
ZUSE_RECORDSIZE=16K "$ZUSE" cp "$ZUSE" tank:/binary
[ "$("$ZUSE" zpool get -H -o value feature@large_microzap tank)" = active ]

if [ -c /dev/fuse ]; then
    "$ZUSE" mount -o zfs_arc_max=32M,zfs_txg_timeout=1 tank "$SUITE_TMP/mnt"
    trap '"$ZUSE" umount tank || true' EXIT
    [ "$("$ZUSE" tunables -Hp -c value,source tank | sed -n 1p)" = "33554432	running" ]
    "$ZUSE" tunables -o zfs_arc_max=48M tank >/dev/null
    [ "$("$ZUSE" tunables -Hp -c value tank | sed -n 1p)" = 50331648 ]
    python3 - "$SUITE_TMP/mnt" <<'PY'
import os, sys
for i, size in enumerate((1, 32, 88, 89, 256, 1024, 4096, 16384, 32768, 32769, 65536)):
    path = os.path.join(sys.argv[1], f"x{i}")
    open(path, "w").close()
    os.setxattr(path, "user.one", bytes([i + 1]) * size)
    os.setxattr(path, "user.two", os.urandom(size))
    assert os.getxattr(path, "user.one") == bytes([i + 1]) * size
    assert sorted(os.listxattr(path)) == ["user.one", "user.two"]
    if i % 3 == 0:
        os.removexattr(path, "user.two")
PY
    "$ZUSE" umount tank
    trap - EXIT
fi
"$ZUSE" zpool export tank
scripts/zdb-check "$SUITE_TMP/pool" tank -bcc
"${ORACLE:-target/oracle}/bin/zdb" -e -p "$SUITE_TMP/pool" -dddd tank/ 2>/dev/null |
    awk '$1 ~ /^[0-9]+$/ && /ZFS directory/ && $3 == "32K" { found = 1 } END { exit !found }'

# POSIX ACLs are enforced by the mount: one user named in the ACL may write, another may not.
if [ -c /dev/fuse ] && [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    "$ZUSE" zpool import -d "$SUITE_TMP/pool/tank.img" tank
    "$ZUSE" zfs set acltype=posix tank
    chmod 755 "$SUITE_TMP" "$SUITE_TMP/mnt"
    "$ZUSE" mount -o allow_other tank "$SUITE_TMP/mnt"
    trap '"$ZUSE" umount tank || true' EXIT
    python3 - "$SUITE_TMP/mnt" <<'PY'
import os, struct, subprocess, sys
path = os.path.join(sys.argv[1], "shared")
open(path, "w").close()
os.chmod(path, 0o600)
none = 0xFFFFFFFF
acl = [(1, 6, none), (2, 6, 1234), (4, 0, none), (0x10, 6, none), (0x20, 0, none)]
os.setxattr(path, "system.posix_acl_access", struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in acl))
assert os.stat(path).st_mode & 0o777 == 0o660
def may(uid):
    script = "open('shared', 'a').write('x')"
    whole = ["setpriv", f"--reuid={uid}", "--regid=7777", "--clear-groups", "/usr/bin/python3", "-c", script]
    return subprocess.run(whole, cwd=sys.argv[1], stderr=subprocess.DEVNULL).returncode == 0
assert may(1234) and not may(1235)
os.chmod(path, 0o600)
assert not may(1234), "the mask follows the mode"
PY
    "$ZUSE" umount tank
    trap - EXIT
    "$ZUSE" zpool export tank
    scripts/zdb-check "$SUITE_TMP/pool" tank -bcc
fi
