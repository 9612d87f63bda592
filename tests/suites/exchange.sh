#!/usr/bin/env bash
# Devices are exchanged under load while the hosts are killed: two rounds of the case `exchange-killed`, of which `scripts/soak exchange`
# runs ten. It needs root, as the cases do.
# limit: 300
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "exchange: needs root: it uses namespaces" >&2; exit 1; }
ROUNDS=2 SEED=${SEED:-5} bash tests/cases/exchange-killed.sh
