"""Settings that the tables about directories vary: files per directory, zap_micro_max_size, indirect block shift."""

MICRO = {"128K": 131_072, "1M": 1_048_576}
IBS = (15, 17)
# In so many files of one directory the mounts and their peers are measured at full size only.
HUGE = 1_000_000
COUNTS = {
    "smoke": (2_047,),
    "ci": (2_047, 16_838, 64_000, 1_000_000),
    "full": (2_047, 16_838, 64_000, 1_000_000),
}


def settings():
    """(column, zap_micro_max_size, ibs)"""
    return [(f"{name}/{ibs}", micro, ibs) for name, micro in MICRO.items() for ibs in IBS]


def relative(record, what, base):
    """A table like the talk's: each time divided by that of a base (row, column), or by the row's best if base is None."""
    columns = [c for c in record.columns() if c.startswith(what)]
    if not columns:
        return ""
    lines = [f"| {what}, relative | " + " | ".join(c.removeprefix(what).strip() for c in columns) + " |", "|---|" + "---:|" * len(columns)]
    for row in record.rows():
        found = [record.seconds(row, c) for c in columns]
        if not any(found):
            continue
        one = record.seconds(*base) if base else min(s for s in found if s)
        lines.append(f"| {row} | " + " | ".join("–" if not s else f"{s / one:.2f}" for s in found) + " |")
    return "\n".join(lines)


def per_file(record, what, least):
    """Microseconds a file by row and column, and the quotient of the largest and the smallest of them all."""
    columns = [c for c in record.columns() if c.startswith(what)]
    lines = [f"| {what}, µs a file | " + " | ".join(c.removeprefix(what).strip() for c in columns) + " |", "|---|" + "---:|" * len(columns)]
    all_ = []
    for row in record.rows():
        files = max(least, int(row.replace(",", "")))
        found = [record.seconds(row, c) for c in columns]
        if not any(found):
            continue
        each = [None if not s else s / files * 1e6 for s in found]
        all_ += [e for e in each if e]
        lines.append(f"| {row} | " + " | ".join("–" if not e else f"{e:.2f}" for e in each) + " |")
    if not all_:
        return ""
    return "\n".join(lines) + f"\n\nLargest ÷ smallest of them: {max(all_) / min(all_):.2f}."
