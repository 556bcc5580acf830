//! The checkout, read once: which paths exist, and the text of the files that rules look into.

use std::{collections::BTreeSet, ffi::OsStr, fs, io, path::Path};

/// Folders that hold nothing written by hand.
const SKIPPED_FOLDERS: [&str; 3] = ["target", ".git", ".cache"];

/// What a file is written in, as far as rules care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// `.rs`
    Rust,
    /// `.c`, `.h`
    C,
    /// `.md`
    Markdown,
    /// `.toml`
    Toml,
    /// Shell, make, awk: comments start with `#`.
    Script,
}

impl Language {
    /// Judged by name; `None` for anything rules do not look into.
    #[must_use]
    pub fn of(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next().unwrap_or(path);
        match name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("rs") => Some(Self::Rust),
            Some("c" | "h") => Some(Self::C),
            Some("md") => Some(Self::Markdown),
            Some("toml") => Some(Self::Toml),
            Some("sh" | "awk" | "mk") => Some(Self::Script),
            _ if name == "Makefile" || path == ".ci/run" => Some(Self::Script),
            _ => None,
        }
    }
}

/// A file that rules look into.
#[derive(Debug, Clone)]
pub struct Source {
    /// Relative to the root, with `/` between the parts.
    pub path: String,
    /// What it is written in.
    pub language: Language,
    /// All of it.
    pub text: String,
}

impl Source {
    /// Its lines, counted from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }
}

/// The whole checkout.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// Every file and folder, relative to the root.
    pub paths: BTreeSet<String>,
    /// The files that rules look into, in the order of their paths.
    pub sources: Vec<Source>,
}

impl Tree {
    /// A tree made of `(path, text)` pairs, for tests of the rules.
    #[must_use]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for &(path, text) in files {
            tree.add_folders_of(path);
            if let Some(language) = Language::of(path) {
                tree.sources.push(Source { path: path.to_owned(), language, text: text.to_owned() });
            }
            tree.paths.insert(path.to_owned());
        }
        tree.sources.sort_by(|a, b| a.path.cmp(&b.path));
        tree
    }

    /// Reads the checkout under `root`.
    ///
    /// # Errors
    /// A folder or file that cannot be read, or a text file that is not UTF-8; the message names it.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        tree.read_folder(root, "")?;
        tree.sources.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    /// The source at this path.
    #[must_use]
    pub fn source(&self, path: &str) -> Option<&Source> {
        self.sources.iter().find(|source| source.path == path)
    }

    /// The sources in this language.
    pub fn in_language(&self, language: Language) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(move |source| source.language == language)
    }

    fn add_folders_of(&mut self, path: &str) {
        for (at, _) in path.match_indices('/') {
            self.paths.extend(path.get(..at).map(str::to_owned));
        }
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(folder).map_err(|error| naming(folder, &error))? {
            let entry = entry.map_err(|error| naming(folder, &error))?;
            let full = entry.path();
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                return Err(naming(&full, &io::Error::other("a name that is not UTF-8: rename it")));
            };
            let kind = entry.file_type().map_err(|error| naming(&full, &error))?;
            let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
            if kind.is_dir() {
                if !SKIPPED_FOLDERS.map(OsStr::new).contains(&entry.file_name().as_os_str()) {
                    self.paths.insert(path.clone());
                    self.read_folder(&full, &path)?;
                }
            } else {
                if let Some(language) = Language::of(&path) {
                    let text = fs::read_to_string(&full).map_err(|error| naming(&full, &error))?;
                    self.sources.push(Source { path: path.clone(), language, text });
                }
                self.paths.insert(path);
            }
        }
        Ok(())
    }
}

fn naming(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
