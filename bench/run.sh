#!/usr/bin/env bash
# Builds what the bench needs and runs it; arguments go to bench/bench.py (--help). Root, for loop mounts and dropping caches.
#
#   bench/run.sh                                  all peers that are there, best of 3
#   bench/run.sh --quick --peers dir,ext4,zuse    a minute instead of an hour
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="${HOME:-/root}/.cargo/bin:$PATH"
command -v python3 >/dev/null || { echo "bench: needs python3 (Debian: apt-get install python3)" >&2; exit 1; }
built=${CARGO_TARGET_DIR:-$PWD/target}/bench
CARGO_TARGET_DIR=$built cargo build --quiet --release --locked --manifest-path bench/driver/Cargo.toml
if [ -f bench/null-fuse/Cargo.toml ]; then
    CARGO_TARGET_DIR=$built cargo build --quiet --release --manifest-path bench/null-fuse/Cargo.toml
fi
bench/get-zfs-fuse.sh >/dev/null || echo "bench: zfs-fuse cannot be had here; going on without it" >&2
exec python3 bench/bench.py "$@"
