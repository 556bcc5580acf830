//! Cgroup paths: the units on the way, and how far of it root made.

/// The systemd units on a path, outermost first. With `of_root` only those that root's service manager made: slices, and
/// the first that is none. What is below that is its own to name (`Delegate=`): a user's manager, a container.
pub(super) fn units(path: &[u8], of_root: bool) -> impl Iterator<Item = &[u8]> {
    let path = if of_root { made_by_root(path) } else { path };
    path.split(|byte| *byte == b'/').filter(|name| is_slice(name) || is_leaf(name))
}

/// A path and all above it, without the root itself. With `of_root` as in [`units`].
pub(super) fn ancestry(path: &[u8], of_root: bool) -> impl Iterator<Item = &[u8]> {
    let path = if of_root { made_by_root(path) } else { path };
    let ends = (1..=path.len()).filter(|end| matches!(path.get(*end), None | Some(b'/')));
    ends.filter_map(|end| path.get(..end))
}

fn made_by_root(path: &[u8]) -> &[u8] {
    let mut end: usize = 0;
    for name in path.split(|byte| *byte == b'/') {
        end = end.saturating_add(name.len());
        if !name.is_empty() && !is_slice(name) {
            return path.get(..end).unwrap_or(path);
        }
        end = end.saturating_add(1);
    }
    path
}

fn is_leaf(name: &[u8]) -> bool {
    name.ends_with(b".service") || name.ends_with(b".scope")
}

fn is_slice(name: &[u8]) -> bool {
    name.ends_with(b".slice")
}
