use super::*;

fn knob(value: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("knob");
    fs::write(&path, value).unwrap();
    (folder, path)
}

#[test]
fn a_change_is_put_back_from_its_record_alone() {
    let (_folder, path) = knob("0\n");
    let mut undo = plan(&path, "1000").unwrap().unwrap();
    undo.apply().unwrap();
    assert_eq!(read(&path).unwrap(), "1000");
    let line = undo.line();
    let later = Undo::parse(line.strip_suffix(b"\n").unwrap()).unwrap();
    assert_eq!(later, undo);
    fs::write(&path, "1000\n").unwrap();
    assert_eq!(later.put_back().unwrap(), PutBack::Done);
    assert_eq!(fs::read_to_string(&path).unwrap().get(..1), Some("0"));
}

#[test]
fn what_somebody_else_has_set_since_stays() {
    let (_folder, path) = knob("0");
    let mut undo = plan(&path, "1000").unwrap().unwrap();
    undo.apply().unwrap();
    fs::write(&path, "7").unwrap();
    assert_eq!(undo.put_back().unwrap(), PutBack::NotOurs);
    assert_eq!(read(&path).unwrap(), "7");
}

#[test]
fn nothing_is_recorded_for_a_value_that_is_there_already_nor_made_where_there_is_no_knob() {
    let (_folder, path) = knob("max\n");
    assert_eq!(plan(&path, "max").unwrap(), None);
    let mut undo = plan(&path, "0").unwrap().unwrap();
    fs::remove_file(&path).unwrap();
    assert!(undo.apply().unwrap_err().is_absent());
    assert!(!path.exists());
    assert_eq!(undo.put_back().unwrap(), PutBack::Gone);
    assert!(plan(&path, "0").unwrap_err().is_absent());
}

#[test]
fn a_line_that_is_no_record_is_refused() {
    for line in ["", "0", "0\t1", "0\t1\tno/path", "0;\t1\t/path", "0\t1\t/pa\nth", "0\t\x1b\t/path"] {
        assert_eq!(Undo::parse(line.as_bytes()), None, "{line:?}");
    }
}
