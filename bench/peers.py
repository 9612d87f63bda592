"""The file systems that are measured side by side. One class each; PEERS at the end is the list.

A peer lives in a scratch folder on the disk under test:

    missing()   a sentence that says why it cannot run here, or None
    start()     creates it again and returns the folder to work in
    cold()      drops every cache, its own too: what is read next comes from the disk
    pids()      the processes whose memory counts
    stop()      removes it; must work after a start() that failed half-way
"""

import os
import pathlib
import shutil
import signal
import subprocess
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", TOP / "target"))
BUILT = BUILD / "bench"
IMAGE_BYTES = 12 << 30


def run(*command, **more):
    """Runs a command; its output is shown only when it fails."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit {done.returncode}: {done.stdout.strip()}")
    return done.stdout


def drop_kernel_caches():
    os.sync()
    try:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    except PermissionError:
        pass  # bench.py notes in the results that caches were warm


def is_mounted(folder):
    wanted = str(folder).replace(" ", "\\040")
    with open("/proc/self/mounts") as mounts:
        return any(line.split()[1] == wanted for line in mounts)


def wait_until(condition, what, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"{what}: not within {seconds} s")
        time.sleep(0.02)


class Peer:
    name = ""
    about = ""
    # Of the image that the peer's file system is in.
    image_bytes = IMAGE_BYTES
    # Files that it must be able to hold, if they are more than its tools would provide for.
    inodes = None

    def __init__(self, scratch):
        self.scratch = scratch / self.name
        self.mount = self.scratch / "mnt"
        self.image = self.scratch / "disk.img"

    def missing(self):
        return None

    def fresh(self):
        self.stop()
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.mount.mkdir(parents=True)

    def make_image(self):
        with open(self.image, "wb") as image:
            image.truncate(self.image_bytes)

    def cold(self):
        drop_kernel_caches()

    def pids(self):
        return []

    def stop(self):
        if is_mounted(self.mount):
            run("umount", self.mount)


class PlainDirectory(Peer):
    name = "dir"
    about = "a directory on the disk under test itself"

    def start(self):
        self.fresh()
        return self.mount


class Ext4(Peer):
    name = "ext4"
    about = "ext4 in an image on the same disk, loop-mounted, noatime"

    def missing(self):
        if os.geteuid() != 0:
            return "loop mounts need root"
        return None if shutil.which("mkfs.ext4") else "mkfs.ext4 is not installed"

    def start(self):
        self.fresh()
        self.make_image()
        # Lazy initialisation would write in the background during the measurement.
        many = [] if self.inodes is None else ["-N", str(self.inodes)]
        run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", *many, self.image)
        self.attach()
        return self.mount

    def attach(self):
        run("mount", "-o", "loop,noatime", self.image, self.mount)

    def cold(self):
        run("umount", self.mount)
        drop_kernel_caches()
        self.attach()


class Xfs(Ext4):
    name = "xfs"
    about = "xfs in an image on the same disk, loop-mounted, noatime"

    def missing(self):
        if os.geteuid() != 0:
            return "loop mounts need root"
        return None if shutil.which("mkfs.xfs") else "mkfs.xfs is not installed"

    def start(self):
        self.fresh()
        self.make_image()
        run("mkfs.xfs", "-q", self.image)
        self.attach()
        return self.mount


class ZfsFuse(Peer):
    """Debian's zfs-fuse. Its daemon answers on one fixed socket, so only one can run on a machine."""

    name = "zfs-fuse"
    about = "zfs-fuse 0.7.0 as Debian 12 ships it, pool v23 in an image, compression=on (lzjb), atime=off"
    options = ()
    pool = "benchpool"

    def __init__(self, scratch):
        super().__init__(scratch)
        self.daemon = None
        unpacked = TOP / "target" / "bench" / "zfs-fuse"
        self.root = unpacked if (unpacked / "sbin/zfs-fuse").exists() else pathlib.Path("/")
        libraries = self.root / "usr/lib/x86_64-linux-gnu"
        self.environment = dict(os.environ, LD_LIBRARY_PATH=f"{libraries}:{self.root / 'lib/x86_64-linux-gnu'}")

    def tool(self, name):
        return self.root / "sbin" / name

    def missing(self):
        if os.geteuid() != 0:
            return "zfs-fuse needs root"
        if not self.tool("zfs-fuse").exists():
            return "bench/get-zfs-fuse.sh has not run"
        if not os.path.exists("/dev/fuse"):
            return "/dev/fuse is missing"
        return None

    def start(self):
        self.fresh()
        self.make_image()
        os.makedirs("/var/run/zfs", exist_ok=True)
        with open(self.scratch / "daemon.log", "w") as log:
            self.daemon = subprocess.Popen(
                [self.tool("zfs-fuse"), "--no-daemon", "--no-kstat-mount", *self.options],
                stdout=log, stderr=log, env=self.environment)
        wait_until(self.answers, "zfs-fuse answering")
        # A run that was killed leaves its pool in the daemon's list of pools, and the image is gone.
        subprocess.run([self.tool("zpool"), "export", "-f", self.pool], env=self.environment, capture_output=True)
        self.zpool("create", "-m", self.mount, "-O", "compression=on", "-O", "atime=off", self.pool, self.image)
        wait_until(lambda: is_mounted(self.mount), "zfs-fuse mounting")
        return self.mount

    def answers(self):
        if self.daemon.poll() is not None:
            raise RuntimeError("zfs-fuse ended: is another one running? " + (self.scratch / "daemon.log").read_text())
        return subprocess.run([self.tool("zpool"), "list"], env=self.environment, capture_output=True).returncode == 0

    def zpool(self, *words):
        return run(self.tool("zpool"), *words, env=self.environment)

    def cold(self):
        self.zpool("export", self.pool)
        drop_kernel_caches()
        self.zpool("import", "-d", self.scratch, self.pool)
        wait_until(lambda: is_mounted(self.mount), "zfs-fuse mounting again")

    def pids(self):
        return [self.daemon.pid]

    def stop(self):
        if self.daemon is None:
            return
        if self.daemon.poll() is None:
            subprocess.run([self.tool("zpool"), "export", self.pool], env=self.environment, capture_output=True)
            self.daemon.send_signal(signal.SIGTERM)
            try:
                self.daemon.wait(20)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()
        if is_mounted(self.mount):
            run("umount", "-l", self.mount)
        self.daemon = None


