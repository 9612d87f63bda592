#!/usr/bin/env bash
# The faults that were found by using Zuse with real clients and comparing it with OpenZFS, one small script each (tests/cases/). A case may
# take a minute; those named as arguments in CASES run alone:  CASES="copied destroyed" scripts/run-suites cases
# limit: 900
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "cases: needs root: they act as other users and use namespaces" >&2; exit 1; }

# Tools that cases need besides those of every Debian; a missing one is a failure.
missing=()
for pair in setfacl:acl setfattr:attr mkfs.ext4:e2fsprogs python3:python3 zstd:zstd setpriv:util-linux; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
done
if [ ${#missing[@]} -gt 0 ]; then
    apt-get install -o DPkg::Lock::Timeout=120 -y -qq --no-install-recommends "${missing[@]}" >/dev/null || {
        echo "cases: missing: ${missing[*]}" >&2
        exit 1
    }
fi

passed=0 wrong=()
for file in tests/cases/*.sh; do
    name=$(basename "$file" .sh)
    [ "$name" != lib ] || continue
    [ -z "${CASES:-}" ] || grep -qwF -e "$name" <<<"$CASES" || continue
    if [ -z "${CASES:-}" ] && grep -q '^# only where it is asked for' "$file"; then
        echo "case $name: not run: CASES=$name scripts/run-suites cases runs it"
        continue
    fi
    start=$SECONDS code=0
    timeout --kill-after=5 "${CASE_SECONDS:-90}" bash "$file" >"$SUITE_TMP/$name.out" 2>&1 || code=$?
    if [ "$code" = 0 ]; then
        passed=$((passed + 1))
        echo "case $name: right ($((SECONDS - start)) s)"
    else
        wrong+=("$name")
        echo "case $name: WRONG with $code"
        tail -n 12 "$SUITE_TMP/$name.out" | sed 's/^/    /'
    fi
done
# What was wrong is said again at the end, where nobody can miss it.
for name in "${wrong[@]}"; do
    echo "case $name was WRONG:"
    tail -n 12 "$SUITE_TMP/$name.out" | sed 's/^/    /'
done
echo "cases: $passed right, ${#wrong[@]} wrong${wrong[*]:+ (${wrong[*]})}"
[ ${#wrong[@]} = 0 ] && [ "$passed" -gt 0 ]
