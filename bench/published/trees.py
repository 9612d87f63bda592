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


def per_file(record, what, beside=()):
    """Microseconds a file by row and column, of the best run and of the middle one, and what lies between the largest and the smallest of them.
    `beside` are other columns that are shown, and not compared."""
    own = [c for c in record.columns() if c.startswith(what)]
    columns = own + [c for c in beside if c in record.columns()]
    lines = [f"| {what}, µs a file, best / middle | " + " | ".join(c.removeprefix(what).strip() for c in columns) + " |", "|---|" + "---:|" * len(columns)]
    all_ = {"seconds": [], "median": []}
    for row in record.rows():
        files = int(row.replace(",", ""))
        cells = []
        for column in columns:
            each = [record.seconds(row, column, which) for which in all_]
            if not all(each):
                cells.append("–")
                continue
            each = [seconds / files * 1e6 for seconds in each]
            cells.append(" / ".join(f"{e:.2f}" for e in each))
            if column in own:
                for of, e in zip(all_.values(), each):
                    of.append(e)
        if any(cell != "–" for cell in cells[: len(own)]):
            lines.append(f"| {row} | " + " | ".join(cells) + " |")
    if not all_["seconds"]:
        return ""
    best, middle = (max(of) / min(of) for of in all_.values())
    return "\n".join(lines) + f"\n\n{what.capitalize()}, largest ÷ smallest: {best:.2f} of the best runs, {middle:.2f} of the middle ones."
