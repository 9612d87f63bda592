#!/usr/bin/env bash
# The host of a pool with many clients and SIGKILL (tests/suites/hosts.py). Eight processes run random commands, and each knows the
# expected output. Hosts are killed at random moments while commands and mounts are in use. HOSTS_COMMANDS (250) and HOSTS_KILLS (8) are
# the numbers of commands and kills; `make soak` uses 1,000 and 50. HOSTS_SEED repeats a run.
# limit: 600
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "hosts: needs root: mounts in a namespace of its own" >&2; exit 1; }
unset ZUSE_HOST_LINGER
export ZUSE SUITE_TMP XDG_STATE_HOME=$SUITE_TMP/state XDG_RUNTIME_DIR=$SUITE_TMP/run HOME=$SUITE_TMP
mkdir -p "$SUITE_TMP/run"
unshare --mount --pid --fork --kill-child --mount-proc bash -c 'mount --make-rprivate / && exec python3 tests/suites/hosts.py'
scripts/zdb-check "$SUITE_TMP/pool" tank -bcc
