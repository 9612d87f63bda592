"""What the published tables' scripts share: sizes, timing, the library's rates, results as JSON, tables and pictures. Standard library only."""

import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import bench  # noqa: E402
import peers  # noqa: E402
from peers import BUILD, BUILT, TOP, Zuse, drop_kernel_caches, run, zdb_says  # noqa: E402,F401

DRIVER = BUILT / "release" / "bench-driver"
LIBRARY = BUILT / "release"
RESULTS = TOP / "bench" / "results"
# What the smallest image holds by its tools' own measure (ext4: an inode for each 16 KiB of 12 GiB).
FILES_ANY_IMAGE_HOLDS = 700_000
PAGE = TOP / "docs" / "performance.md"
SCRATCH = TOP / "target" / "bench" / "published"
COLORS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5")


def size():
    """"smoke", "ci" or "full", from the command line."""
    words = [word for word in sys.argv[1:] if word in ("--smoke", "--ci", "--full")]
    if len(words) != 1 or len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} --ci|--full")
    return words[0][2:]


def evict(path):
    """Takes a file out of the host's page cache."""
    os.sync()
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    drop_kernel_caches()


def at_hand(*programs):
    """Brings programs back into the page cache: what is dropped is what they have read."""
    for program in programs:
        with open(program, "rb") as file:
            while file.read(1 << 20):
                pass


def example(name, *words):
    """Runs one of the programs of `bench/library`; its lines of JSON."""
    text = run(LIBRARY / name, *words)
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def timed(*command, cwd=None):
    """Seconds of a command as hyperfine takes them, one run: before each one, caches are dropped in ways a shell line cannot."""
    words = [str(word) for word in command]
    if shutil.which("hyperfine"):
        out = SCRATCH / "hyperfine.json"
        run("hyperfine", "--style", "none", "--shell", "none", "--runs", "1", "--export-json", out, shlex.join(words), cwd=cwd)
        result = json.loads(out.read_text())["results"][0]
        return {"seconds": result["mean"], "user": result["user"], "system": result["system"], "timer": "hyperfine"}
    start = time.perf_counter()
    subprocess.run(words, cwd=cwd, check=True, stdout=subprocess.DEVNULL)
    return {"seconds": time.perf_counter() - start, "timer": "clock"}


def driver(*words):
    """A row of bench-driver, by its own clock."""
    return json.loads(run(DRIVER, *words))


def set_and_get(peer, tree, files_dirs_bytes):
    """Makes files in a new tree, sets one extended attribute on each and gets it again, each time with caches dropped: `set` and `get` with
    their results."""
    files, dirs, _ = files_dirs_bytes
    driver("create", tree, files, dirs, 0)
    for what in ("set", "get"):
        peer.cold()
        at_hand(DRIVER, *([peer.binary] if isinstance(peer, peers.FuseServer) else []))
        result = driver(f"{what}xattr", tree, *files_dirs_bytes)
        if what == "set" and isinstance(peer, peers.Zuse):
            start = time.perf_counter()  # FUSE does not pass syncfs on
            peer.zuse("zpool", "sync", peer.pool)
            result["synced"] += time.perf_counter() - start
        yield what, result


