"""Writes with promises, and looks whether they were kept.

    fsync-kills.py work DIR NOTES    works until the mount is gone, then notes what was promised and what was tried since;
                                     NOTES.going says that everything has been promised something
    fsync-kills.py check DIR NOTES   looks at DIR again
"""

import json
import os
import random
import sqlite3
import sys
import threading

RECORD = 3000


def content(number):
    return (b"%012d" % number) * (RECORD // 12 + number % 7 * 900)


def number_in(path):
    """The number that a file is made of, None if there is no file, -1 if it is none of ours."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    try:
        number = int(data[:12])
    except ValueError:
        return -1
    return number if data == content(number) else -1


class Files:
    """Files that are replaced, removed, changed in place; a log that grows; an extended attribute."""

    def __init__(self, directory, name):
        self.top = os.path.join(directory, name)
        self.promised = {}
        self.tried = {}

    def path(self, key):
        return os.path.join(self.top, key)

    def sync_names(self):
        fd = os.open(self.top, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)

    def work(self, going):
        os.makedirs(self.top, exist_ok=True)
        # What is there is the beginning.
        for key in [f"f{k}" for k in range(8)] + ["log", "place", "xattr"]:
            self.promised[key], self.tried[key] = self.now(key), []
        for number in range(1 + max([n or 0 for n in self.promised.values()]), 10**9):
            key = random.choice(["log", "log", "place", "xattr"] + [f"f{random.randrange(8)}"] * 4)
            removes = key[0] == "f" and random.random() < 0.2
            self.tried[key].append(None if removes else number)
            self.change(key, number, removes)
            self.promised[key], self.tried[key] = (None if removes else number), []
            going()

    def change(self, key, number, removes):
        path = self.path(key)
        if removes:
            if os.path.exists(path):
                os.unlink(path)
            self.sync_names()
        elif key == "log":
            with open(path, "ab", buffering=0) as file:
                file.write(b"%012d" % number * 100)
                os.fdatasync(file.fileno())
            if os.path.getsize(path) == 1200:
                self.sync_names()
        elif key == "place":
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DSYNC)
            os.pwrite(fd, b"%012d" % number, 70_000)
            os.close(fd)
            self.sync_names()
        elif key == "xattr":
            fd = os.open(path, os.O_RDWR | os.O_CREAT)
            os.setxattr(fd, "user.number", b"%d" % number)
            os.fsync(fd)
            os.close(fd)
        else:
            with open(path + ".new", "wb") as file:
                file.write(content(number))
                file.flush()
                os.fsync(file.fileno())
            os.rename(path + ".new", path)
            self.sync_names()

    def now(self, key):
        path = self.path(key)
        if key[0] == "f":
            return number_in(path)
        if not os.path.exists(path):
            return None
        if key == "xattr":
            return int(os.getxattr(path, "user.number")) if "user.number" in os.listxattr(path) else None
        with open(path, "rb") as file:
            if key == "place":
                file.seek(70_000)
                return int(file.read(12) or b"0") or None
            data = file.read()
        # What is behind the last promise may be torn.
        whole = [data[at : at + 1200] for at in range(0, len(data), 1200)]
        numbers = [int(r[:12]) for r in whole if len(r) == 1200 and r == r[:12] * 100]
        return max(numbers, default=None)

    def check(self, notes):
        for key, promised in notes["promised"].items():
            now, tried = self.now(key), notes["tried"][key]
            if now != promised and now not in tried:
                yield f"{key}: promised {promised}, tried {tried}, found {now}"


class Database:
    """Rows, each a transaction of its own."""

    def __init__(self, directory, journal):
        self.directory, self.journal = directory, journal
        self.path = os.path.join(directory, journal + ".db")
        self.promised, self.doubtful = 0, None

    def work(self, going):
        base = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        base.execute(f"pragma journal_mode={self.journal}")
        # With less SQLite does not wait for the removal of its journal, which is what commits.
        base.execute("pragma synchronous=extra")
        base.execute("create table if not exists t(id integer primary key, v text)")
        while True:
            row = base.execute("insert into t(v) values(?) returning id", ["x" * random.randrange(3000)]).fetchall()
            # SQLite says that a row is committed, too, where it can't open the directory of the journal that it has removed. It could
            # if somebody can after it: then it has waited for the removal.
            self.doubtful = row[0][0]
            os.close(os.open(self.directory, os.O_RDONLY))
            self.promised, self.doubtful = row[0][0], None
            going()

    def check(self, notes):
        base = sqlite3.connect(self.path)
        [[whole]] = base.execute("pragma integrity_check").fetchall()
        if whole != "ok":
            yield f"{self.journal}: {whole}"
        [[last, count]] = base.execute("select max(id), count(*) from t").fetchall()
        if count != last or (last or 0) < notes["promised"]:
            yield f"{self.journal}: promised {notes['promised']} rows, found {count} up to {last}"


def main(what, directory, notes):
    parts = [Files(directory, "one"), Files(directory, "two"), Database(directory, "wal"), Database(directory, "delete")]
    if what == "work":

        kept = [0] * len(parts)

        def going(at):
            kept[at] += 1
            if kept[at] == 3 and min(kept) >= 3:
                open(notes + ".going", "w").close()

        def work(at, part):
            try:
                part.work(lambda: going(at))
            except (OSError, sqlite3.Error) as gone:
                part.gone = str(gone)

        threads = [threading.Thread(target=work, args=item) for item in enumerate(parts)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        said = [{k: v for k, v in vars(part).items() if k in ("promised", "tried", "doubtful", "gone")} for part in parts]
        with open(notes, "w") as file:
            json.dump(said, file)
        return 0
    with open(notes) as file:
        said = json.load(file)
    broken = [line for part, note in zip(parts, said) for line in part.check(note)]
    for line in broken:
        print(line)
    rows = sum(note["promised"] for note in said[2:])
    doubtful = sum(note["doubtful"] is not None for note in said[2:])
    print(f"{sum(len(n['promised']) for n in said[:2])} files, {rows} rows, {doubtful} doubtful; {said[0]['gone']}")
    return 1 if broken else 0


sys.exit(main(*sys.argv[1:]))
