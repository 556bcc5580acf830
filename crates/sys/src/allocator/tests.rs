use super::*;

#[test]
fn the_c_library_gives_blocks_that_can_be_written_and_go_to_another_thread() {
    let allocator = Allocator::find(Names::Malloc).expect("every C library has malloc");
    let mut blocks: Vec<Block<'_>> =
        [1, 16, 4096, 1 << 20].iter().filter_map(|size| allocator.allocate(*size)).collect();
    assert_eq!(blocks.len(), 4);
    for block in &mut blocks {
        block.touch(4096);
        block.touch_all(4096);
    }
    std::thread::scope(|scope| {
        scope.spawn(move || drop(blocks));
    });
}

#[test]
fn more_than_there_is_is_refused() {
    let allocator = Allocator::find(Names::Malloc).expect("every C library has malloc");
    assert!(allocator.allocate(usize::MAX / 2).is_none());
}

#[test]
fn no_functions_are_found_where_no_library_has_them() {
    assert!(Allocator::find(Names::Tmalloc).is_none());
}
