use super::*;
use crate::process::{
    testing::{CpuGroup, Guest, proc_root},
    v1_tree::mounted,
};

fn path_of(pid: Pid) -> Vec<u8> {
    proc_root().cpu_cgroup(pid, |path| Some(path.to_vec())).unwrap().unwrap()
}

#[test]
fn only_the_victim_leaves_its_cgroup() {
    let Some(group) = CpuGroup::make() else { return };
    let (victim, beside) = (Guest::asleep(), Guest::asleep());
    [&victim, &beside].iter().for_each(|guest| group.take(guest.pid()));
    let left = |tree: &Path, guest: &Guest| leave(tree, &mut proc_root(), &guest.pidfd()).unwrap();
    assert_eq!(left(&mounted(CPU), &victim), Leave::Moved);
    assert_eq!(path_of(victim.pid()), b"/");
    assert_ne!(path_of(beside.pid()), b"/");
    assert_eq!(left(&mounted(CPU), &victim), Leave::Free);
    assert_eq!(left(Path::new("/nonexistent"), &beside), Leave::Free);
}

#[test]
fn a_stranger_is_put_back_to_where_its_parent_is() {
    let Some(group) = CpuGroup::make() else { return };
    let parent = Guest::shell("read go; sleep 60 & read line");
    group.take(parent.pid());
    let mut parent = parent;
    std::io::Write::write_all(parent.stdin(), b"go\n").unwrap();
    let child = |pid: Pid| {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        children.trim().parse().map(Pid).ok()
    };
    parent.wait_until("it has a child", |_, pid| child(pid).is_some());
    let stranger = child(parent.pid()).unwrap();
    let born = path_of(stranger);
    move_to(&mounted(CPU), stranger).unwrap();
    assert_eq!(path_of(stranger), b"/");
    put_back(&mounted(CPU), &mut proc_root(), stranger);
    assert_eq!(path_of(stranger), born);
    PidFd::open(stranger).unwrap().send_signal(plimsoll_policy::victim::Signal::Kill).unwrap();
}
