# Sourced by every case in this folder: `. "$(dirname "$0")/lib.sh"` is its first line after the comment that tells its story.
#
# A case is a small script that shows one fault that was found, and fails while the fault is there. It runs as root, in mount and
# process namespaces of its own, so whatever it leaves mounted or running ends with it. It gets
#   T                     an empty scratch folder of its own, in which it stands; others may pass through it
#   zuse zpool zfs zdb    the binary under test, with a state and a run folder of its own
#   disk NAME [SIZE]      makes $T/NAME, a sparse file of 256M or SIZE
#   is GOT WANTED WHAT    says what differs, and makes the case fail at its end
#   ok COMMAND…           must end with status 0
#   fails STATUS COMMAND… must end with that status (a signal's or a time-out's never counts as a refusal)
#   says TEXT COMMAND…    must print TEXT (a fixed string), on either stream
#   silent TEXT COMMAND…  must not print it
#   mounts                what this case has mounted with zuse, a line of dataset and directory each
#   hosts, gone           the processes that hold pools here; waits until there are none
# A case continues after a difference, so that one run shows all of them.
set -u
: "${ZUSE:?the binary under test}"
if [ -z "${CASE_INSIDE:-}" ]; then
    CASE_INSIDE=1 ZUSE=$(readlink -f "$ZUSE") exec unshare --mount --pid --fork --kill-child --mount-proc "$BASH" "$0" "$@"
fi
mount --make-rprivate /
CASES=$(cd "$(dirname "$0")" && pwd)
T=$(mktemp -d "${SUITE_TMP:-${TMPDIR:-/tmp}}/case.XXXXXX") || exit 2
mkdir -p "$T"/.own/{bin,home,state,run}
chmod 755 "$T"
chmod 700 "$T/.own/run"
for name in zuse zpool zfs zdb; do ln -s "$ZUSE" "$T/.own/bin/$name"; done
export PATH=$T/.own/bin:$PATH HOME=$T/.own/home XDG_STATE_HOME=$T/.own/state XDG_RUNTIME_DIR=$T/.own/run
# Only cases that test hosts have hosts: they set HOSTS=1 before this file is sourced.
[ -n "${HOSTS:-}" ] || export ZUSE_HOST_LINGER=0
cd "$T" || exit 2
differences=0

case_end() {
    local code=$?
    cd /
    awk -v t="$T/" 'index($2, t) == 1 { print $2 }' /proc/mounts | tac | xargs -r umount -l
    rm -rf --one-file-system "$T"
    [ "$code" = 0 ] || exit "$code"
    [ "$differences" = 0 ] || exit 1
}
trap case_end EXIT

disk() { truncate -s "${2:-256M}" "$T/$1"; }
differs() { differences=$((differences + 1)); printf 'DIFFERS: %s\n' "$*"; }
is() { [ "$1" = "$2" ] || differs "$3: got '$1', wanted '$2'"; }
ok() { fails 0 "$@"; }
fails() {
    local wanted=$1 got=0 out
    shift
    out=$("$@" 2>&1 </dev/null) || got=$?
    [ "$got" = "$wanted" ] || differs "status $got instead of $wanted: $*: $(head -c 300 <<<"$out")"
}
says() {
    local out
    out=$("${@:2}" 2>&1 </dev/null) || true
    grep -qF -e "$1" <<<"$out" || differs "'$1' is missing in what was printed: ${*:2}: $(head -c 300 <<<"$out")"
}
silent() {
    local out
    out=$("${@:2}" 2>&1 </dev/null) || true
    grep -qF -e "$1" <<<"$out" && differs "'$1' was printed: ${*:2}: $(head -c 300 <<<"$out")"
    return 0
}
mounts() { awk -v t="$T/" '$3 == "fuse.zuse" && index($2, t) == 1 { print $1, $2 }' /proc/mounts; }
# Waits for a moment until no host is left.
gone() { for _ in $(seq 30); do [ -n "$(hosts)" ] || return 0; sleep 0.1; done; }
hosts() { pgrep -f ' serve --(first|host|take-over)( |$)' || true; }
