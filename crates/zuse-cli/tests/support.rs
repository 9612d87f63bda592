//! An environment for each test: state directory, pools as files, the binary.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A temporary directory in which the binary runs, with its own state.
pub struct TestEnv {
    dir: tempfile::TempDir,
}

/// The output and exit code of a command.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl TestEnv {
    pub fn new() -> Self {
        Self {
            dir: tempfile::Builder::new()
                .prefix("zuse-cli-")
                .tempdir()
                .unwrap(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    pub fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        self.command_of(env!("CARGO_BIN_EXE_zuse").as_ref(), args)
    }

    /// The same of another copy of the binary.
    pub fn command_of<S: AsRef<OsStr>>(&self, binary: &Path, args: &[S]) -> Command {
        let mut command = Command::new(binary);
        command
            .args(args)
            .current_dir(self.dir.path())
            .env("HOME", self.dir.path())
            .env("XDG_STATE_HOME", self.path("state"))
            .env("ZUSE_HOST_LINGER", "0")
            .env("TZ", "UTC")
            .stdin(Stdio::null());
        command
    }

    /// Runs words separated by blanks.
    pub fn run(&self, line: &str) -> Ran {
        let words: Vec<&str> = line.split(' ').collect();
        ran(self.command(&words).output().unwrap())
    }

    /// Runs a command that must succeed; returns its output.
    #[track_caller]
    pub fn ok(&self, line: &str) -> String {
        let ran = self.run(line);
        assert_eq!(ran.code, 0, "zuse {line}\n{}{}", ran.out, ran.err);
        ran.out
    }

    /// Runs a command that must fail with that code; returns its messages.
    #[track_caller]
    pub fn fails(&self, code: i32, line: &str) -> String {
        let ran = self.run(line);
        assert_eq!(ran.code, code, "zuse {line}\n{}{}", ran.out, ran.err);
        ran.err
    }

    /// A pool `tank` in `tank.img`.
    pub fn with_pool() -> Self {
        let env = Self::new();
        env.ok("zpool create tank tank.img --size 128M");
        env
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

pub fn ran(output: Output) -> Ran {
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The golden pool unpacked below a test's directory.
pub fn unpack(env: &TestEnv, name: &str) -> PathBuf {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dir = env.path(name);
    let done = Command::new(top.join("scripts/unpack-golden"))
        .arg(name)
        .arg(&dir)
        .status()
        .expect("unpack-golden");
    assert!(done.success());
    dir
}
