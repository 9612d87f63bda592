//! Golden pools of `testdata/` (see its README): devices in memory, and the manifest of what they
//! held.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use zuse_base::Result;
use zuse_device::{BlockDevice, MemDevice};
use zuse_pool::{DslHooks, Environment, OpenOptions, Pool};
use zuse_vdev::PoolConfig;
use zuse_vdev::assemble::{OpenDevices, assemble, read_labels};

/// The golden pools on plain devices and stripes that every layer opens, by folder. There are more
/// in `testdata/`.
pub const NAMES: [&str; 8] = [
    "features",
    "codecs",
    "bigblocks",
    "stripe",
    "gang",
    "compat07",
    "dsl",
    "crypt",
];

/// The golden pools with redundancy, removed vdevs or allocation classes; the last ones lack disks
/// or are damaged.
pub const REDUNDANT: [&str; 12] = [
    "raidz1",
    "raidz2",
    "raidz3",
    "expanded",
    "draid",
    "removed",
    "classes",
    "mirror",
    "mirrors",
    "deg-mirror",
    "deg-raidz1",
    "deg-raidz2",
];

/// Golden pools on plain devices that are only read: old versions, shared blocks, unusual names, a
/// checkpoint, an intent log to be replayed.
pub const READ_ONLY: [&str; 10] = [
    "names",
    "v28",
    "v28-fs3",
    "v28-fs4",
    "brt",
    "dedup",
    "dedup-legacy",
    "checkpoint",
    "zil",
    "zil-slog",
];

/// No golden pool has more devices.
const MAX_DEVICES: usize = 16;

/// Bytes fed to a device at a time.
const PIECE: usize = 1 << 20;

/// One golden pool.
pub struct Golden {
    /// Folder in `testdata/`.
    pub name: &'static str,
    /// Its vdevs, writable; the files are never changed.
    pub devices: Vec<Arc<MemDevice>>,
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../testdata")
        .join(name)
}

/// `base`: what the archive was made against (`zstd --patch-from`), empty for a plain one.
fn unpack(path: &PathBuf, base: &[u8], sink: &mut dyn FnMut(&[u8])) -> std::io::Result<()> {
    let bad = |code| std::io::Error::other(zstd_safe::get_error_name(code));
    let packed = std::fs::read(path)?;
    let mut context = zstd_safe::DCtx::create();
    context
        .set_parameter(zstd_safe::DParameter::WindowLogMax(30))
        .map_err(bad)?;
    context.ref_prefix(base).map_err(bad)?;
    let mut out = vec![0u8; PIECE];
    let mut input = zstd_safe::InBuffer::around(&packed);
    loop {
        let (left, made) = {
            let mut output = zstd_safe::OutBuffer::around(&mut out[..]);
            let left = context
                .decompress_stream(&mut output, &mut input)
                .map_err(bad)?;
            (left, output.pos())
        };
        sink(&out[..made]);
        if left == 0 && input.pos() == packed.len() {
            return Ok(());
        }
        if made == 0 && input.pos() == packed.len() {
            return Err(std::io::Error::other("the archive ends early"));
        }
    }
}

fn unpack_device(path: &PathBuf, base: &[u8], label: &str) -> std::io::Result<MemDevice> {
    // Sparse: zeros use no memory. The length is only known at the end.
    let wide = MemDevice::new(label, 1 << 40);
    let mut size = 0;
    let mut failed = None;
    unpack(path, base, &mut |bytes| {
        for part in bytes.chunks(64 << 10) {
            if part.iter().any(|b| *b != 0)
                && let Err(e) = wide.write_at(part, size)
            {
                failed = Some(std::io::Error::other(e.to_string()));
            }
            size += part.len() as u64;
        }
    })?;
    if let Some(e) = failed {
        return Err(e);
    }
    let device = MemDevice::new(label, size);
    device.restore(&wide.snapshot());
    Ok(device)
}

/// The archive of device `i` of a golden pool, and the bytes of the device that is the base of its
/// difference.
fn archive(name: &str, i: usize) -> Option<(PathBuf, Vec<u8>)> {
    let plain = folder(name).join(format!("{name}{i}.img.zst"));
    if plain.exists() {
        return Some((plain, Vec::new()));
    }
    let (path, base) = (0..i).find_map(|j| {
        let path = folder(name).join(format!("{name}{i}.img.patch-{name}{j}.img.zst"));
        path.exists()
            .then(|| (path, folder(name).join(format!("{name}{j}.img.zst"))))
    })?;
    let mut bytes = Vec::new();
    unpack(&base, &[], &mut |part| bytes.extend_from_slice(part))
        .unwrap_or_else(|e| panic!("{}: {e}", base.display()));
    Some((path, bytes))
}

/// A golden send stream, unpacked.
///
/// # Panics
/// If it is not there.
pub fn golden_stream(pool: &str, name: &str) -> Vec<u8> {
    let path = folder(pool).join(format!("{name}.zstream.zst"));
    let mut bytes = Vec::new();
    unpack(&path, &[], &mut |part| bytes.extend_from_slice(part))
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    bytes
}

