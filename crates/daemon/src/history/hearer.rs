//! Who hears of all that is recorded.

use super::Outcome;
use plimsoll_policy::incident::Incident;

/// Called on the history's thread, for what takes too long elsewhere. A closure hears of incidents alone.
pub trait Hearer: Send + 'static {
    /// An incident is about to be written: what is missing in it may be added.
    fn incident(&mut self, incident: &mut Incident);

    /// Something became known of an incident later.
    fn outcome(&mut self, _outcome: &Outcome) {}
}

impl<F: FnMut(&mut Incident) + Send + 'static> Hearer for F {
    fn incident(&mut self, incident: &mut Incident) {
        self(incident);
    }
}
