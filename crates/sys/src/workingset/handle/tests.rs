use super::*;

fn handle(kind: i32, parts: &[&[u8]]) -> FileHandle {
    FileHandle::new(kind, parts).unwrap()
}

#[test]
fn a_format_is_learned_from_one_folder_and_names_any_file_in_the_same_way() {
    let (inode, generation) = (0x1_2345_6789_u64, 77_u32);
    let folder = 2_u64;
    let small = u32::try_from(folder).unwrap();
    let file = FileId { device: 1, inode, generation };
    let cases = [
        (handle(0x81, &[&folder.to_ne_bytes(), &0_u32.to_ne_bytes()]), {
            handle(0x81, &[&inode.to_ne_bytes(), &generation.to_ne_bytes()])
        }),
        (handle(0x81, &[&0_u32.to_ne_bytes(), &small.to_ne_bytes(), &9_u32.to_ne_bytes()]), {
            let (upper, lower) = (1_u32, 0x2345_6789_u32);
            handle(0x81, &[&upper.to_ne_bytes(), &lower.to_ne_bytes(), &generation.to_ne_bytes()])
        }),
        (handle(0x4d, &[&folder.to_ne_bytes(), &256_u64.to_ne_bytes(), &9_u32.to_ne_bytes()]), {
            handle(0x4d, &[&inode.to_ne_bytes(), &256_u64.to_ne_bytes(), &generation.to_ne_bytes()])
        }),
    ];
    for (learned_from, expected) in cases {
        let format = Format::of(&learned_from, folder).unwrap();
        assert_eq!(format.handle(file), Some(expected), "{format:?}");
    }
}

#[test]
fn an_inode_that_does_not_fit_has_no_handle() {
    let format = Format::of(&handle(1, &[&2_u32.to_ne_bytes(), &0_u32.to_ne_bytes()]), 2).unwrap();
    let large = FileId { device: 1, inode: 1 << 32, generation: 0 };
    assert_eq!(format.handle(large), None);
    assert!(format.handle(FileId { inode: 12, ..large }).is_some());
}

#[test]
fn a_handle_that_does_not_hold_the_inode_teaches_nothing() {
    assert_eq!(Format::of(&handle(1, &[&3_u32.to_ne_bytes(), &0_u32.to_ne_bytes()]), 2), None);
    assert_eq!(Format::of(&handle(0xfe, &[&2_u64.to_ne_bytes()]), 3), None);
    assert_eq!(Format::of(&handle(1, &[b"abc"]), 2), None);
}
