"""Many clients of one host, and hosts that are killed. Run by hosts.sh, in namespaces of its own."""

import os
import random
import signal
import subprocess
import sys
import threading
import time

ZUSE = os.environ["ZUSE"]
TMP = os.environ["SUITE_TMP"]
COMMANDS = int(os.environ.get("HOSTS_COMMANDS", 250))
KILLS = int(os.environ.get("HOSTS_KILLS", 8))
SEED = int(os.environ.get("HOSTS_SEED", random.randrange(1 << 32)))
CLIENTS = 8
wrong = []


def run(*words, **more):
    done = subprocess.run([ZUSE, *words], capture_output=True, text=True, timeout=120, **more)
    return done.returncode, done.stdout, done.stderr


def zfs(*words):
    return run("zfs", *words)


def must(who, words, wanted=0):
    code, out, err = zfs(*words)
    if code != wanted:
        wrong.append(f"{who}: zfs {' '.join(words)}: status {code} instead of {wanted}: {err.strip()[:200]}")
    return out


def hosts():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")
        except OSError:
            continue
        if b"serve" in words[1:2]:
            found.append(int(pid))
    return found


class Client:
    """Works below a file system of its own, and knows what is there."""

    def __init__(self, number):
        self.random = random.Random(SEED + number)
        self.top = f"tank/c{number}"
        self.number = number
        self.there = {}
        self.made = 0
        must(self, ["create", self.top])

    def __str__(self):
        return self.top

    def new(self):
        self.made += 1
        return f"{self.top}/d{self.made}"

    def step(self):
        names = list(self.there)
        some = self.random.choice(names) if names else None
        kinds = ["create", "list", "get"]
        if some:
            kinds += ["snapshot", "destroy", "rename", "set", "send", "mount", "write", "clone"]
        getattr(self, self.random.choice(kinds))(some)

    def create(self, _):
        name = self.new()
        must(self, ["create", name])
        self.there[name] = {"snaps": [], "note": None}

    def destroy(self, some):
        # A clone of it would be in the way.
        if any(d.get("origin", "").startswith(some + "@") for d in self.there.values()):
            must(self, ["destroy", "-r", some], 1)
            return
        must(self, ["destroy", "-r", some])
        del self.there[some]

    def rename(self, some):
        to = self.new()
        must(self, ["rename", some, to])
        self.there[to] = self.there.pop(some)
        for other in self.there.values():
            if other.get("origin", "").startswith(some + "@"):
                other["origin"] = to + other["origin"][len(some):]

    def snapshot(self, some):
        snap = f"s{self.made}-{len(self.there[some]['snaps'])}"
        if snap not in self.there[some]["snaps"]:
            must(self, ["snapshot", f"{some}@{snap}"])
            self.there[some]["snaps"].append(snap)

    def clone(self, some):
        if self.there[some]["snaps"]:
            name, snap = self.new(), self.random.choice(self.there[some]["snaps"])
            must(self, ["clone", f"{some}@{snap}", name])
            # A clone has the file, not the note, and no snapshots.
            self.there[name] = {"snaps": [], "note": None, "origin": f"{some}@{snap}"}

    def set(self, some):
        note = str(self.random.randrange(1000))
        must(self, ["set", f"test:note={note}", some])
        self.there[some]["note"] = note

    def get(self, some):
        some = some or self.top
        note = self.there.get(some, {}).get("note") or "-"
        out = must(self, ["get", "-H", "-o", "value", "test:note", some])
        if out.strip() != note:
            wrong.append(f"{self}: note of {some} is {out.strip()}, not {note}")

    def list(self, _):
        out = must(self, ["list", "-H", "-o", "name", "-t", "all", "-r", self.top])
        known = [self.top] + [n for n in self.there]
        known += [f"{n}@{s}" for n, d in self.there.items() for s in d["snaps"]]
        if sorted(out.split()) != sorted(known):
            wrong.append(f"{self}: listed {sorted(out.split())}, wanted {sorted(known)}")

    def send(self, some):
        snaps = self.there[some]["snaps"]
        if not snaps:
            return
        name, snap = self.new(), self.random.choice(snaps)
        line = f"'{ZUSE}' zfs send {some}@{snap} | '{ZUSE}' zfs receive {name}; echo ${{PIPESTATUS[*]}}"
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120)
        if done.stdout.strip() != "0 0":
            wrong.append(f"{self}: send | receive: {done.stdout.strip()} {done.stderr.strip()[:200]}")
        self.there[name] = {"snaps": [snap], "note": None}

    def mount(self, some):
        must(self, ["unmount", some])
        must(self, ["mount", some])

    def write(self, some):
        path = f"{TMP}/tank{some[4:]}/file"
        text = str(self.random.randrange(1000))
        with open(path, "w") as file:
            file.write(text)
        if open(path).read() != text:
            wrong.append(f"{self}: {path} reads otherwise")


