use super::*;
use crate::dnode::DNODE_BLOCK;
use crate::object_type;

fn sample() -> ObjsetPhys {
    let meta = DnodePhys::new(object_type::DNODE, DNODE_BLOCK as u32, 0, vec![], 1);
    let mut objset = ObjsetPhys::new(ObjsetType::Zfs, meta);
    objset.flags = 7;
    objset.zil_header[0] = 9;
    objset.portable_mac = [3; 32];
    objset.local_mac = [4; 32];
    objset.user_used = Some(DnodePhys::new(
        object_type::USERGROUP_USED,
        512,
        0,
        vec![],
        1,
    ));
    objset
}

#[test]
fn an_object_set_reads_back_as_written() {
    let objset = sample();
    let bytes = objset.to_bytes();
    assert_eq!(bytes.len(), 4096);
    assert_eq!(ObjsetPhys::parse(&bytes).unwrap(), objset);
}

#[test]
fn shorter_blocks_of_old_pools_lack_the_accounting_dnodes() {
    let bytes = sample().to_bytes();
    let v1 = ObjsetPhys::parse(&bytes[..1024]).unwrap();
    assert!(v1.user_used.is_none() && v1.size == 1024);
    let v2 = ObjsetPhys::parse(&bytes[..2048]).unwrap();
    assert!(v2.user_used.is_some() && v2.project_used.is_none());
    assert!(ObjsetPhys::parse(&bytes[..512]).is_err());
    let mut odd = bytes;
    odd[OBJSET_TYPE_AT] = 9;
    assert!(ObjsetPhys::parse(&odd).is_err());
}

#[test]
fn a_new_meta_dnode_has_six_levels_or_seven_with_small_indirects() {
    assert_eq!(meta_dnode_levels(17), 6);
    assert_eq!(meta_dnode_levels(14), 7);
}

#[test]
fn a_foreign_object_set_swaps_to_ours() {
    let native = sample().to_bytes();
    let mut foreign = native.clone();
    for at in [0, 1024] {
        foreign[at + 8..at + 10].reverse();
        foreign[at + 10..at + 12].reverse();
        crate::field::swap_array(&mut foreign[at + 16..at + 32], 8);
        crate::field::swap_array(&mut foreign[at + 64..at + 512], 8);
    }
    crate::field::swap_array(&mut foreign[512..720], 8);
    object_type::swap_block(object_type::OBJSET, 0, &mut foreign).unwrap();
    assert_eq!(foreign, native);
}
