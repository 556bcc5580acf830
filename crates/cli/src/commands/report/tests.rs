use super::{Arguments, Destination, write};
use crate::exit::{Exit, Failure};
use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

fn to(path: &Path, force: bool) -> Arguments {
    Arguments { which: "last".to_owned(), output: path.to_owned(), force, verbose: false }
}

fn refused(result: Result<Destination<'_>, Failure>) -> Exit {
    let Err(Failure::Told { exit, message }) = result else { panic!("not refused") };
    assert!(!message.contains('\n'), "{message}");
    exit
}

#[test]
fn a_file_that_is_there_is_replaced_only_when_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.html");
    assert_eq!(Destination::of(&to(&path, false)).unwrap(), Destination::File(&path));
    write(&path, false, "one").unwrap();
    assert_eq!(refused(Destination::of(&to(&path, false))), Exit::Failed);
    // Also when it comes in between.
    let Err(Failure::Told { exit: Exit::Failed, message }) = write(&path, false, "two") else { panic!() };
    assert!(message.contains("is there already") && message.contains("--force"), "{message}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "one");
    write(&path, true, "three").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "three");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left lying about");
}

#[test]
fn nothing_but_a_plain_file_is_ever_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (target, link) = (folder.path().join("precious"), folder.path().join("link"));
    fs::write(&target, "precious").unwrap();
    symlink(&target, &link).unwrap();
    for path in [link.as_path(), folder.path(), Path::new("/dev/null")] {
        for force in [false, true] {
            assert_eq!(refused(Destination::of(&to(path, force))), Exit::Usage, "{}", path.display());
        }
    }
    // A link that is laid after the look is replaced, and not followed.
    write(&link, true, "page").unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
}

#[test]
fn a_dash_is_standard_output_and_a_folder_that_is_not_there_is_said() {
    assert_eq!(Destination::of(&to(Path::new("-"), false)).unwrap(), Destination::Standard);
    let nowhere = PathBuf::from("/nonexistent/a\u{1b}.html");
    let Err(Failure::Told { exit, message }) = write(&nowhere, false, "page") else { panic!() };
    assert_eq!(exit, Exit::Failed);
    assert!(message.starts_with("cannot write '/nonexistent/a\\u{1b}.html'"), "{message}");
}