class ZfsFuseCached(ZfsFuse):
    name = "zfs-fuse-cached"
    about = "the same with its advertised speed options (-a 3600 -e 3600: the kernel caches attributes and names)"
    options = ("-a", "3600", "-e", "3600")


class FuseServer(Peer):
    """A server that is one process per mount, in the foreground or gone into the background by itself."""

    binary = None

    def __init__(self, scratch):
        super().__init__(scratch)
        self.server = None

    def missing(self):
        if not self.binary.exists():
            return f"{self.binary} is not built"
        return None if os.path.exists("/dev/fuse") else "/dev/fuse is missing"

    def command(self):
        raise NotImplementedError

    def environment(self):
        return dict(os.environ)

    def attach(self):
        with open(self.scratch / "server.log", "a") as log:
            self.server = subprocess.Popen([str(word) for word in self.command()], stdout=log, stderr=log, env=self.environment())

        def mounted():
            if self.server.poll() not in (None, 0):
                raise RuntimeError(f"{self.name} ended: " + (self.scratch / "server.log").read_text()[-2000:])
            return is_mounted(self.mount)

        wait_until(mounted, f"{self.name} mounting")

    def detach(self):
        """Unmounts and waits until the server has written everything and let go of its devices."""
        there = self.pids()
        if is_mounted(self.mount):
            unmount = ["umount"] if os.geteuid() == 0 else ["fusermount3", "-u"]
            run(*unmount, self.mount)
        if self.server is not None:
            wait_until(lambda: not any(self.alive(pid) for pid in there), f"{self.name} ending", 120)
            self.server = None

    def alive(self, pid):
        if self.server is not None and pid == self.server.pid:
            return self.server.poll() is None
        return os.path.exists(f"/proc/{pid}")

    def pids(self):
        """The process that was started, or those that it left behind: same program, and the mount point among the arguments."""
        if self.server is None:
            return []
        if self.server.poll() is None:
            return [self.server.pid]
        found = []
        for process in pathlib.Path("/proc").iterdir():
            if process.name.isdigit():
                try:
                    words = (process / "cmdline").read_bytes().split(b"\0")
                    same = os.path.samefile(process / "exe", self.binary)
                except OSError:
                    continue
                if same and os.fsencode(self.mount) in words:
                    found.append(int(process.name))
        return found

    def cold(self):
        self.detach()
        drop_kernel_caches()
        self.attach()

    def stop(self):
        self.detach()


