use super::{
    charged_bytes, kib_field, number_field, read_charged_bytes, read_of, read_pids_of_user,
    statm_anonymous_pages,
};

const ROLLUP: &str = "55d0-7ffd ---p 00000000 00:00 0    [rollup]
Rss:                1812 kB
Pss_Anon:            240 kB
Anonymous:           248 kB
KSM:                   0 kB
AnonHugePages:         0 kB
Swap:                 12 kB
SwapPss:              12 kB
";

#[test]
fn charged_bytes_are_anonymous_plus_swap_and_not_their_namesakes() {
    assert_eq!(charged_bytes(ROLLUP), Some((248 + 12) * 1024));
    assert_eq!(charged_bytes(&ROLLUP.replace("Swap: ", "Gone: ")), None);
}

#[test]
fn fields_that_are_missing_or_not_numbers_are_unknown() {
    assert_eq!(kib_field("MemTotal:  24684084 kB\n", "MemTotal:"), Some(24_684_084));
    assert_eq!(kib_field("MemTotal:  x kB\n", "MemTotal:"), None);
    assert_eq!(kib_field("", "MemTotal:"), None);
    assert_eq!(number_field("Name:\ta\nUid:\t60010\t0\t0\t0\n", "Uid:"), Some(60_010));
    assert_eq!(
        number_field(
            "voluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t9\n",
            "voluntary_ctxt_switches:"
        ),
        Some(7)
    );
}

#[test]
fn statm_gives_resident_without_shared() {
    assert_eq!(statm_anonymous_pages("700 453 390 10 0 80 0\n"), Some(63));
    assert_eq!(statm_anonymous_pages("700"), None);
}

#[test]
fn this_process_is_found_and_charged_and_a_gone_one_is_not_an_error() {
    let own = std::process::id();
    assert!(read_pids_of_user(nix::unistd::getuid().as_raw()).unwrap().contains(&own));
    assert!(read_charged_bytes(own).unwrap().unwrap() > 4096);
    assert_eq!(read_of(u32::MAX, "statm").unwrap(), None);
}
