use super::{Container, container_of};
use proptest::proptest;
use std::{
    format,
    string::{String, ToString},
};

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const POD: &str = "0a1b2c3d-0000-4000-8000-00000000beef";

fn found(path: &str) -> Option<(Option<String>, Option<String>, Option<String>)> {
    container_of(path).map(|Container { runtime, id, pod }| (runtime, id, pod))
}

fn runtime(name: &str, id: &str) -> Option<(Option<String>, Option<String>, Option<String>)> {
    Some((Some(name.to_string()), Some(id.to_string()), None))
}

#[test]
fn runtimes_are_known_by_the_names_they_give() {
    for (path, name) in [
        (format!("/system.slice/docker-{ID}.scope"), "docker"),
        (format!("/docker/{ID}"), "docker"),
        (format!("/docker/{ID}/init.scope"), "docker"),
        (
            format!("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container"),
            "podman",
        ),
        (format!("/libpod_parent/libpod-{ID}"), "podman"),
        (format!("/default/nerdctl-{ID}.scope"), "containerd"),
        (format!("/machine.slice/crio-{ID}.scope"), "cri-o"),
    ] {
        assert_eq!(found(&path), runtime(name, ID), "{path}");
    }
    assert_eq!(found("/machine.slice/machine-web\\x2d1.scope/payload"), runtime("machine", "web-1"));
    assert_eq!(found("/machine.slice/systemd-nspawn@web.service"), runtime("machine", "web"));
    assert_eq!(found("/lxc.payload.web/system.slice"), runtime("lxc", "web"));
    assert_eq!(found("/lxc/web"), runtime("lxc", "web"));
}

#[test]
fn a_pod_is_told_with_its_container_and_alone() {
    let underscores = POD.replace('-', "_");
    let slice = format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{underscores}.slice");
    let in_pod = |name: Option<&str>, id: Option<&str>| {
        Some((name.map(String::from), id.map(String::from), Some(POD.to_string())))
    };
    assert_eq!(found(&slice), in_pod(None, None));
    assert_eq!(found(&format!("{slice}/cri-containerd-{ID}.scope")), in_pod(Some("containerd"), Some(ID)));
    assert_eq!(found(&format!("{slice}/crio-{ID}.scope/nested")), in_pod(Some("cri-o"), Some(ID)));
    assert_eq!(found(&format!("/kubepods/besteffort/pod{POD}/{ID}")), in_pod(None, Some(ID)));
    let unsure = format!("/system.slice/kubepods-besteffort-pod{underscores}.slice:cri-containerd:{ID}");
    assert_eq!(found(&unsure), in_pod(Some("containerd"), Some(ID)));
    // kind: a node that is itself a container.
    let kind = format!(
        "/docker/{}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{underscores}.slice/cri-containerd-{ID}.scope",
        ID.replace('0', "f")
    );
    assert_eq!(found(&kind), in_pod(Some("containerd"), Some(ID)));
}

#[test]
fn what_only_looks_like_a_container_is_none() {
    for path in [
        "/",
        "",
        "/user.slice/user-1000.slice/session-2.scope",
        "/system.slice/docker.service",
        "/system.slice/docker-short.scope",
        "/system.slice/podman.service",
        "/system.slice/libpod-conmon-0123.scope",
        "/kubepods.slice/kubepods-besteffort.slice",
        "/user.slice/podium",
    ] {
        assert_eq!(found(path), None, "{path}");
    }
    assert_eq!(found(&format!("/user.slice/{ID}")), None);
}

proptest! {
    #[test]
    fn no_path_makes_it_fail(path in "(/(lxc|docker|kubepods-pod|machine-|\\\\x2|[a-f0-9]{64}|\\PC{0,20})(\\.scope|\\.slice|:)?){0,6}") {
        let _any = container_of(&path);
    }
}
