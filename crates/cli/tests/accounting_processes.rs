//! Usage against the kernel's own exact sums: what processes do that belong to one user.
#![expect(clippy::tests_outside_test_module, reason = "this whole file is one test module")]

mod support;

use support::{ALICE, exact};

#[test]
fn a_process_is_charged_exactly_what_the_kernel_counts() {
    let world = world!();
    world.limit(ALICE, "256M", &[]);
    let mut chill = world.workload(ALICE, "chill", &["--mebibytes=20"]);
    chill.stage("ready");
    assert_eq!(world.usage_pages(ALICE), exact::user_pages(ALICE));
    assert!(world.usage_pages(ALICE) >= 5120);
    chill.stop();
    assert_eq!(world.usage_pages(ALICE), 0);
}
