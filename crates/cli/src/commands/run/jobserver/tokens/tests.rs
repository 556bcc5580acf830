use super::*;

#[test]
fn tokens_are_issued_as_far_as_there_are_slots_and_taken_back() {
    for mut tokens in [Tokens::named(4).unwrap(), Tokens::inherited(4).unwrap()] {
        tokens.offer(9);
        assert_eq!((tokens.free(), tokens.taken()), (3, 0));
        let mut taken = [0; 2];
        tokens.takes.read_exact(&mut taken).unwrap();
        assert_eq!((taken, tokens.free(), tokens.taken()), ([TOKEN; 2], 1, 2));
        // What is taken is left to whoever has it.
        tokens.offer(0);
        assert_eq!((tokens.free(), tokens.taken()), (0, 2));
        tokens.offer(9);
        assert_eq!((tokens.free(), tokens.taken()), (1, 2));
        tokens.gives.write_all(&taken).unwrap();
        tokens.offer(2);
        assert_eq!((tokens.free(), tokens.taken()), (2, 0));
    }
}

#[test]
fn tokens_that_went_with_their_holders_are_issued_anew_and_forged_ones_are_taken_back() {
    let mut tokens = Tokens::named(4).unwrap();
    tokens.offer(3);
    tokens.takes.read_exact(&mut [0; 3]).unwrap();
    tokens.forget_lost(1);
    tokens.offer(9);
    assert_eq!((tokens.free(), tokens.taken()), (2, 1));
    // More than a pipe holds does not stop it either.
    while matches!(tokens.gives.write(&[b'!'; 4096]), Ok(written) if written > 0) {}
    tokens.offer(1);
    assert_eq!(tokens.free(), 1);
}

#[test]
fn a_jobserver_takes_the_place_of_another_in_makes_flags() {
    let with = |before: &str| flags(OsStr::new(before), 4, OsStr::new("3,5")).into_string().unwrap();
    assert_eq!(with(""), " -j4 --jobserver-auth=3,5");
    assert_eq!(
        with("ks -j8 --jobserver-auth=fifo:/tmp/x --no-print-directory"),
        "ks --no-print-directory -j4 --jobserver-auth=3,5"
    );
    assert_eq!(with(" -j --jobserver-fds=3,4 -j -- CC=a\\ b"), " -j4 --jobserver-auth=3,5 -- CC=a\\ b");
}

#[test]
fn the_version_of_make_is_read() {
    assert_eq!(version("GNU Make 4.3\nBuilt for x86_64-pc-linux-gnu\n"), Some((4, 3)));
    assert_eq!(version("GNU Make 4.4.1\n"), Some((4, 4)));
    assert_eq!(version("bmake\n"), None);
    assert_eq!(version(""), None);
}
