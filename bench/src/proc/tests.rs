use super::{charged_bytes, charged_bytes_if_alive, number_field, pids_of_user};

#[test]
fn fields_that_are_missing_or_not_numbers_are_unknown() {
    assert_eq!(number_field("", "read_bytes:"), None);
    assert_eq!(number_field("read_bytes: x\n", "read_bytes:"), None);
    assert_eq!(
        number_field(
            "voluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t9\n",
            "voluntary_ctxt_switches:"
        ),
        Some(7)
    );
}

#[test]
fn this_process_is_found_and_charged_and_a_gone_one_is_not_an_error() {
    let own = std::process::id();
    assert!(pids_of_user(rustix::process::getuid().as_raw()).unwrap().contains(&own));
    assert!(charged_bytes(own).unwrap() > 4096);
    let gone = i32::MAX.unsigned_abs();
    assert_eq!(charged_bytes_if_alive(gone).unwrap(), None);
    charged_bytes(gone).unwrap_err();
}
