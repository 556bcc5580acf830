use super::{is_below, prefixes};
use crate::cgroup::testing::Grove;

#[test]
fn the_cgroups_above_one_are_its_path_cut_at_each_slash() {
    let all: Vec<_> = prefixes(b"a/bc/d").collect();
    assert_eq!(all, [b"a".as_slice(), b"a/bc", b"a/bc/d"]);
    assert_eq!(prefixes(b"").count(), 0);
}

#[test]
fn a_name_that_only_begins_like_another_is_not_below_it() {
    assert!(is_below(b"a/b", b"a") && is_below(b"a", b"a") && is_below(b"a", b""));
    assert!(!is_below(b"ab", b"a") && !is_below(b"a", b"a/b"));
}

#[test]
fn the_unit_of_a_cgroup_is_the_nearest_above_it_with_processes() {
    let Some(mut grove) = Grove::plant() else { return };
    let slice = grove.make("user.slice");
    let manager = grove.make("user.slice/user@1000.service");
    let slice_below = grove.make("user.slice/user@1000.service/app.slice");
    let scope = grove.make("user.slice/user@1000.service/app.slice/run-1.scope");
    let part = grove.make("user.slice/user@1000.service/app.slice/run-1.scope/part");
    let unit = |cgroup| grove.root.unit_of(cgroup).unwrap().map(|unit| unit.id());
    assert_eq!(unit(&part), Some(scope.id()));
    assert_eq!(unit(&scope), Some(scope.id()));
    assert_eq!(unit(&slice_below), Some(manager.id()));
    assert_eq!(unit(&slice), None);
}
