# Sourced by every client's script in this folder: `. "$(dirname "$0")/lib.sh"`. It is tests/cases/lib.sh and what clients need beside it.
#
# A client is a program of others that is made for ZFS. Its script fetches a pinned version with an ordinary package manager into
# target/consumers/, which is kept between runs. It then runs the client's main job, unchanged, on pools of Zuse. What cannot be fetched
# is a failure.
#   debs NAME[=VERSION]…  unpacks Debian packages into $KEPT/deb, without what they depend on
#   has COMMAND:PACKAGE…  installs Debian packages that have nothing to do with ZFS, where the command (or file) is missing
#   venv NAME WANTED…     makes $KEPT/venv-NAME with these PyPI packages, and puts its commands into PATH
#   cannot SENTENCE…      says why nothing could be checked, and fails
#   installed             from here on zfs, zpool and the helper of `mount -t zfs` are in /usr/sbin, as where Zuse is installed for all
#   pools NAME…           makes pools of these names, of a file each, mounted where ZFS mounts them
#   ended                 no pool is imported any more: no process of Zuse's and no mountpoint may be left, and no socket
#   runs NAME COMMAND…    must end with status 0; its output is in $T/NAME.out
# RECORD=FILE keeps the command lines with which clients call zfs and zpool in FILE: sorted, names of the run taken out (corpus/).
[ -z "${RECORD:-}" ] || RECORD=$(realpath -m "$RECORD") # before it stands elsewhere
export RECORD
HOSTS=1
unset ZUSE_HOST_LINGER # the suites turn hosts off
. "$(dirname "$0")/../cases/lib.sh"
TOP=$(cd "$CASES/../.." && pwd)
KEPT=$TOP/target/consumers
mkdir -p "$KEPT"
export PIP_CACHE_DIR=$KEPT/pip GOPATH=$KEPT/go GOCACHE=$KEPT/gocache PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
export LC_ALL=C.UTF-8 TZ=UTC
mounts_before=$(cut -d ' ' -f 2 /proc/mounts | sort)

if [ -n "${RECORD:-}" ]; then
    for name in zfs zpool; do
        ln -s "$ZUSE" "$T/.own/$name"
        rm "$T/.own/bin/$name"
        # What the script itself calls is no client's: its functions below step over the wrapper.
        cat >"$T/.own/bin/$name" <<END
#!/bin/bash
[ -n "\${OWN_CALL:-}" ] || printf '%s\n' "$name\$(printf ' %q' "\$@")" >>"$T/.own/argv"
[ -z "\${FAKE:-}" ] || [ "\$1" != --version ] || { echo zfs-2.3.2-1; echo zfs-kmod-2.3.2-1; exit 0; }
exec "$T/.own/$name" "\$@"
END
        chmod 755 "$T/.own/bin/$name"
    done
    zfs() { OWN_CALL=1 command zfs "$@"; }
    zpool() { OWN_CALL=1 command zpool "$@"; }
fi

# Leaves out what differs from run to run: folders, dates, guids, tokens, process and host names.
normalised() {
    sed -E -e "s|$T|/T|g; s|$KEPT|/KEPT|g; s|$(hostname)|HOST|g; s#\bz(tank|backup)\b#\1#g" \
        -e 's/[0-9]{4}-[0-9]{2}-[0-9]{2}[_:T-]?[0-9]{2}[:-]?[0-9]{2}[:-]?[0-9]{2}(-GMT[0-9+-]*)?/DATE/g; s/\b[0-9]{14}\b/DATE/g' \
        -e 's/\b1-[0-9a-f]+-[0-9a-f]+-[0-9a-f]{60,}/TOKEN/g; s/\b[0-9]{16,20}\b/GUID/g; s/_[0-9]{16,20}(_|\b)/_GUID\1/g' \
        -e 's/[0-9]{8}_[0-9]{6}(_[0-9]{3})?/DATE/g; s/_G_[0-9a-f]{16}_/_G_GUID_/g' \
        -e 's/\b1[0-9]{9}\b/TIME/g; s/(TMPBZFS\.[^.]+)\.[^ ]+/\1.X/g; s/[0-9]{4}x{20,}/Nx/g; s/batch_[0-9]+/batch_N/g' \
        -e 's#(^| |=|file://)/tmp/([^ \\]|\\.)*#\1/tmp/X#g' |
        LC_ALL=C sort -u
}

