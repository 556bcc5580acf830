//! The tunables as configured, and what was set at run time on top of them and is kept.

use super::Terms;
use crate::state::{StateError, StateFile, TUNABLES};
use plimsoll_policy::workingset::{Setting, Tunable, TunableChange, Tunables};
use std::{collections::BTreeMap, path::Path};

/// By name, so that a file of another version says which it means.
type Saved = BTreeMap<String, u8>;

/// The tunables in force, and the file that keeps those set at run time.
#[derive(Debug)]
pub(crate) struct SavedTunables {
    file: StateFile,
    configured: Terms,
    saved: BTreeMap<Tunable, Setting>,
}

impl SavedTunables {
    /// Reads what was set before. Settings that are none of this version's are left out, and said.
    ///
    /// # Errors
    /// [`StateError`]
    pub(crate) fn load(folder: &Path, configured: Terms) -> Result<(Self, Option<String>), StateError> {
        let (file, stored) = StateFile::load::<Saved>(folder, TUNABLES)?;
        let known = |(name, value): (&String, &u8)| format!("{name}={value}").parse::<Setting>().ok();
        let saved: BTreeMap<_, _> =
            stored.iter().filter_map(known).map(|setting| (setting.tunable(), setting)).collect();
        let left_out = stored.len().saturating_sub(saved.len());
        let note =
            (left_out > 0).then(|| format!("{left_out} saved tunables are not known here and were left out"));
        Ok((Self { file, configured, saved }, note))
    }

    /// What holds.
    pub(crate) fn terms(&self) -> Terms {
        Terms { tunables: laid_over(self.configured.tunables, &self.saved), ..self.configured.clone() }
    }

    /// The configuration says something else now.
    pub(crate) fn configure(&mut self, configured: Terms) {
        self.configured = configured;
    }

    /// What would hold after these changes.
    pub(crate) fn changed(&self, changes: &[TunableChange]) -> (Terms, BTreeMap<Tunable, Setting>) {
        let mut saved = self.saved.clone();
        for change in changes {
            match *change {
                TunableChange::Set(setting) => saved.insert(setting.tunable(), setting),
                TunableChange::Unset(tunable) => saved.remove(&tunable),
            };
        }
        let tunables = laid_over(self.configured.tunables, &saved);
        (Terms { tunables, ..self.configured.clone() }, saved)
    }

    /// Keeps them.
    ///
    /// # Errors
    /// [`StateError`]; what was kept before still is.
    pub(crate) fn save(&mut self, saved: BTreeMap<Tunable, Setting>) -> Result<(), StateError> {
        let written: Saved =
            saved.iter().map(|(tunable, setting)| (tunable.name().to_owned(), setting.value())).collect();
        self.file.save(&written)?;
        self.saved = saved;
        Ok(())
    }
}

fn laid_over(mut tunables: Tunables, saved: &BTreeMap<Tunable, Setting>) -> Tunables {
    saved.values().for_each(|setting| tunables.apply(*setting));
    tunables
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(folder: &Path) -> SavedTunables {
        SavedTunables::load(folder, Terms::default()).unwrap().0
    }

    fn change(kept: &mut SavedTunables, texts: &[&str]) -> Terms {
        let changes: Vec<TunableChange> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let (terms, saved) = kept.changed(&changes);
        kept.save(saved).unwrap();
        assert_eq!(kept.terms(), terms);
        terms
    }

    #[test]
    fn what_was_set_wins_over_the_configuration_until_it_is_unset() {
        let folder = tempfile::tempdir().unwrap();
        change(&mut kept(folder.path()), &["clean_min_ratio=20", "workingset_protection=1"]);
        let mut again = kept(folder.path());
        let tunables = again.terms().tunables;
        assert!(tunables.workingset_protection);
        assert_eq!(tunables.clean_min_ratio.get(), 20);
        let terms = change(&mut again, &["clean_min_ratio="]);
        assert_eq!(terms.tunables.clean_min_ratio.get(), 15);
        assert!(terms.tunables.workingset_protection);
    }

    #[test]
    fn settings_of_another_version_are_left_out_and_said() {
        let folder = tempfile::tempdir().unwrap();
        change(&mut kept(folder.path()), &["clean_low_ratio=7"]);
        let path = folder.path().join("workingset.json");
        let text = std::fs::read_to_string(&path)
            .unwrap()
            .replace("\"tunables\": {", "\"tunables\": {\"other_ratio\": 3,");
        std::fs::write(&path, text).unwrap();
        let (kept, note) = SavedTunables::load(folder.path(), Terms::default()).unwrap();
        assert_eq!(kept.terms().tunables.clean_low_ratio.get(), 7);
        assert!(note.unwrap().starts_with("1 saved"));
    }
}
