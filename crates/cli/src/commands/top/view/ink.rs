//! Which colours and attributes a terminal gets.

use ratatui::style::{Color, Modifier, Style};
use std::{env, ffi::OsStr};

/// What may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Ink {
    colour: bool,
    /// Bold and reversed.
    attributes: bool,
}

impl Ink {
    /// As the environment says.
    pub(in super::super) fn of_terminal() -> Self {
        Self::of(env::var_os("NO_COLOR").as_deref(), env::var("TERM").ok().as_deref())
    }

    /// No colour where `NO_COLOR` is set to anything, or the terminal has none; nothing at all for a dumb one.
    pub(super) fn of(no_color: Option<&OsStr>, term: Option<&str>) -> Self {
        let term = term.unwrap_or("dumb");
        let attributes = term != "dumb" && !term.is_empty();
        let is_mono = term.ends_with("-m") || term.contains("mono") || term.starts_with("vt");
        let colour = attributes && !is_mono && no_color.is_none_or(OsStr::is_empty);
        Self { colour, attributes }
    }

    fn style(self, colour: Color, attribute: Modifier) -> Style {
        let style = if self.colour { Style::new().fg(colour) } else { Style::new() };
        if self.attributes { style.add_modifier(attribute) } else { style }
    }

    pub(super) fn heading(self) -> Style {
        self.style(Color::Reset, Modifier::BOLD)
    }

    pub(super) fn marked(self) -> Style {
        self.style(Color::Reset, Modifier::REVERSED)
    }

    pub(super) fn warning(self) -> Style {
        self.style(Color::Yellow, Modifier::empty())
    }

    pub(super) fn alarm(self) -> Style {
        self.style(Color::Red, Modifier::BOLD)
    }

    pub(super) fn dim(self) -> Style {
        self.style(Color::Cyan, Modifier::empty())
    }
}
