use super::{Key, meaning};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

#[test]
fn ctrl_c_and_ctrl_z_are_keys_in_raw_mode_and_letters_alone_are_not_those() {
    let control = |letter| meaning(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL));
    assert_eq!((control('c'), control('z'), control('q')), (Some(Key::Leave), Some(Key::Suspend), None));
    let plain = |code| meaning(KeyEvent::new(code, KeyModifiers::NONE));
    assert_eq!((plain(KeyCode::Char('c')), plain(KeyCode::Char('q'))), (None, Some(Key::Leave)));
    assert_eq!((plain(KeyCode::Down), plain(KeyCode::Char('j'))), (Some(Key::Down), Some(Key::Down)));
}
