use super::*;
use crate::workingset::PutBack;

#[test]
fn every_cgroup_below_the_root_stops_swapping_and_is_put_back() {
    let tree = tempfile::tempdir().unwrap();
    let knobs = [("system.slice", "max\n"), ("user.slice", "1073741824\n")].map(|(name, value)| {
        let knob = tree.path().join(name).join("memory.swap.max");
        fs::create_dir(tree.path().join(name)).unwrap();
        fs::write(&knob, value).unwrap();
        (knob, value.trim())
    });
    fs::create_dir(tree.path().join("without")).unwrap();
    let (means, mut changes) = SwapKnobs::at(Some(tree.path()), Path::new("/nowhere")).plan().unwrap();
    assert_eq!((means, changes.len()), (SwapHold::SwapMax, 2));
    for change in &mut changes {
        // As a knob of the kernel, which holds the last value and nothing of the one before.
        fs::write(change.path(), knobs::read(change.path()).unwrap()).unwrap();
        fs::write(change.path(), "").unwrap();
        change.apply().unwrap();
    }
    assert_eq!(knobs.each_ref().map(|(knob, _)| knobs::read(knob).unwrap()), ["0", "0"]);
    assert_eq!(SwapKnobs::at(Some(tree.path()), Path::new("/nowhere")).plan().unwrap().1, []);
    for change in &changes {
        assert_eq!(change.put_back().unwrap(), PutBack::Done);
    }
    for (knob, value) in knobs {
        assert_eq!(knobs::read(&knob).unwrap(), value);
    }
}

#[test]
fn without_such_cgroups_swappiness_is_the_next_best() {
    let folder = tempfile::tempdir().unwrap();
    let swappiness = folder.path().join("swappiness");
    fs::write(&swappiness, "60\n").unwrap();
    for tree in [None, Some(folder.path())] {
        let (means, changes) = SwapKnobs::at(tree, &swappiness).plan().unwrap();
        assert_eq!((means, changes.len()), (SwapHold::Swappiness, 1));
    }
    assert!(SwapKnobs::at(None, Path::new("/nowhere")).plan().unwrap_err().is_absent());
}
