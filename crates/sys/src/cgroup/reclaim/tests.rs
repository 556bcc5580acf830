use super::ReclaimOrder;
use crate::cgroup::{CgroupErrorKind, testing::Grove};
use plimsoll_policy::units::Bytes;
use std::time::Duration;

#[test]
fn without_the_memory_controller_there_is_no_reclaim() {
    let Some(grove) = Grove::plant() else { return };
    if grove.root.has_memory() {
        return crate::process::testing::skip("the memory controller is switched on here");
    }
    let order = ReclaimOrder { bytes: Bytes(1 << 20), swappiness: None, budget: Duration::from_secs(1) };
    let error = grove.top().reclaim(&order).unwrap_err();
    assert!(matches!(error.kind, CgroupErrorKind::Unsupported(_)), "{error}");
}
