//! Markup that can only be put together safely: what is written here, numbers, and text that is escaped.

/// A piece of a page.
#[derive(Debug, Default)]
pub struct Html(String);

impl Html {
    /// Markup as it is written in this program; nothing that was made while it runs can get in.
    pub fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Text that somebody else may have chosen: it ends up as text, in an attribute in double quotes too. What would act on
    /// the reader or cannot be seen (control characters, those that turn the direction of writing) is spelled out.
    pub fn text(&mut self, text: &str) -> &mut Self {
        for character in text.chars() {
            match character {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '\\' => self.0.push('\\'),
                other => self.0.extend(other.escape_debug()),
            }
        }
        self
    }

    /// A number.
    pub fn number(&mut self, number: impl Into<i128>) -> &mut Self {
        self.text(&number.into().to_string())
    }

    /// Another piece.
    pub fn piece(&mut self, piece: &Self) -> &mut Self {
        self.0.push_str(&piece.0);
        self
    }

    /// The markup.
    #[must_use]
    pub fn into_string(self) -> String {
        self.0
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests;