made=()
consumer_end() {
    local code=$? dir
    if [ -s "$T/.own/argv" ]; then
        mkdir -p "$(dirname "$RECORD")"
        normalised <"$T/.own/argv" >"$RECORD"
    fi
    [ ${#made[@]} = 0 ] || umount -l "${made[@]}" 2>/dev/null
    for dir in "${made[@]}"; do
        find "$dir" -xdev -depth -type d -exec rmdir {} + 2>/dev/null
    done
    (exit "$code")
    case_end
}
trap consumer_end EXIT

cannot() {
    echo "$(basename "$0" .sh): $*: nothing was checked" >&2
    exit 3
}

debs() {
    local one name
    for one in "$@"; do
        name=${one%%=*}
        [ ! -e "$KEPT/deb/.$one" ] || continue
        mkdir -p "$KEPT/deb"
        (
            cd "$(mktemp -d -p "$T/.own")" || exit
            apt-get download -qq "$one" || { apt-get update -qq && apt-get download -qq "$one"; } || exit
            dpkg -x "$name"_*.deb "$KEPT/deb"
        ) >"$T/.own/debs.log" 2>&1 || cannot "cannot download the Debian package '$one': $(tail -n 1 "$T/.own/debs.log")"
        touch "$KEPT/deb/.$one"
    done
    [ -x "$KEPT/deb/usr/sbin" ] && PATH=$PATH:$KEPT/deb/usr/sbin
    return 0
}

has() {
    local pair missing=()
    for pair in "$@"; do
        [ -e "${pair%%:*}" ] || command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    DEBIAN_FRONTEND=noninteractive apt-get install -o DPkg::Lock::Timeout=120 -y -qq --no-install-recommends "${missing[@]}" >"$T/.own/has.log" 2>&1 ||
        cannot "cannot install the Debian packages ${missing[*]}: $(tail -n 1 "$T/.own/has.log")"
}

venv() {
    local dir=$KEPT/venv-$1
    shift
    if [ "$(cat "$dir/.wanted" 2>/dev/null)" != "$*" ]; then
        rm -rf "$dir"
        { python3 -m venv "$dir" && "$dir/bin/pip" install -q "$@"; } >"$T/.own/venv.log" 2>&1 ||
            cannot "cannot install from PyPI: $*: $(tail -n 1 "$T/.own/venv.log")"
        echo "$*" >"$dir/.wanted"
    fi
    PATH=$dir/bin:$PATH
}

# /usr/sbin cannot be written to for a test: a layer over it, in this namespace.
installed() {
    mkdir -p "$T/.own/sbin"
    cp -P "$T"/.own/bin/{zfs,zpool,zdb} "$T/.own/sbin"
    ln -s "$ZUSE" "$T/.own/sbin/mount.zfs"
    mount -t overlay consumers -o "lowerdir=$T/.own/sbin:/usr/sbin" /usr/sbin || cannot "cannot lay a folder over /usr/sbin"
    mounts_before=$(cut -d ' ' -f 2 /proc/mounts | sort)
}

pools() {
    local pool
    for pool in "$@"; do
        [ ! -e "/$pool" ] || cannot "/$pool is there already"
        made+=("/$pool")
        disk "$pool.img" 512M
        ok zpool create "$pool" "$T/$pool.img"
        is "$(zfs get -H -o value mounted "$pool")" yes "whether $pool is mounted"
    done
}

# The processes of the binary under test in this namespace.
processes() {
    local exe
    for exe in /proc/[0-9]*/exe; do
        [ "$(readlink "$exe")" != "$ZUSE" ] || tr '\0' ' ' <"${exe%exe}cmdline"
    done 2>/dev/null
}

ended() {
    is "$(zpool list -H -o name 2>/dev/null)" '' "pools that are still imported"
    for _ in $(seq 30); do
        [ -n "$(processes)" ] || break
        sleep 0.1
    done
    is "$(processes)" '' "processes left behind"
    is "$(comm -13 <(echo "$mounts_before") <(cut -d ' ' -f 2 /proc/mounts | sort) | tr '\n' ' ')" '' "mounts left behind"
    is "$(find "$XDG_RUNTIME_DIR" "${XDG_STATE_HOME:-$HOME/.local/state/zuse}" -type s 2>/dev/null)" '' "sockets left behind"
    local pool
    for pool in "$@"; do
        [ ! -e "/$pool" ] || { differs "/$pool is left behind"; rmdir "/$pool"; }
    done
}

runs() {
    local name=$1 got=0
    shift
    "$@" >"$T/$name.out" 2>&1 </dev/null || got=$?
    [ "$got" = 0 ] || { differs "status $got of $*:"; tail -n 15 "$T/$name.out" | sed 's/^/    /'; }
}
