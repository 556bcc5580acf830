use super::*;
use crate::process::{
    testing::{Freezer, Guest, proc_root},
    v1_tree::mounted,
};

#[test]
fn one_that_is_not_frozen_is_left_where_it_is() {
    let guest = Guest::asleep();
    let thawed = thaw(&mounted(FREEZER), &mut proc_root(), &guest.pidfd()).unwrap();
    assert!(!thawed);
    assert!(!thaw(Path::new("/nonexistent"), &mut proc_root(), &guest.pidfd()).unwrap());
}

#[test]
fn a_frozen_one_is_moved_to_where_it_runs() {
    let guest = Guest::asleep();
    let Some(freezer) = Freezer::make() else { return };
    freezer.freeze(&[guest.pid()]);
    assert!(thaw(&mounted(FREEZER), &mut proc_root(), &guest.pidfd()).unwrap());
    assert!(!freezer.holds(guest.pid()));
    assert!(!thaw(&mounted(FREEZER), &mut proc_root(), &guest.pidfd()).unwrap());
}