class Record:
    """Results of one table. A result is a row, a column and all its runs; the best counts."""

    def __init__(self, name, title, size, setting):
        SCRATCH.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.waiting = []
        self.began = time.monotonic()
        self.data = {
            "name": name,
            "title": title,
            "size": size,
            "setting": setting,
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "machine": bench.machine(),
            "results": [],
            "zdb": {},
            "not_run": {},
        }

    def add(self, row, column, runs, scale=1, **more):
        """The best of runs, and the middle one; scale makes it that of as many files as were published."""
        best = min(r["seconds"] for r in runs) * scale
        median = statistics.median(r["seconds"] for r in runs) * scale
        self.data["results"].append({"row": row, "column": column, "seconds": best, "median": median, "scale": scale, "runs": runs, **more})
        print(f"  {row} | {column}: {best:.3f} s", flush=True)

    def seconds(self, row, column, which="seconds"):
        """The best, or the `median`."""
        found = [r[which] for r in self.data["results"] if (r["row"], r["column"]) == (row, column)]
        return min(found) if found else None

    def rows(self):
        return list(dict.fromkeys(r["row"] for r in self.data["results"]))

    def columns(self):
        return list(dict.fromkeys(r["column"] for r in self.data["results"]))

    def zdb(self, what, image, pool="tank"):
        """Asks OpenZFS's zdb about an exported pool, when all is measured: it takes seconds before it begins. The image may go meanwhile."""
        folder = SCRATCH / f"zdb-{len(self.waiting)}"
        folder.mkdir()
        os.link(image, folder / "disk.img")
        self.waiting.append((what, folder, pool))

    def zdb_of_peer(self, what, peer):
        """The same of a mounted Zuse, which is stopped."""
        peer.detach()
        peer.zuse("zpool", "export", peer.pool)
        self.zdb(what, peer.image, peer.pool)

    def no_zdb(self, what, why):
        self.data["zdb"][what] = why
        print(f"  zdb of {what}: {why}", flush=True)

    def ask_zdb(self):
        """Three at once: they mostly wait."""

        def ask(waiting):
            what, folder, pool = waiting
            says = zdb_says(folder / "disk.img", pool)
            shutil.rmtree(folder)
            return what, says

        with concurrent.futures.ThreadPoolExecutor(3) as threads:
            for what, says in threads.map(ask, self.waiting):
                self.no_zdb(what, says)
        self.waiting = []

    def missing(self, what, why):
        self.data["not_run"][what] = str(why)
        print(f"  not run: {what}: {why}", flush=True)

    def table(self, quotients=(), columns=None):
        """Markdown: a line per row, seconds per column, then quotients (title, column, column, and "median" where it is of those)."""
        columns = columns or self.columns()
        head = ["", *columns, *(q[0] for q in quotients)]
        lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
        for row in self.rows():
            cells = [row]
            for column in columns:
                s = self.seconds(row, column)
                cells.append("–" if s is None else f"{s:.3f}" if s < 10 else f"{s:.1f}")
            for _, a, b, *which in quotients:
                x, y = self.seconds(row, a, *which), self.seconds(row, b, *which)
                cells.append(f"{x / y:.2f}" if x and y else "–")
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines)

    def notes(self):
        info = self.data["machine"]
        lines = [
            f"Seconds, the best run; {self.data['size']} size ({self.data['setting']}); {info.get('cpu', 'unknown CPU')}, {info['cpus']} CPUs, "
            f"{info['memory_kib'] / (1 << 20):.0f} GiB, Linux {info['kernel']}; commit {info['commit']}, {self.data['date'][:10]}; "
            f"load at the start {self.data['load']:.1f}."
        ]
        if not info["root"]:
            lines.append("Not run as root: caches called dropped were warm.")
        bad = {what: says for what, says in self.data["zdb"].items() if says != "sound"}
        if self.data["zdb"] and not bad:
            lines.append("OpenZFS's `zdb -bcc` finds the pools that this left sound.")
        lines += [f"zdb of {what}: {says}." for what, says in bad.items()]
        lines += [f"Not run: {what}: {why}." for what, why in self.data["not_run"].items()]
        return " ".join(lines)

    def write(self, text, pictures):
        """JSON, SVG (file name suffix to text) and the page's part between this table's marks. The full size stands by itself, behind the
        other one."""
        self.ask_zdb()
        self.data["took"] = round(time.monotonic() - self.began)
        print(f"  {self.name}: {self.data['took']} s in all", flush=True)
        # A smoke run shows that the script works; its figures are nobody's.
        folder = SCRATCH if self.data["size"] == "smoke" else RESULTS
        folder.mkdir(exist_ok=True)
        full = self.data["size"] == "full"
        name, base = (f"{self.name} full", f"published-{self.name}-full") if full else (self.name, f"published-{self.name}")
        (folder / f"{base}.json").write_text(json.dumps(self.data, indent=1) + "\n")
        links = []
        for suffix, svg in pictures.items():
            (folder / f"{base}{suffix}.svg").write_text(svg)
            links.append(f"![{self.data['title']}](../bench/results/{base}{suffix}.svg)")
        whole = "\n".join([text, "", *links, "", self.notes()])
        if self.data["size"] == "smoke":
            print(whole)
            return
        page = PAGE.read_text()
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        if full and begin not in page:
            behind = f"<!-- end {self.name} -->\n"
            page = page.replace(behind, f"{behind}\n{begin}{end}\n", 1)
        marked = re.compile(f"({begin}).*?({end})", re.S)
        if not marked.search(page):
            sys.exit(f"{PAGE}: no marks for {name}")
        PAGE.write_text(marked.sub(lambda m: m[1] + whole + "\n" + m[2], page))


