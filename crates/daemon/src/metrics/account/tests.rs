use super::*;

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn of(path: &str) -> Of {
    Of::account(&Account::Cgroup(path.parse().unwrap()), None)
}

#[test]
fn a_cgroup_is_called_by_its_unit_and_never_by_its_path_or_a_container() {
    let unit = |name: &str| Of::Unit(name.to_owned());
    assert_eq!(of("/system.slice/build.service"), unit("build.service"));
    assert_eq!(of("/system.slice/build.service/worker"), unit("build.service"));
    assert_eq!(of("/machine.slice"), unit("machine.slice"));
    assert_eq!(of(&format!("/system.slice/docker-{ID}.scope")), unit("system.slice"));
    assert_eq!(
        of(&format!("/machine.slice/libpod-{ID}.scope/container/inner.service")),
        unit("machine.slice")
    );
    let pod = "/kubepods.slice/kubepods-pod0a1b2c3d_0a1b_0a1b_0a1b_0a1b2c3d4e5f.slice";
    assert_eq!(of(pod), unit("kubepods.slice"));
    assert_eq!(of(&format!("/docker/{ID}")), Of::Other);
    assert_eq!(of("/mine"), Of::Other);
}

#[test]
fn no_two_users_are_called_the_same() {
    let users = Names::of(
        b"root:x:0:0::/:/bin/sh\nalice:x:1000:1000::/:/bin/sh\nalias:x:1000:1000::/:/bin/sh\nalice:x:1001:1001::/:/bin/sh\n\
          1003:x:1002:1002::/:/bin/sh\n\xff\xfe:x:1004:1004::/:/bin/sh\n",
        b"staff:x:50:alice\nstuff:x:50:\n51:x:51:\nstaff:x:52:\n",
    );
    let groups = [50, 51, 52].map(|gid| users.of_group(Gid(gid)));
    assert_eq!(groups, ["staff", "51", "52"]);
    let names = [0, 1000, 1001, 1002, 1003, 1004].map(|uid| users.of_user(Uid(uid)));
    assert_eq!(names, ["root", "alice", "1001", "1002", "1003", "1004"]);
}
