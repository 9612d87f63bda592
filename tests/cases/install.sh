#!/usr/bin/env bash
# 'make install' installs a stripped program, the helpers of mount(8) and the units in the right places. It installs the names of
# OpenZFS's commands only on request. The installed program contains no path of the build directory.
. "$(dirname "$0")/lib.sh"

source=$(cd "$CASES/../.." && pwd)
# What is built is built elsewhere: here what is under test is installed.
run() { make -s -C "$source" -o build "$@" BIN="$ZUSE" DESTDIR="$T/root" PREFIX=/usr; }
ok run install
is "$(cd root/usr && find . -not -type d | sort | xargs)" \
    "./bin/zuse ./lib/systemd/system/zuse-host.service ./lib/systemd/user/zuse-host.service ./sbin/mount.fuse.zuse ./sbin/mount.zuse" "what is installed"
is "$(readelf -S root/usr/bin/zuse | grep -c '\.symtab')" 0 "sections that strip takes away"
says zuse root/usr/bin/zuse --version
says 'Usage: ' root/usr/sbin/mount.zuse --help
grep -q 'ExecStart=/usr/bin/zuse ' root/usr/lib/systemd/system/zuse-host.service || differs "what the unit starts"
ok run install-links
for name in zfs zpool zdb zstream; do is "$(readlink root/usr/bin/$name)" zuse "the link $name"; done
says 'zfs-' root/usr/bin/zfs version
says "remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=" make -n -C "$source" -o setup build
says "remap-path-prefix=$source=" make -n -C "$source" -o setup build
