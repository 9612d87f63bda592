#!/bin/bash
# Pools of the versions before features were only read. They are written in the form of their version, and upgraded only on request.
# OpenZFS's zdb finds no leak and no wrong sum in them.
. "$(dirname "$0")/lib.sh"

head -c 300000 /dev/urandom >x
head -c 120000 /dev/urandom >y
sum() { zuse cat "$1" | sha256sum | cut -c1-8; }
sound() {
    ok zpool export "$1"
    says "No leaks" zdb -e -p "$T" -bcc "$1"
    ok zpool import -N -d "$T" "$1"
}
wanted=$(sha256sum <x | cut -c1-8)
for version in 1 11 25; do
    p=old$version
    disk $p 128M
    ok zpool create -f -o version=$version $p "$T/$p"
    ok zfs create $p/a
    ok zuse cp x $p/a:/f
    ok zfs snapshot $p/a@one
    ok zuse cp -f y $p/a:/f
    ok zfs snapshot $p/a@two
    ok zfs clone $p/a@one $p/c
    ok zuse cp y $p/c:/g
    ok zfs destroy $p/a@two
    ok zfs promote $p/c
    ok zuse cp x $p/a:/g
    fails 1 zfs destroy $p/c@one
    sound $p
    is "$(zpool get -H -o value version $p)" $version "the version"
    is "$(sum $p/c:/f)" "$wanted" "the clone's bytes, version $version"
    ok zfs destroy $p/a
    ok zfs destroy $p/c@one
    sound $p
    says "to version 28" zpool upgrade -V 28 $p
    ok zfs snapshot -r $p@later
    sound $p
    ok zpool upgrade $p
    is "$(zpool get -H -o value feature@async_destroy $p)" enabled "features, from version $version"
    ok zfs destroy -r $p/c
    sound $p
    ok zpool export $p
done