def load():
    return os.getloadavg()[0]


def escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def bars(title, unit, groups, series, log=False):
    """A bar chart as SVG: groups are labels below, series map a name to a value (or None) per group. The value stands on its bar."""
    import math

    left, top, height, foot = 64, 76, 260, 56
    bar = 26 if len(series) <= 6 else 20
    wide = bar * len(series) + 22
    width = max(560, left + wide * len(groups) + 20)
    values = [v for s in series.values() for v in s if v]
    most, least = max(values, default=1), min(values, default=1)
    if log:
        low, high = math.floor(math.log10(least)), math.ceil(math.log10(most * 1.05))
        high = max(high, low + 1)
        ticks = [10.0**e for e in range(low, high + 1)]
        place = lambda v: (math.log10(v) - low) / (high - low)  # noqa: E731
    else:
        step = 10 ** math.floor(math.log10(most / 4 or 1))
        step = next(step * m for m in (1, 2, 5, 10) if most / (step * m) <= 5)
        ticks = [step * i for i in range(int(most / step) + 2)]
        place = lambda v: v / ticks[-1]  # noqa: E731
    nice = lambda v: f"{v:.0f}" if v >= 100 else f"{v:.3g}"  # noqa: E731
    short = lambda v: f"{v:.0f}" if v >= 10 else f"{v:.2g}"  # noqa: E731
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top + height + foot}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left}" y="22" font-size="15" font-weight="bold">{escape(title)}</text>',
        f'<text x="{left}" y="40" fill="#555">{escape(unit)}{", logarithmic" if log else ""}</text>',
    ]
    x = left
    for i, name in enumerate(series):
        out.append(f'<rect x="{x}" y="50" width="11" height="11" fill="{COLORS[i % len(COLORS)]}"/>')
        out.append(f'<text x="{x + 15}" y="60">{escape(name)}</text>')
        x += 30 + 7 * len(name)
    width = max(width, x + 10)
    out[0] = re.sub(r'width="\d+"', f'width="{width}"', out[0], count=1)
    for tick in ticks:
        y = top + height * (1 - place(tick))
        out.append(f'<line x1="{left}" y1="{y:.1f}" x2="{width - 10}" y2="{y:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{nice(tick)}</text>')
    for g, group in enumerate(groups):
        start = left + 11 + g * wide
        for i, values in enumerate(series.values()):
            if values[g] is None:
                continue
            tall = max(1.0, height * place(values[g]))
            at = start + i * bar
            y = top + height - tall
            out.append(f'<rect x="{at}" y="{y:.1f}" width="{bar - 3}" height="{tall:.1f}" fill="{COLORS[i % len(COLORS)]}"/>')
            out.append(f'<text x="{at + (bar - 3) / 2}" y="{y - 3:.1f}" text-anchor="middle" font-size="8">{short(values[g])}</text>')
        middle = start + bar * len(series) / 2
        out.append(f'<text x="{middle}" y="{top + height + 18}" text-anchor="middle">{escape(group)}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def chart(record, title, unit, columns=None, rows=None, log=False, labels=None):
    """The record's seconds as bars: a group per row, a series per column."""
    columns = columns or record.columns()
    rows = rows or record.rows()
    series = {c: [record.seconds(r, c) for r in rows] for c in columns}
    return bars(title, unit, labels or rows, series, log)


def begin(name, title, size_, setting):
    record = Record(name, title, size_, setting)
    record.data["load"] = load()
    # What a run that was interrupted has left mounted.
    with open("/proc/self/mounts") as mounts:
        left = [line.split()[1].replace("\\040", " ") for line in mounts]
    for folder in left:
        if folder.startswith(f"{SCRATCH}/"):
            run("umount", "-l", folder)
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True, exist_ok=True)
    return record