def interleave():
    clients = [Client(n) for n in range(CLIENTS)]

    def work(client):
        for _ in range(COMMANDS // CLIENTS):
            try:
                client.step()
            except Exception as error:  # a hang, or a file that is not there
                wrong.append(f"{client}: {error!r}")
                return
        client.list(None)

    threads = [threading.Thread(target=work, args=(c,)) for c in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(hosts()) != 1:
        wrong.append(f"hosts afterwards: {hosts()}")


def kill():
    """What was acknowledged before a host was killed is there afterwards, and the next command goes on."""
    chance = random.Random(SEED)
    must("kill", ["create", "tank/k"])
    snaps, texts = [], {}
    for round in range(KILLS):
        over = threading.Event()

        def commands():
            n = 0
            while not over.is_set():
                n += 1
                if zfs("snapshot", f"tank/k@{round}-{n}")[0] == 0:
                    snaps.append(f"tank/k@{round}-{n}")

        def files():
            n = 0
            while not over.is_set():
                n += 1
                path = f"{TMP}/tank/k/{round}-{n}"
                fd = None
                try:
                    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
                    os.write(fd, path.encode())
                    os.fsync(fd)
                    # Between two hosts the directory is one of what lies below.
                    below = [os.stat(TMP).st_dev, os.stat(f"{TMP}/tank").st_dev]
                    if os.fstat(fd).st_dev not in below:
                        texts[path] = path
                except OSError:
                    time.sleep(0.05)
                finally:
                    if fd is not None:
                        os.close(fd)

        threads = [threading.Thread(target=commands), threading.Thread(target=files)]
        for thread in threads:
            thread.start()
        time.sleep(chance.random() * 0.7)
        for pid in hosts():
            os.kill(pid, signal.SIGKILL)
        time.sleep(chance.random() * 0.3)
        over.set()
        for thread in threads:
            thread.join()
        listed = must("kill", ["list", "-H", "-o", "name", "-t", "snapshot", "-r", "tank/k"]).split()
        for lost in set(snaps) - set(listed):
            wrong.append(f"round {round}: {lost} was acknowledged and is gone")
        for path, text in texts.items():
            try:
                if open(path).read() != text:
                    wrong.append(f"round {round}: {path} has other content")
            except OSError as error:
                wrong.append(f"round {round}: {path} was synced and is gone: {error}")
        if wrong:
            return
    print(f"{KILLS} hosts killed: {len(snaps)} snapshots and {len(texts)} files were acknowledged")


def main():
    print(f"HOSTS_SEED={SEED}")
    os.mkdir(f"{TMP}/pool")
    image = f"{TMP}/pool/d"
    code, _, err = run("zpool", "create", "-m", f"{TMP}/tank", "tank", image, "--size", "1G")
    if code:
        sys.exit(err)
    interleave()
    print(f"{COMMANDS} commands of {CLIENTS} processes")
    if not wrong:
        kill()
    code, _, err = run("zpool", "export", "tank")
    if code:
        wrong.append(f"export: {err}")
    until = time.time() + 5
    while hosts() and time.time() < until:
        time.sleep(0.1)
    if hosts():
        wrong.append(f"left over: {hosts()}")
    for line in wrong[:20]:
        print("WRONG:", line)
    sys.exit(1 if wrong else 0)


main()
