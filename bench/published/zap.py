#!/usr/bin/env python3
"""ZAPs by themselves, in the library: opening a full micro ZAP, adding names at every size and setting, random look-ups, and a
directory that was emptied."""

from common import SCRATCH, bars, begin, example, size
from trees import settings

SIZE = size()
ROUNDS = {"smoke": 1, "ci": 2, "full": 3}[SIZE]
# Names per ZAP, and names in all.
SIZES = {"smoke": (7, 2_000), "ci": (7, 100, 2_000, 10_000, 100_000, 1_000_000), "full": (7, 100, 2_000, 10_000, 100_000, 1_000_000)}[SIZE]
TOTAL = {"smoke": 20_000, "ci": 1_000_000, "full": 2_000_000}[SIZE]
CHURN = {"smoke": 5_000, "ci": 1_000_000, "full": 1_000_000}[SIZE]


def main():
    record = begin("zap", "ZAPs by themselves", SIZE, f"{TOTAL:,} names in all; columns are zap_micro_max_size/ibs")
    image = SCRATCH / "zap.img"
    opened = example("directories", "zap-open")[0]
    record.data["open"] = opened
    lines = [
        f"Opening a full micro ZAP of 2,047 entries (hash and order): {opened['seconds'] * 1e6:.1f} µs; a B-tree of the same by insertion takes "
        f"{opened['btree_ratio']:.1f} times as long; 8 bytes an entry and {round((opened['bytes_per_entry'] - 8) * 2047)} for the index itself.",
    ]

    columns = [name for name, _, _ in settings()]
    rates = {}
    for count in SIZES:
        found = {name: [] for name, _, _ in settings()}
        for _ in range(ROUNDS):
            for name, micro, ibs in settings():
                words = ("--micro-max", micro, "--ibs", ibs, "--size", 8 << 10, "--cache", 512)
                # So many that txgs are written while others grow, at every size.
                found[name] += example("directories", "zap-add", image, TOTAL, count, *words)[:1]
                image.unlink()
        for name, runs in found.items():
            record.add(f"add {count:,}", name, runs)
            rates[count, name] = max(r["rate"] for r in runs)
    table = ["| names added a second, by names per ZAP | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    table += [f"| {count:,} | " + " | ".join(f"{rates[count, c]:,.0f}" for c in columns) + " |" for count in SIZES]
    lines.append("\n".join(table) + "\n\nSyncs of the txgs are counted in. In ZAPs of 7 names the most part is making and writing an object for each.")

    looks = {}
    for count in SIZES[-4:] if SIZE != "smoke" else SIZES[1:]:
        runs = []
        for _ in range(ROUNDS):
            words = ("--micro-max", 131_072, "--ibs", 17, "--size", 8 << 10, "--cache", 1024)
            runs.append(example("directories", "zap-lookup", image, count, *words)[0])
        record.add(f"look up {count:,}", "128K/17", runs)
        looks[count] = max(r["rate"] for r in runs)
        image.unlink()
    table = ["| random look-ups a second, warm, by names in the ZAP | 128K/17 |", "|---|---:|"]
    table += [f"| {count:,} | {rate:,.0f} |" for count, rate in looks.items()]
    lines.append("\n".join(table))

    removed, *lists = example("directories", "churn", image, CHURN, "--size", 16 << 10, "--cache", 512)
    record.data["churn"] = [removed, *lists]
    listed = min(lists, key=lambda run: run["seconds"])
    first = lists[0]["seconds"] * 1e3
    lines.append(
        f"A directory of {CHURN:,} files, all removed: {removed['rate']:,.0f} removals a second; listing it with an empty cache takes "
        f"{listed['seconds'] * 1e3:.2f} ms, the best of {len(lists)} (the first: {first:.2f}), and reads the device {listed['reads']} times; its dnode holds {listed['used_empty'] / 1024:.1f} KiB "
        f"(it held {listed['used_full'] / (1 << 20):.1f} MiB)."
    )
    record.zdb("the emptied directory's pool", image)
    image.unlink()

    picture = bars("names added to ZAPs", "thousands a second, by names per ZAP", [f"{c:,}" for c in SIZES],
                   {c: [rates[n, c] / 1000 for n in SIZES] for c in columns})
    record.write("\n\n".join(lines), {"": picture})


main()
