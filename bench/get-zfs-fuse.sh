#!/usr/bin/env bash
# Unpacks Debian 12's zfs-fuse and the libraries it needs into a folder, without installing them: its zpool, zfs and zdb would shadow others.
#
#   bench/get-zfs-fuse.sh [DIR]      default target/bench/zfs-fuse; prints DIR
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
dir=${1:-$top/target/bench/zfs-fuse}
if [ ! -x "$dir/sbin/zfs-fuse" ]; then
    mkdir -p "$dir"
    scratch=$(mktemp -d "$dir/fetch.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    cd "$scratch"
    packages=(zfs-fuse libfuse2 libaio1 libtirpc3 libtirpc-common)
    apt-get -qq -o APT::Sandbox::User= download "${packages[@]}" >&2 || { apt-get -qq update >&2; apt-get -qq -o APT::Sandbox::User= download "${packages[@]}" >&2; }
    for deb in ./*.deb; do dpkg-deb --extract "$deb" "$dir"; done
fi
echo "$dir"
