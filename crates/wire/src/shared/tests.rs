use super::*;
use plimsoll_policy::units::{Pages, Pid};
use zerocopy::IntoBytes as _;

fn record(flags: u32, mode: u32) -> abi::plimsoll_shared {
    let mut record = abi::plimsoll_shared {
        inode: 1,
        pages: 5,
        uid: 1000,
        owner: 1000,
        mode: 0o100_000 | mode,
        device: 1 << 20 | 0x24,
        flags,
        ..Default::default()
    };
    record.name[..9].copy_from_slice(b"a\n\xff\x1b[0m\0x");
    record
}

fn decoded(record: abi::plimsoll_shared) -> Result<SharedRecord, RecordError> {
    decode(record.as_bytes())
}

fn file(flags: u32, mode: u32) -> SharedFile<SharedName> {
    let record = decoded(record(flags, mode)).unwrap();
    let SharedRecord::File { file, .. } = record else { panic!("{record:?}") };
    file
}

#[test]
fn a_file_is_open_to_others_where_its_permissions_may_let_them_in() {
    let open = |flags, mode| file(flags, mode).is_open_to_others;
    for mode in [0o640, 0o604, 0o620, 0o602, 0o666] {
        assert!(open(abi::PLIMSOLL_SHARED_FILE, mode), "{mode:o}");
    }
    assert!(!open(abi::PLIMSOLL_SHARED_FILE, 0o711));
    assert!(open(abi::PLIMSOLL_SHARED_FILE | abi::PLIMSOLL_SHARED_ACL, 0o600));
    assert!(open(abi::PLIMSOLL_SHARED_SEGMENT, 0o600));
    assert!(!open(abi::PLIMSOLL_SHARED_MEMFD, 0o777));
    assert!(!open(abi::PLIMSOLL_SHARED_ANONYMOUS, 0o777));
    for kind in [abi::PLIMSOLL_SHARED_FILE, abi::PLIMSOLL_SHARED_MEMFD] {
        assert!(open(kind | abi::PLIMSOLL_SHARED_HANDED, 0o600), "{kind}");
    }
}

#[test]
fn names_hold_what_can_be_shown_and_devices_are_as_mountinfo_writes_them() {
    let file = file(abi::PLIMSOLL_SHARED_FILE, 0o600);
    assert_eq!(file.name.text, "a\\x0a\\xff\\x1b[0m");
    assert_eq!((file.name.device, file.pages), ((1, 0x24), Pages(5)));
}

#[test]
fn who_holds_a_file_is_told_from_the_file() {
    let held = abi::plimsoll_shared { mm: 9, telling: 5, ..record(abi::PLIMSOLL_SHARED_CONTAINED, 0) };
    let expected =
        Holding { key: 1, mm: 9, pid: Pid(5), uid: Uid(1000), user: Uid(1000), is_contained: true };
    assert_eq!(decoded(held), Ok(SharedRecord::Held(expected)));
}

#[test]
fn a_pipe_is_told_with_who_has_it_open_and_is_of_whom_the_kernel_counts_it_for() {
    let pipe = |flags, mode| {
        let told = record(abi::PLIMSOLL_SHARED_PIPE | flags, mode);
        let record =
            decoded(abi::plimsoll_shared { mm: 9, telling: 5, number: 7, device: 1001, ..told }).unwrap();
        let SharedRecord::Pipe { file, held } = record else { panic!("{record:?}") };
        (file, held)
    };
    let (file, held) = pipe(abi::PLIMSOLL_SHARED_CONTAINED, 0o600);
    assert_eq!(
        held,
        Holding { key: 1, mm: 9, pid: Pid(5), uid: Uid(1000), user: Uid(1000), is_contained: true }
    );
    assert_eq!((file.key, file.number, file.pages), (1, 7, Pages(5)));
    assert_eq!((file.kind, file.uid, file.owner), (Kind::Pipe, Uid(1001), Uid(1001)));
    assert!(!file.stays && !file.is_open_to_others && !file.is_crowded);
    assert!(pipe(0, 0o620).0.is_open_to_others && pipe(0, 0o604).0.is_open_to_others);
    assert!(pipe(abi::PLIMSOLL_SHARED_HANDED, 0o600).0.is_open_to_others);
    assert!(pipe(abi::PLIMSOLL_SHARED_CROWDED, 0o600).0.is_crowded);
}

#[test]
fn what_a_directory_has_or_an_id_leads_to_stays() {
    assert!(file(abi::PLIMSOLL_SHARED_FILE, 0o600).stays);
    assert!(!file(abi::PLIMSOLL_SHARED_FILE | abi::PLIMSOLL_SHARED_UNLINKED, 0o600).stays);
    assert!(file(abi::PLIMSOLL_SHARED_SEGMENT | abi::PLIMSOLL_SHARED_UNLINKED, 0o600).stays);
    assert!(!file(abi::PLIMSOLL_SHARED_MEMFD, 0o777).stays);
    assert!(!file(abi::PLIMSOLL_SHARED_ANONYMOUS, 0o777).stays);
}

#[test]
fn small_files_are_told_as_one() {
    let small = SharedRecord::Small { key: 1, uid: Uid(1000), telling: 3, pages: Pages(5) };
    let record = abi::plimsoll_shared { telling: 3, ..record(abi::PLIMSOLL_SHARED_SMALL, 0) };
    assert_eq!(decoded(record), Ok(small));
}

#[test]
fn a_user_is_told_of_whom_not_all_was_looked_at() {
    let of_bob = abi::plimsoll_shared { owner: 1001, ..record(abi::PLIMSOLL_SHARED_PARTLY, 0) };
    assert_eq!(decoded(of_bob), Ok(SharedRecord::Partly(Uid(1001))));
    let flags = abi::PLIMSOLL_SHARED_PARTLY | abi::PLIMSOLL_SHARED_FILE;
    assert_eq!(decoded(record(flags, 0)), Ok(SharedRecord::Unlisted(Uid(1000))));
}

#[test]
fn who_has_more_open_than_fits_is_told_by_a_number() {
    let cut = |number| decoded(abi::plimsoll_shared { number, ..record(abi::PLIMSOLL_SHARED_CUT, 0) });
    assert_eq!(cut(77), Ok(SharedRecord::Cut(77, Uid(1000))));
    cut(0).unwrap_err();
    cut(1 << 32).unwrap_err();
}

#[test]
fn what_is_no_record_is_refused() {
    decode(&[0; 95]).unwrap_err();
    decoded(record(0, 0o600)).expect_err("of no kind");
    let below = abi::plimsoll_shared { pages: -1, ..record(abi::PLIMSOLL_SHARED_MEMFD, 0) };
    assert!(matches!(decoded(below), Ok(SharedRecord::File { file, .. }) if file.pages == Pages(0)));
}

#[test]
fn the_fuzzers_corpus_is_of_records() {
    let corpus = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/shared_record"));
    let names: Vec<_> = corpus
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            if let SharedRecord::File { file, .. } =
                decode(&bytes).unwrap_or_else(|error| panic!("{path:?}: {error}"))
            {
                assert!(file.name.text.chars().all(|letter| matches!(letter, ' '..='~')), "{file:?}");
            }
            path
        })
        .collect();
    assert_eq!(names.len(), 4, "{names:?}");
}
