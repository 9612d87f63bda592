#!/usr/bin/env bash
# Repeats the measurements of tables that were published about ZFS on this project and its peers. It builds what they need and measures.
# It writes bench/results/published-*.{json,svg} and the tables of docs/performance.md. Needs root, for loop mounts and dropping caches.
#
#   bench/published/run.sh --ci             an hour
#   bench/published/run.sh --full           the published sizes: hours, 100 GB of disk; results and tables of their own
#   ZUSE_BENCH_WITHOUT="zfs-fuse xfs" bench/published/run.sh --full find    without some peers: 18 million files take ext4 eight minutes
#   bench/published/run.sh --ci find xattr  some of: find lookup create zap xattr memory
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH="${HOME:-/root}/.cargo/bin:$PATH"
size= only=()
for word in "$@"; do
    case $word in
        --ci | --full | --smoke) size=$word ;;
        find | lookup | create | zap | xattr | memory) only+=("$word") ;;
        *) echo "usage: bench/published/run.sh --ci|--full [find] [lookup] [create] [zap] [xattr] [memory]" >&2; exit 2 ;;
    esac
done
[ -n "$size" ] || { echo "usage: bench/published/run.sh --ci|--full [find] [lookup] [create] [zap] [xattr] [memory]" >&2; exit 2; }
[ ${#only[@]} -gt 0 ] || only=(find lookup create zap xattr memory)

built=${CARGO_TARGET_DIR:-$PWD/target}
cargo build --quiet --release --locked -p zuse-cli --bins
CARGO_TARGET_DIR=$built/bench cargo build --quiet --release --locked --manifest-path bench/driver/Cargo.toml
CARGO_TARGET_DIR=$built/bench cargo build --quiet --release --manifest-path bench/null-fuse/Cargo.toml
CARGO_TARGET_DIR=$built/bench cargo build --quiet --release --manifest-path bench/library/Cargo.toml
bench/get-zfs-fuse.sh >/dev/null || echo "bench: zfs-fuse cannot be had here; going on without it" >&2
failed=0
for which in "${only[@]}"; do
    echo "== $which"
    python3 "bench/published/$which.py" "$size" || failed=1
done
exit $failed
