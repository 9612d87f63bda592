//! `mount_image IMAGE MOUNTPOINT`: creates a pool on a new image file, mounts it until standard
//! input ends, and closes it.

use std::error::Error;
use std::io::Read;

use zuse::{Environment, NewDevice, NewPool, Pool};
use zuse_mount::{PoolMounts, ServerOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(image), Some(at)) = (args.next(), args.next()) else {
        return Err("usage: mount_image IMAGE MOUNTPOINT".into());
    };
    let new = NewPool {
        name: "tank".into(),
        devices: vec![NewDevice {
            path: image.into(),
            make: Some(8 << 30),
        }],
        root_properties: vec![("mountpoint".into(), "/tank".into())],
        ..NewPool::default()
    };
    let pool = Pool::create(Environment::default(), &new)?;
    let mounts = PoolMounts::new(pool.clone());
    mounts.mount("tank", at.as_ref(), &ServerOptions::default())?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    mounts.finish()?;
    pool.close()?;
    Ok(())
}
