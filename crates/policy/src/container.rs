//! Which container a cgroup belongs to, by the names that runtimes give to cgroups. Whoever may make a cgroup chooses its
//! name: it is told, never trusted.

use alloc::{
    borrow::ToOwned as _,
    string::{String, ToString as _},
};
use serde::{Deserialize, Serialize};

/// A container, a pod or a virtual machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// `docker`, `containerd`, `cri-o`, `podman`, `lxc`, `machine` (of systemd-machined: systemd-nspawn, libvirt); `None`:
    /// only the pod is known, or the name does not tell.
    pub runtime: Option<String>,
    /// Its id, or its name where the runtime uses that; `None`: of the pod itself.
    pub id: Option<String>,
    /// The uid of its pod, as Kubernetes writes it.
    pub pod: Option<String>,
}

/// What scopes are called when systemd keeps the cgroups: the prefix before the id.
const SCOPES: [(&str, &str); 5] = [
    ("docker-", "docker"),
    ("cri-containerd-", "containerd"),
    ("nerdctl-", "containerd"),
    ("crio-", "cri-o"),
    ("libpod-", "podman"),
];

/// An id of Docker, containerd, CRI-O or Podman: SHA-256 in hexadecimal digits.
const ID_CHARS: usize = 64;

/// The container of a cgroup path such as `/system.slice/docker-0123...scope/app`: the innermost that has an id, with its pod.
#[must_use]
pub fn container_of(path: &str) -> Option<Container> {
    let mut found: Option<Container> = None;
    let mut pod: Option<String> = None;
    let mut before = "";
    for name in path.split('/').filter(|name| !name.is_empty()) {
        if let Some(uid) = pod_uid(name) {
            pod = Some(uid);
            // What was found above is what Kubernetes itself runs in.
            found = None;
        }
        if let Some((runtime, id)) = container(name, before, pod.is_some()) {
            found = Some(Container { runtime: runtime.map(str::to_owned), id: Some(id), pod: None });
        }
        before = name;
    }
    match (found, pod) {
        (Some(container), pod) => Some(Container { pod, ..container }),
        (None, Some(uid)) => Some(Container { runtime: None, id: None, pod: Some(uid) }),
        (None, None) => None,
    }
}

/// The runtime, where its name tells, and the id.
fn container(name: &str, above: &str, in_pod: bool) -> Option<(Option<&'static str>, String)> {
    let unit = name.strip_suffix(".scope");
    for (prefix, runtime) in SCOPES {
        let id = unit.unwrap_or(name).strip_prefix(prefix).filter(|id| is_id(id));
        if let Some(id) = id {
            return Some((Some(runtime), id.to_owned()));
        }
    }
    // containerd told to let systemd keep the cgroups, by a runtime that does not: 'SLICE:cri-containerd:ID'.
    if let Some((runtime, id)) = name.rsplit_once(':').filter(|(_, id)| is_id(id)) {
        let runtime = match runtime.rsplit(':').next() {
            Some("cri-containerd" | "nerdctl") => Some("containerd"),
            Some("crio") => Some("cri-o"),
            Some("docker") => Some("docker"),
            Some("libpod") => Some("podman"),
            _ => None,
        };
        return Some((runtime, id.to_owned()));
    }
    if let Some(machine) = unit.and_then(|unit| unit.strip_prefix("machine-")) {
        return Some((Some("machine"), unescaped(machine)));
    }
    if let Some(machine) = name.strip_suffix(".service").and_then(|unit| unit.strip_prefix("systemd-nspawn@"))
    {
        return Some((Some("machine"), unescaped(machine)));
    }
    if let Some(container) = name.strip_prefix("lxc.payload.") {
        return Some((Some("lxc"), container.to_owned()));
    }
    // Where runtimes keep the cgroups themselves (cgroupfs): the bare id below a folder of their own.
    if is_id(name) {
        return match above {
            "docker" => Some((Some("docker"), name.to_owned())),
            "libpod_parent" => Some((Some("podman"), name.to_owned())),
            _ if in_pod => Some((None, name.to_owned())),
            _ => None,
        };
    }
    (above == "lxc").then(|| (Some("lxc"), name.to_owned()))
}

fn is_id(text: &str) -> bool {
    text.len() == ID_CHARS && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// `kubepods-burstable-pod0a1b_..._ff.slice` where systemd keeps the cgroups, `pod0a1b-...-ff` where it does not. A static
/// pod's uid is a hash without hyphens.
fn pod_uid(name: &str) -> Option<String> {
    let uid = match name.strip_suffix(".slice").or_else(|| name.split_once(".slice:").map(|(slice, _)| slice))
    {
        Some(slice) if slice.starts_with("kubepods") || slice.contains("-kubepods") => {
            slice.rsplit_once("-pod").map(|(_, uid)| uid.replace('_', "-"))?
        }
        Some(_) => return None,
        None => name.strip_prefix("pod")?.to_string(),
    };
    let plain = uid.bytes().filter(|byte| *byte != b'-');
    let hexadecimal = plain.clone().all(|byte| byte.is_ascii_hexdigit());
    (hexadecimal && plain.count() == 32).then_some(uid)
}

/// As systemd escapes names in those of units: `\x2d` is a hyphen. What is not printable stays as it is.
fn unescaped(name: &str) -> String {
    let mut out = String::new();
    let mut rest = name;
    while let Some((before, after)) = rest.split_once("\\x") {
        out.push_str(before);
        let byte = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte.filter(|byte| byte.is_ascii_graphic()) {
            Some(byte) => {
                out.push(char::from(byte));
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                out.push_str("\\x");
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests;
