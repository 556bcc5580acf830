use super::{Mapping, parse_mapping};

fn lines(text: &[u8]) -> impl Iterator<Item = Mapping<'_>> {
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(|line| parse_mapping(line).unwrap())
}

#[test]
fn of_a_real_program_the_heap_and_the_nameless_writable_mappings_are_its_own() {
    let own: Vec<_> = lines(capture!("maps/linux-6.12-cat")).filter(Mapping::is_own_memory).collect();
    assert_eq!(own.len(), 5);
    assert_eq!(
        (own[0].start, own[0].bytes(), own[0].name),
        (0x5630_9e82_1000, 0x2_1000, b"[heap]".as_slice())
    );
    assert!(own[1..].iter().all(|mapping| mapping.name.is_empty()));
}

#[test]
fn stacks_shared_memory_and_what_the_kernel_put_there_are_not() {
    for line in [
        b"7fff354f1000-7fff35512000 rw-p 00000000 00:00 0                          [stack]".as_slice(),
        b"7f0000000000-7f0000001000 rw-s 00000000 00:01 1026                       /dev/zero (deleted)",
        b"7f0000000000-7f0000001000 rw-p 00000000 00:01 1026                       /memfd:x (deleted)",
        b"7f0000000000-7f0000001000 r--p 00000000 00:00 0",
        b"7f35443cf000-7f35443d3000 rw-p 00000000 00:00 0                          [vvar]",
    ] {
        assert!(!parse_mapping(line).unwrap().is_own_memory(), "{}", line.escape_ascii());
    }
    let named = b"7f0000000000-7f0000001000 rw-p 00000000 00:00 0                          [anon:jit]";
    assert!(parse_mapping(named).unwrap().is_own_memory());
}

#[test]
fn a_line_that_was_cut_short_or_runs_backwards_is_refused() {
    let whole = b"7f0000000000-7f0000001000 rw-p 00000000 00:00 0";
    parse_mapping(whole).unwrap();
    for end in 0..whole.len() {
        assert!(parse_mapping(&whole[..end]).is_err(), "{end} bytes of it");
    }
    parse_mapping(b"7f0000001000-7f0000000000 rw-p 00000000 00:00 0").unwrap_err();
    parse_mapping(b"7f0000000000-7f0000001000 rw-px 00000000 00:00 0").unwrap_err();
}
