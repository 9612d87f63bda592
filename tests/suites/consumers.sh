#!/usr/bin/env bash
# Clients of ZFS do their main job, unchanged, on pools of Zuse (tests/consumers/). Those named as arguments in CONSUMERS run alone:
#   CONSUMERS="syncoid bzfs" scripts/run-suites consumers
# Without it only the quick ones run. All of them, with all of their own tests: scripts/soak consumers
# limit: 600
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "consumers: needs root: they mount where ZFS mounts" >&2; exit 1; }

passed=0 failed=0
for file in tests/consumers/*.sh; do
    name=$(basename "$file" .sh)
    [ "$name" != lib ] || continue
    grep -qwF -e "$name" <<<"${CONSUMERS:-sanoid syncoid zfs-autobackup}" || continue
    start=$SECONDS code=0
    timeout --kill-after=5 "${CONSUMER_SECONDS:-150}" bash "$file" >"$SUITE_TMP/$name.out" 2>&1 || code=$?
    if [ "$code" = 0 ]; then
        passed=$((passed + 1))
        echo "consumer $name: right ($((SECONDS - start)) s)"
    else
        failed=$((failed + 1))
        echo "consumer $name: WRONG with $code"
        tail -n 40 "$SUITE_TMP/$name.out" | sed 's/^/    /'
    fi
done
echo "consumers: $passed right, $failed wrong"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