def put_away(peer):
    """Ends a peer and removes what it leaves, unless that is still mounted."""
    try:
        peer.stop()
    except Exception as error:  # noqa: BLE001: one peer's trouble is not the others'
        print(f"  {peer.name} could not be stopped: {error}", flush=True)
    if not peers.is_mounted(peer.mount):
        shutil.rmtree(peer.scratch, ignore_errors=True)


def holding(kind, files, bytes_each=1536):
    """The kind of peer, with an image that so many files fit into."""
    more = {"image_bytes": max(kind.image_bytes, files * bytes_each)}
    if files > FILES_ANY_IMAGE_HOLDS:
        more["inodes"] = files + files // 16
    return type(kind.__name__, (kind,), more)


def left_out(peer):
    """Why a peer is not measured, if it is not."""
    left = os.environ.get("ZUSE_BENCH_WITHOUT", "").split()
    return "left out by ZUSE_BENCH_WITHOUT" if peer.name in left else peer.missing()


def each_peer(record, kinds, work):
    """Calls work(peer, folder) on a new one of each kind; what fails is noted, and the others go on."""
    for kind in kinds:
        peer = kind(SCRATCH)
        why = left_out(peer)
        if why:
            record.missing(peer.name, why)
            continue
        try:
            work(peer, peer.start())
        except Exception as error:  # noqa: BLE001: one peer's trouble is not the others'
            record.missing(peer.name, error)
        finally:
            put_away(peer)


def each_peer_in_turn(record, kinds, rounds, work, after):
    """All peers at once: calls work(peer, folder, round) of each in every round, beginning with another one each time, and after(peer)
    at the end. What fails is noted, and the others go on. Rounds: a number for each kind."""
    there = []

    def attempt(peer, what):
        try:
            return what()
        except Exception as error:  # noqa: BLE001: one peer's trouble is not the others'
            record.missing(peer.name, error)
            there[:] = [one for one in there if one[0] is not peer]

    for kind, most in zip(kinds, rounds):
        peer = kind(SCRATCH)
        why = left_out(peer)
        if why:
            record.missing(peer.name, why)
            continue
        there.append((peer, most))
    started = [peer for peer, _ in there]
    try:
        folders = {id(peer): attempt(peer, peer.start) for peer in started}
        for i in range(max(rounds)):
            first = i % max(len(there), 1)
            for peer, most in there[first:] + there[:first]:
                if i < most:
                    attempt(peer, lambda: work(peer, folders[id(peer)], i))
        for peer, _ in list(there):
            attempt(peer, lambda: after(peer))
    finally:
        for peer in started:
            put_away(peer)


def zuse(name_, about_="", pool_image=None, **tunables_):
    """A kind of Zuse with tunables; with pool_image it mounts a pool that is there already, by the name `tank`."""

    class Tuned(Zuse):
        name = name_
        about = about_ or Zuse.about
        tunables = tunables_

        def start(self):
            if pool_image is None:
                return super().start()
            self.fresh()
            self.image, self.pool = pathlib.Path(pool_image), "tank"
            self.state = self.scratch / "state"
            self.state.mkdir(mode=0o700)
            os.environ["XDG_STATE_HOME"] = os.environ["XDG_RUNTIME_DIR"] = str(self.state)
            os.environ["ZUSE_HOST_LINGER"] = "0"
            self.attach()
            return self.mount

    return Tuned
