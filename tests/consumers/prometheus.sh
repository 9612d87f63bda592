#!/usr/bin/env bash
# Prometheus's own parser of its text format (PyPI 'prometheus_client') reads the output of `zuse host metrics`. Each family has a type
# and a help text, and no sample occurs twice. Names of datasets that need quoting are parsed correctly.
. "$(dirname "$0")/lib.sh"
venv prometheus prometheus-client==0.21.1

pools ztank
ok zfs create 'ztank/with blank'
ok zfs create ztank/a:b
ok zfs create -V 16M ztank/vol
ok zfs snapshot ztank/a:b@one
head -c 3000000 /dev/urandom >/ztank/a:b/file
ok zpool sync ztank
ok zpool scrub -w ztank
zuse host metrics >page || differs "metrics"
cat >read.py <<'END2'
import sys
from prometheus_client.parser import text_string_to_metric_families as families

seen, wrong, values = set(), [], {}
for family in families(open("page").read()):
    if family.type in ("unknown", "untyped") or not family.documentation:
        wrong.append(f"{family.name}: no type or help")
    if family.type == "counter" and any(s.value < 0 for s in family.samples):
        wrong.append(f"{family.name}: a counter below zero")
    for sample in family.samples:
        key = (sample.name, tuple(sorted(sample.labels.items())))
        if key in seen:
            wrong.append(f"{key} stands twice")
        seen.add(key)
        values[sample.name, sample.labels.get("name") or sample.labels.get("pool")] = sample.value
print("wrong", len(wrong), *wrong[:5])
names = {k[1] for k in values if k[0] == "zfs_dataset_used_bytes"}
print("datasets", *sorted(names), sep="|")
print("used", int(values["zfs_dataset_used_bytes", "ztank/a:b"]))
print("size", int(values["zfs_pool_size_bytes", "ztank"]))
END2
runs read python read.py
is "$(grep wrong read.out)" 'wrong 0' "what the parser finds"
is "$(grep datasets read.out)" 'datasets|ztank|ztank/a:b|ztank/vol|ztank/with blank' "the datasets"
is "$(grep used read.out)" "used $(zfs get -Hp -o value used ztank/a:b)" "the bytes of one"
is "$(grep size read.out)" "size $(zpool get -Hp -o value size ztank)" "the bytes of the pool"
# A scraper comes again and again, over a socket.
zuse host metrics --listen "$T/socket" &
for _ in $(seq 50); do [ -S socket ] && break; sleep 0.1; done
cat >scrape.py <<'END2'
import socket
from prometheus_client.parser import text_string_to_metric_families as families

for _ in range(20):
    s = socket.socket(socket.AF_UNIX)
    s.connect("socket")
    s.sendall(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
    page = b"".join(iter(lambda: s.recv(65536), b""))
    head, _, body = page.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    assert any(f.name == "zfs_pool_size_bytes" for f in families(body.decode()))
END2
runs scrape python scrape.py
kill $!
ok zpool destroy ztank
ended ztank
