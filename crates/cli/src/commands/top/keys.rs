//! Which key means what.

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    /// To the other pane.
    Other,
    /// Show processes, or do not.
    Processes,
    /// To the history, and from it.
    History,
    /// Out of the history.
    Back,
    /// Ctrl-Z.
    Suspend,
    Leave,
}

/// What came from the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    Key(Key),
    /// It has another size, or a key means nothing.
    Other,
    /// There is no terminal any more.
    Gone,
}

/// Waits for the next.
pub(super) fn next() -> Input {
    match event::read() {
        Ok(Event::Key(event)) => meaning(event).map_or(Input::Other, Input::Key),
        Ok(Event::Resize(..) | Event::FocusGained | Event::FocusLost | Event::Mouse(_) | Event::Paste(_)) => {
            Input::Other
        }
        Err(_) => Input::Gone,
    }
}

/// With Ctrl: a terminal in raw mode sends these as keys.
const WITH_CONTROL: [(KeyCode, Key); 2] =
    [(KeyCode::Char('c'), Key::Leave), (KeyCode::Char('z'), Key::Suspend)];

const ALONE: [(KeyCode, Key); 19] = [
    (KeyCode::Up, Key::Up),
    (KeyCode::Char('k'), Key::Up),
    (KeyCode::Down, Key::Down),
    (KeyCode::Char('j'), Key::Down),
    (KeyCode::PageUp, Key::PageUp),
    (KeyCode::PageDown, Key::PageDown),
    (KeyCode::Char(' '), Key::PageDown),
    (KeyCode::Home, Key::First),
    (KeyCode::Char('g'), Key::First),
    (KeyCode::End, Key::Last),
    (KeyCode::Char('G'), Key::Last),
    (KeyCode::Tab, Key::Other),
    (KeyCode::BackTab, Key::Other),
    (KeyCode::Char('p'), Key::Processes),
    (KeyCode::Char('h'), Key::History),
    (KeyCode::Enter, Key::History),
    (KeyCode::Esc, Key::Back),
    (KeyCode::Char('q'), Key::Leave),
    (KeyCode::Char('Q'), Key::Leave),
];

fn meaning(event: KeyEvent) -> Option<Key> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    let with_control = event.modifiers.contains(KeyModifiers::CONTROL);
    let keys: &[(KeyCode, Key)] = if with_control { &WITH_CONTROL } else { &ALONE };
    keys.iter().find(|(code, _)| *code == event.code).map(|(_, key)| *key)
}

#[cfg(test)]
mod tests;