class NullFuse(FuseServer):
    name = "null-fuse"
    about = "a FUSE server that keeps names in memory and no data: the price of FUSE itself"
    binary = BUILT / "release" / "null-fuse"

    def command(self):
        return [self.binary, self.mount]

    def start(self):
        self.fresh()
        self.attach()
        return self.mount

    def cold(self):
        drop_kernel_caches()  # restarted, it would have forgotten its files


class Zuse(FuseServer):
    name = "zuse"
    about = "Zuse, pool in an image, its defaults (compression=on: lz4), atime=off"
    binary = BUILD / "release" / "zuse"
    pool = "benchpool"
    # Properties of the pool's dataset, and tunables of the process that has it (`zuse tunables`).
    properties = {}
    tunables = {}

    # Where this one notes which pools are held: several of them may be mounted at a time.
    state = None

    def environment(self):
        own = {} if self.state is None else {"XDG_STATE_HOME": str(self.state), "XDG_RUNTIME_DIR": str(self.state)}
        return dict(os.environ, **own)

    def zuse(self, *words):
        return run(self.binary, *words, env=self.environment())

    def command(self):
        tuned = [word for name, value in self.tunables.items() for word in ("-o", f"{name}={value}")]
        return [self.binary, "mount", *tuned, "-d", self.image, self.pool, self.mount]

    def start(self):
        self.fresh()
        # A state folder of its own: what an interrupted run left behind must not be in the way.
        self.state = pathlib.Path(self.image).parent / "state"
        shutil.rmtree(self.state, ignore_errors=True)
        self.state.mkdir(mode=0o700)
        os.environ["XDG_STATE_HOME"] = os.environ["XDG_RUNTIME_DIR"] = str(self.state)
        os.environ["ZUSE_HOST_LINGER"] = "0"
        properties = {"atime": "off", **self.properties}
        set_ = [word for name, value in properties.items() for word in ("-O", f"{name}={value}")]
        self.zuse("zpool", "create", *set_, self.pool, self.image, "--size", str(self.image_bytes))
        self.attach()
        return self.mount

    def sound(self):
        """What OpenZFS's zdb says of the pool once it is exported: "sound", the bad news, or why it was not asked."""
        self.detach()
        self.zuse("zpool", "export", self.pool)
        return zdb_says(self.image, self.pool)


def zdb_says(image, pool):
    """"sound", zdb's bad news, or why it was not asked, of an exported pool in an image."""
    alone = pathlib.Path(image).parent / "zdb"
    shutil.rmtree(alone, ignore_errors=True)
    alone.mkdir()
    os.link(image, alone / "disk.img")
    done = subprocess.run([TOP / "scripts" / "zdb-check", alone, pool, "-bcc"], capture_output=True, text=True)
    shutil.rmtree(alone)
    if done.returncode == 3:
        return "zdb cannot be had here"
    return "sound" if done.returncode == 0 else done.stderr.strip()[-500:]


PEERS = [PlainDirectory, Ext4, Xfs, Zuse, NullFuse, ZfsFuse, ZfsFuseCached]
