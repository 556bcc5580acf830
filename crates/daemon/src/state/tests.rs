use super::*;
use plimsoll_policy::{
    account::Action,
    lines::{Line, LineBook, OWN_LINES_MAX, Place, StoredLine, Target},
    size::Size,
    units::{Bytes, Uid},
};
use std::os::unix::fs::symlink;

const FILE_NAME: &str = LINES.name;
const NEW_FILE_NAME: &str = "limits.json.new";

type Lines = BTreeMap<String, u64>;

fn lines() -> Lines {
    Lines::from([("user:1000".to_owned(), 42), ("naïve \"\n\u{7}".to_owned(), u64::MAX)])
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("state");
    (outer, folder)
}

fn load(folder: &Path) -> Result<Lines, StateError> {
    StateFile::load(folder, LINES).map(|(_, lines)| lines)
}

/// Writes `bytes` as the limits file, and checks that loading fails and leaves them alone.
fn refused(folder: &Path, bytes: &[u8]) -> StateError {
    let path = folder.join(FILE_NAME);
    fs::write(&path, bytes).unwrap();
    let error = load(folder).unwrap_err();
    assert_eq!(fs::read(&path).unwrap(), bytes);
    assert!(!error.to_string().contains('\n'), "{error}");
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    error
}

#[test]
fn a_missing_folder_is_made_for_its_owner_only_and_a_missing_file_is_empty() {
    let (_outer, folder) = folder();
    assert_eq!(load(&folder).unwrap(), Lines::new());
    assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o7777, 0o700);
    assert!(!folder.join(FILE_NAME).exists());
}

#[test]
fn a_folder_open_to_others_is_closed_to_them() {
    let (_outer, folder) = folder();
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    prepare_folder(&folder).unwrap();
    assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o7777, 0o700);
}

#[test]
fn a_file_in_the_place_of_the_folder_is_said_to_be_none() {
    let (_outer, folder) = folder();
    fs::write(&folder, "").unwrap();
    assert!(matches!(load(&folder), Err(StateError::NotAFolder { .. })));
}

#[test]
fn what_was_saved_is_loaded_and_the_file_is_for_its_owner_only() {
    let (_outer, folder) = folder();
    let (mut file, mut found) = StateFile::load::<Lines>(&folder, LINES).unwrap();
    for more in [lines(), Lines::new(), lines()] {
        found.clone_from(&more);
        file.save(&found).unwrap();
        assert_eq!(load(&folder).unwrap(), more);
    }
    assert_eq!(fs::metadata(folder.join(FILE_NAME)).unwrap().mode() & 0o7777, 0o600);
    assert!(!folder.join(NEW_FILE_NAME).exists());
}

#[test]
fn a_file_cut_off_anywhere_is_damaged_and_stays_as_it_is() {
    let (_outer, folder) = folder();
    StateFile::load::<Lines>(&folder, LINES).unwrap().0.save(&lines()).unwrap();
    let whole = fs::read(folder.join(FILE_NAME)).unwrap();
    // The last two bytes are the closing brace and a newline, without which it is still whole.
    for length in 0..whole.len() - 1 {
        let error = refused(&folder, &whole[..length]);
        assert!(matches!(error, StateError::Corrupt { .. }), "at {length}: {error}");
    }
}

#[test]
fn content_that_is_no_limits_file_is_damaged() {
    let (_outer, folder) = folder();
    prepare_folder(&folder).unwrap();
    for content in [
        &b"\0\0\0\0"[..],
        b"[]",
        b"{\"lines\":{}}",
        b"{\"version\":0,\"lines\":{}}",
        b"{\"version\":-1,\"lines\":{}}",
        b"{\"version\":1}",
        b"{\"version\":1,\"lines\":{\"user:1\":\"x\"}}",
        b"{\"version\":1,\"lines\":{},\"more\":1}",
        b"{\"version\":1,\"version\":1,\"lines\":{}}",
        b"{\"version\":1,\"lines\":{}} {}",
        b"{\"version\":1,\"lines\":{\"\xff\":1}}",
    ] {
        let error = refused(&folder, content);
        assert!(matches!(error, StateError::Corrupt { .. }), "{}: {error}", content.escape_ascii());
    }
}

#[test]
fn a_newer_version_is_named_before_its_content_is_looked_at() {
    let (_outer, folder) = folder();
    prepare_folder(&folder).unwrap();
    let error = refused(&folder, b"{\"lines\":[\"unheard of\"],\"version\":3,\"more\":{}}");
    assert!(matches!(error, StateError::Future { version: 3, .. }), "{error}");
}

#[test]
fn a_file_over_the_cap_is_refused_and_one_at_the_cap_is_read() {
    let (_outer, folder) = folder();
    prepare_folder(&folder).unwrap();
    let cap = usize::try_from(STATE_MAX_BYTES).unwrap();
    let mut content = b"{\"version\":1,\"lines\":{}}".to_vec();
    content.resize(cap, b' ');
    fs::write(folder.join(FILE_NAME), &content).unwrap();
    assert_eq!(load(&folder).unwrap(), Lines::new());
    content.push(b' ');
    assert!(matches!(refused(&folder, &content), StateError::TooLarge { .. }));
}

