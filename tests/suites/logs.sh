#!/usr/bin/env bash
# The log of an encrypted volume, claimed without the key and then replayed with it. OpenZFS's zdb finds both pools consistent, and shows
# the claim in the first one.
# limit: 600
set -euo pipefail
cd "$(dirname "$0")/../.."
top=$PWD

oracle=${ORACLE:-$top/target/oracle}
scripts/openzfs-oracle "$oracle"
export ORACLE=$oracle
ZUSE_LOG_POOLS=$SUITE_TMP cargo test --workspace --locked --quiet --test sim \
    the_log_of_an_encrypted_volume_is_replayed_with_its_key
for state in claimed replayed; do
    scripts/zdb-check "$SUITE_TMP/$state" tank -bcc
done
headers() {
    "$oracle/bin/zdb" -e -p "$SUITE_TMP/$1" -i tank/a/v 2>/dev/null | grep 'ZIL header' || true
}
headers claimed | grep -E 'claim_txg [1-9][0-9]*, claim_blk_seq 1, claim_lr_seq 2 ' || {
    echo "logs: zdb sees no claim: $(headers claimed)" >&2
    exit 1
}
[ -z "$(headers replayed)" ] || { echo "logs: zdb still sees a log: $(headers replayed)" >&2; exit 1; }