impl Golden {
    /// Unpacks a golden pool into memory.
    ///
    /// # Panics
    /// If `testdata/` is not as its README says: the test cannot go on.
    pub fn load(name: &'static str) -> Self {
        let mut devices = Vec::new();
        for i in 0..MAX_DEVICES {
            // Degraded pools lack a number.
            let Some((path, base)) = archive(name, i) else {
                continue;
            };
            let device = unpack_device(&path, &base, &format!("/golden/{name}{i}.img"));
            devices.push(Arc::new(
                device.unwrap_or_else(|e| panic!("{}: {e}", path.display())),
            ));
        }
        assert!(!devices.is_empty(), "no golden pool {name}");
        Self { name, devices }
    }

    /// A copy, which shares memory until it is written.
    pub fn copy(&self) -> Self {
        let devices = self
            .devices
            .iter()
            .map(|d| Arc::new(MemDevice::from_image(d.path(), &d.snapshot())))
            .collect();
        Self {
            name: self.name,
            devices,
        }
    }

    /// The devices, as pools want them.
    pub fn block_devices(&self) -> Vec<Arc<dyn BlockDevice>> {
        self.devices
            .iter()
            .map(|d| d.clone() as Arc<dyn BlockDevice>)
            .collect()
    }

    /// Another file of its folder.
    ///
    /// # Panics
    /// If it is not there.
    pub fn text(&self, file: &str) -> String {
        let path = folder(self.name).join(file);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// The keys that lie beside a pool with encrypted datasets.
    ///
    /// # Panics
    /// If one cannot be read.
    pub fn keys(&self) -> Vec<zuse::KeyMaterial> {
        ["raw.key", "hex.key", "passphrase.txt"]
            .into_iter()
            .map(|file| folder(self.name).join(file))
            .filter(|path| path.exists())
            .map(|path| {
                let bytes = std::fs::read(&path);
                let bytes = bytes.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                zuse::KeyMaterial::new(bytes)
            })
            .collect()
    }

    /// The manifest.
    ///
    /// # Panics
    /// If it is not there or no JSON.
    pub fn manifest(&self) -> Value {
        let plain = folder(self.name).join("manifest.json");
        let bytes = if plain.exists() {
            std::fs::read(&plain).unwrap_or_else(|e| panic!("{}: {e}", plain.display()))
        } else {
            let packed = folder(self.name).join("manifest.json.zst");
            let mut bytes = Vec::new();
            unpack(&packed, &[], &mut |part| bytes.extend_from_slice(part))
                .unwrap_or_else(|e| panic!("{}: {e}", packed.display()));
            bytes
        };
        serde_json::from_str(&mark_raw_bytes(&String::from_utf8_lossy(&bytes)))
            .unwrap_or_else(|e| panic!("{}: {e}", plain.display()))
    }
}

/// Names that are not valid UTF-8 are written in manifests as lone surrogates, which no JSON parser
/// here accepts. They become U+F700 + byte.
fn mark_raw_bytes(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find("\\udc") {
        let (head, tail) = rest.split_at(at);
        let after_high = head.len() >= 6
            && head
                .get(head.len() - 6..head.len() - 2)
                .is_some_and(|h| matches!(h, "\\ud8" | "\\ud9" | "\\uda" | "\\udb"));
        out.push_str(head);
        out.push_str(if after_high { "\\udc" } else { "\\uf7" });
        rest = &tail[4..];
    }
    out.push_str(rest);
    out
}

/// A name's bytes as the manifests here spell them.
pub fn spelled(name: &[u8]) -> String {
    let mut out = String::new();
    for chunk in name.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(
            chunk
                .invalid()
                .iter()
                .filter_map(|b| char::from_u32(0xf700 + u32::from(*b))),
        );
    }
    out
}

/// Opens the only pool on some devices with all its layers.
///
/// # Errors
/// As [`open`].
pub fn open_whole(
    env: Environment,
    devices: &[Arc<dyn BlockDevice>],
    access: &zuse::PoolAccess,
) -> Result<Arc<zuse::Pool>> {
    let (config, by_guid) = found(devices)?;
    zuse::Pool::open_on(env, &config, &by_guid, access)
}

/// Opens the only pool on some devices.
///
/// # Errors
/// As [`Pool::open`]; `Refused(NOENT)` if no label tells of a pool.
pub fn open(
    env: Environment,
    devices: &[Arc<dyn BlockDevice>],
    options: &OpenOptions,
    hooks: Arc<dyn DslHooks>,
) -> Result<Arc<Pool>> {
    let (config, by_guid) = found(devices)?;
    Pool::open(env, &config, &by_guid, options, hooks)
}

/// The configuration of the only pool on some devices, and the devices by guid.
///
/// # Errors
/// `Refused(NOENT)` if no label tells of a pool.
pub(crate) fn found(devices: &[Arc<dyn BlockDevice>]) -> Result<(PoolConfig, OpenDevices)> {
    let by_path: BTreeMap<&str, &Arc<dyn BlockDevice>> =
        devices.iter().map(|d| (d.path(), d)).collect();
    let scan = assemble(&read_labels(devices));
    let found = scan.pools.first().ok_or_else(|| {
        zuse_base::Error::refused(zuse_base::Errno::NOENT, "no device has the label of a pool")
    })?;
    let by_guid = found
        .devices
        .iter()
        .filter_map(|(guid, path)| by_path.get(path.as_str()).map(|d| (*guid, (*d).clone())))
        .collect();
    Ok((found.config.clone(), by_guid))
}