#[test]
fn the_lines_of_users_own_leave_room_for_as_many_of_the_administrators() {
    let (_outer, folder) = folder();
    let (mut file, _) = StateFile::load::<Vec<StoredLine>>(&folder, LINES).unwrap();
    let longest = Line {
        hard: Size::Bytes(Bytes(u64::MAX)),
        soft: Some(Size::Bytes(Bytes(u64::MAX))),
        action: Action::Notify,
    };
    let mut book = LineBook::default();
    for number in 0..u32::try_from(OWN_LINES_MAX).unwrap() {
        let uid = Uid(4_294_967_294 - number);
        book.set(Place::Own(uid), longest);
        book.set(Place::Administrator(Target::User(uid)), longest);
    }
    file.save(&book.to_stored()).unwrap();
}

#[test]
fn what_could_not_be_read_back_is_not_written() {
    let (_outer, folder) = folder();
    let (mut file, _) = StateFile::load::<Lines>(&folder, LINES).unwrap();
    file.save(&lines()).unwrap();
    let huge = Lines::from([("x".repeat(1 << 20), 1)]);
    assert!(matches!(file.save(&huge), Err(StateError::TooLarge { .. })));
    assert_eq!(load(&folder).unwrap(), lines());
}

#[test]
fn links_folders_and_pipes_are_not_opened() {
    let (outer, folder) = folder();
    prepare_folder(&folder).unwrap();
    let path = folder.join(FILE_NAME);
    let elsewhere = outer.path().join("elsewhere");
    fs::write(&elsewhere, "{\"version\":1,\"lines\":{\"a\":1}}").unwrap();
    symlink(&elsewhere, &path).unwrap();
    assert!(matches!(load(&folder), Err(StateError::NotAFile { .. })));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(load(&folder), Err(StateError::NotAFile { .. })));
    fs::remove_dir(&path).unwrap();
    // Opening a pipe that nobody writes to would wait for ever.
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR).unwrap();
    assert!(matches!(load(&folder), Err(StateError::NotAFile { .. })));
}

#[test]
fn a_file_of_somebody_else_is_refused_and_one_of_roots_is_not() {
    let path = Path::new("/some/where");
    let own = nix::unistd::geteuid().as_raw();
    assert!(matches!(check_owner(path, own), Ok(())));
    assert!(matches!(check_owner(path, 0), Ok(())));
    assert!(matches!(check_owner(path, own.max(60_000) + 1), Err(StateError::NotOurs { .. })));
    if own == 0 {
        let (_outer, folder) = folder();
        StateFile::load::<Lines>(&folder, LINES).unwrap().0.save(&lines()).unwrap();
        std::os::unix::fs::chown(folder.join(FILE_NAME), Some(60_001), None).unwrap();
        assert!(matches!(load(&folder), Err(StateError::NotOurs { owner: 60_001, .. })));
        std::os::unix::fs::chown(&folder, Some(60_002), None).unwrap();
        assert!(matches!(load(&folder), Err(StateError::NotOurs { owner: 60_002, .. })));
    }
}

#[test]
fn what_a_crash_left_of_a_save_is_ignored_and_replaced_without_following_a_link() {
    let (outer, folder) = folder();
    let (mut file, _) = StateFile::load::<Lines>(&folder, LINES).unwrap();
    file.save(&lines()).unwrap();
    fs::write(folder.join(NEW_FILE_NAME), "{\"versi").unwrap();
    assert_eq!(load(&folder).unwrap(), lines());
    fs::remove_file(folder.join(NEW_FILE_NAME)).unwrap();
    let elsewhere = outer.path().join("elsewhere");
    fs::write(&elsewhere, "precious").unwrap();
    symlink(&elsewhere, folder.join(NEW_FILE_NAME)).unwrap();
    file.save(&Lines::new()).unwrap();
    assert_eq!(load(&folder).unwrap(), Lines::new());
    assert_eq!(fs::read(&elsewhere).unwrap(), b"precious");
}

#[test]
fn a_save_that_fails_says_so_and_leaves_nothing_behind() {
    let (_outer, folder) = folder();
    let (mut file, _) = StateFile::load::<Lines>(&folder, LINES).unwrap();
    // A file cannot take the place of a folder.
    fs::create_dir(folder.join(FILE_NAME)).unwrap();
    let error = file.save(&lines()).unwrap_err();
    assert!(matches!(error, StateError::Io { operation: "replace", .. }), "{error}");
    assert!(!folder.join(NEW_FILE_NAME).exists());
}

#[test]
fn a_line_of_each_member_that_the_first_version_wrote_stays_one() {
    let (_outer, folder) = folder();
    fs::create_dir(&folder).unwrap();
    let line = r#"[{"target":"TARGET","set_by":0,"line":{"hard":"25%"}}]"#;
    let targets =
        [(1, "group:50", "@50"), (1, "user:7", "user:7"), (2, "group:50", "group:50"), (2, "@50", "@50")];
    for (version, written, read) in targets {
        let content = format!("{{\"version\":{version},\"lines\":{}}}", line.replace("TARGET", written));
        fs::write(folder.join(FILE_NAME), content).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        let (_, lines) = StateFile::load::<Vec<StoredLine>>(&folder, LINES).unwrap();
        assert_eq!(lines[0].target.to_string(), read, "version {version}, {written}");
    }
}
