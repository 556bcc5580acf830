//! What `status --json` prints, and what the clients read back.
//!
//! Fields may be added, not renamed. `null` is 'not known', never 0.

use crate::accounts::{AccountView, DefaultView, GroupView};
use plimsoll_policy::incident::Compacted;
use serde::{Deserialize, Serialize};

/// The whole of `status`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Status {
    /// A daemon answered. `false`: only what is pinned is at work, and the rest is not known.
    pub daemon: bool,
    /// What can act now.
    pub triggers: Triggers,
    /// Each guard.
    pub guards: Guards,
    /// The accounts that the asker may see.
    pub accounts: Vec<AccountView>,
    /// The lines of groups that the asker may see.
    #[serde(default)]
    pub groups: Vec<GroupView>,
    /// The `default` line.
    #[serde(default)]
    pub default: Option<DefaultView>,
    /// Victims of others' kills; `None` where that is not told.
    #[serde(default)]
    pub reaping: Option<ReapingView>,
    /// Who is told before a line is reached; `None` where that is not told.
    #[serde(default)]
    pub pressure_socket: Option<PressureSocketView>,
    /// Jobs that the asker may see.
    #[serde(default)]
    pub jobs: Option<JobsView>,
    /// The machine's memory.
    pub pressure: Pressure,
    /// What the in-kernel side is made of.
    pub kernel: Kernel,
}

/// Each trigger in a few words: `on`, or why not and what is used instead.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Triggers {
    /// The allocation event itself.
    pub kernel: String,
    /// The daemon.
    pub daemon: String,
    /// The kernel's own OOM killer or `memory.max`, as arranged by us.
    #[serde(rename = "last-defence")]
    pub last_defence: String,
}

/// The guards, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Guards {
    /// Lines of accounts.
    pub limits: GuardView,
    /// The machine's own memory.
    pub pressure: GuardView,
    /// The daemon's own footing.
    pub own: OwnView,
    /// How kills that others make are heard of; `None` where that is not told.
    #[serde(default)]
    pub others: Option<OthersView>,
    /// Memory that is asked for before it is used; `None` where that is not told.
    #[serde(default)]
    pub tmalloc: Option<TmallocView>,
    /// Files and anonymous memory that stay in memory; `None` where that is not told.
    #[serde(default)]
    pub workingset: Option<GuardView>,
    /// Blocks of several pages; `None` where that is not told.
    #[serde(default)]
    pub fragmentation: Option<FragmentationView>,
}

/// The guard of large blocks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FragmentationView {
    /// In a few words: `on`, or why not.
    pub state: String,
    /// kcompactd works for it now.
    pub compacting: bool,
    /// Orders that somebody lately found no block of at once, the smallest first, as the last look found them.
    pub orders: Vec<OrderView>,
    /// How often memory was compacted since the daemon started.
    pub compactions: u64,
    /// What that took of CPUs.
    pub cost_ns: u64,
    /// The last one.
    pub last: Option<Compacted>,
    /// Incidents since the daemon started: of those that went alike one every ten minutes.
    pub incidents: u64,
    /// The last one's number.
    pub last_incident: Option<u64>,
}

/// Blocks of 2 to the power of an order pages.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OrderView {
    /// The order.
    pub order: u32,
    /// How many are free, larger ones taken apart.
    pub blocks: u64,
    /// How many are kept: memory is compacted when a quarter of them is gone.
    pub kept: u64,
    /// Free memory in smaller blocks: such a request cannot use it. The machine guard counts it as free.
    pub of_no_use_bytes: u64,
    /// When none will be left, if it goes on so. `None`: they do not get fewer.
    pub gone_in_ns: Option<u64>,
    /// How often the kernel found none at once since its programs were loaded: each try of a request counts.
    pub missed: u64,
}

/// Victims of others' kills, freed as the daemon's own are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReapingView {
    /// Whose victims are freed from outside, in a few words.
    pub state: String,
    /// Victims of others that were, since the daemon started.
    pub victims: u64,
    /// At most so much of their anonymous memory came back: what copies of one process share is counted for each.
    pub freed_bytes: u64,
    /// Those that freed themselves, as their user's share, or all users', was used up.
    pub refused: u64,
}

/// Programs that are told when their user's account comes near its line.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PressureSocketView {
    /// In a few words: `on`, or why not.
    pub state: String,
    /// Connections that are open.
    pub clients: u64,
    /// Of so many users.
    pub users: u64,
    /// Words sent since the daemon started.
    pub told: u64,
    /// Connections that were turned away, or had to go for another user's, as a share was full.
    pub refused: u64,
}

/// Jobs, and those that wait until memory can be promised to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JobsView {
    /// Whose program runs, or whose processes are left.
    pub running: u64,
    /// Those that wait for their turn.
    pub waiting: u64,
    /// What is promised to those that run, used or not.
    pub promised_bytes: u64,
}

/// Who answers processes that ask for memory before they use it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TmallocView {
    /// In a few words: `on`, or why not.
    pub state: String,
    /// Connections that are open.
    pub connections: u64,
    /// Requests that wait for room.
    pub waiting: u64,
    /// Requests that were granted since the daemon started.
    pub granted: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Incidents since the daemon started; one can stand for many refusals.
    pub incidents: u64,
    /// The last incident's number.
    pub last_incident: Option<u64>,
}

/// How kills that are not ours come into the history.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OthersView {
    /// The kernel's own OOM killer's, in a few words.
    pub kernel: String,
    /// Other programs', in a few words.
    pub programs: String,
    /// Units of other programs that end processes when the machine is short of memory, as its own guard does: those that ran
    /// or were enabled when the daemon started.
    #[serde(default)]
    pub rivals: Vec<String>,
    /// Incidents of kills that were not ours, since the daemon started.
    pub incidents: u64,
    /// The last one's number.
    pub last_incident: Option<u64>,
}

/// One guard.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GuardView {
    /// In a few words: `on`, `off: no limits set`, `dry run`.
    pub state: String,
    /// Whether it decides and sends nothing.
    pub dry_run: bool,
    /// Victims on their way out now.
    pub dying: u64,
    /// Incidents since the daemon started.
    pub incidents: u64,
    /// The last incident's number.
    pub last_incident: Option<u64>,
}

/// What the daemon itself takes, and what it could not keep up with.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OwnView {
    /// Its resident memory.
    pub resident_bytes: Option<u64>,
    /// Seconds since it started.
    pub uptime_seconds: Option<u64>,
    /// Times it woke up since it started.
    pub wake_ups: Option<u64>,
    /// Incidents not written because the queue was full.
    pub incidents_lost: Option<u64>,
    /// Records of incidents that the disk refuses at present: they wait, and are tried again.
    #[serde(default)]
    pub incidents_waiting: Option<u64>,
    /// From the last incident (a kill, as a rule) to when it was on the disk.
    #[serde(default)]
    pub commit_last_ns: Option<u64>,
    /// Likewise, the longest since the daemon started.
    #[serde(default)]
    pub commit_longest_ns: Option<u64>,
    /// Processes that may never be selected, as last counted.
    pub protected: Option<u64>,
    /// The lowest rate at which a killed process's memory came back, in bytes a second.
    #[serde(default)]
    pub reap_lowest_bytes_per_second: Option<u64>,
}

/// The machine's memory as the machine guard last read it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Pressure {
    /// `MemTotal`.
    pub mem_total_bytes: Option<u64>,
    /// `MemAvailable`.
    pub mem_available_bytes: Option<u64>,
    /// `AnonPages`.
    pub anon_bytes: Option<u64>,
    /// `SwapTotal`.
    pub swap_total_bytes: Option<u64>,
    /// `SwapFree`.
    pub swap_free_bytes: Option<u64>,
    /// Of `Shmem`, what no file explains: buffers of drivers, as a rule. It is charged to nobody. `None` where shared memory is
    /// not charged, or not walked yet.
    #[serde(default)]
    pub shared_unexplained_bytes: Option<u64>,
    /// Memory at or under this (with swap at or under its own): SIGTERM.
    pub term_at_mem_bytes: Option<u64>,
    /// Free swap threshold for SIGTERM.
    pub term_at_swap_bytes: Option<u64>,
    /// Memory at or under this (with swap at or under its own): SIGKILL.
    pub kill_at_mem_bytes: Option<u64>,
    /// Free swap threshold for SIGKILL.
    pub kill_at_swap_bytes: Option<u64>,
    /// What tells the machine guard to look: `programs` (a CPU that works, whoever takes pages back) or `timer`; `None` where
    /// it is off.
    #[serde(default)]
    pub looks: Option<String>,
    /// What has to be left when somebody is selected; `None` where the machine guard is off, or has not looked yet.
    #[serde(default)]
    pub margin: Option<MarginView>,
    /// Until memory and swap are used up at the present rate; `None`: they are not being used up.
    #[serde(default)]
    pub exhausted_in_ns: Option<u64>,
    /// How a victim is found; `None` where the machine guard is off.
    pub selection: Option<Selection>,
}

/// What has to be left when somebody is selected, so that memory is back before there is none: the rate times the sum of the
/// times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarginView {
    /// The margin.
    pub bytes: u64,
    /// How fast memory and swap are being used up.
    pub fill_bytes_per_second: u64,
    /// Until a look finds that memory is short.
    pub detect_ns: u64,
    /// Until it is known whom to select.
    pub select_ns: u64,
    /// Until the signal is sent.
    pub signal_ns: u64,
    /// Until as much has come back as was used up meanwhile.
    pub reap_ns: u64,
    /// At this rate: the lowest measured here lately.
    pub reap_bytes_per_second: u64,
}

/// How the machine guard comes to know whom to select.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// What the last look at all processes came from: `programs` or `proc`; `None`: there was none yet.
    pub from: Option<String>,
    /// The age of the list that is ready, in nanoseconds; `None`: the next decision begins with a look at all.
    pub ready_ns: Option<u64>,
    /// What the last decision took.
    pub last: Option<SelectionEffort>,
}

/// What it took to be sure of a victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectionEffort {
    /// Processes in the list.
    pub processes: u64,
    /// Of those, looked at closely for this decision: exact sums, rules.
    pub looks: u64,
    /// How old the list was, in nanoseconds, when it was known whom to select.
    pub age_ns: u64,
}

/// The in-kernel side.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Kernel {
    /// `uname -r`.
    pub release: Option<String>,
    /// Something is attached on the allocation path.
    pub attached: bool,
    /// Where programs and maps are pinned.
    pub pin: Option<String>,
    /// Version of the pinned maps' layout.
    pub schema: Option<u32>,
    /// Programs attached.
    pub programs: Vec<String>,
    /// Each map.
    pub maps: Vec<MapView>,
    /// Memory of all maps together.
    pub map_bytes: Option<u64>,
    /// Records from the kernel lost because the ring was full.
    pub records_dropped: Option<u64>,
    /// Signals that the kernel refused to send.
    pub signals_failed: Option<u64>,
}

/// One BPF map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapView {
    /// Its name.
    pub name: String,
    /// Entries in use.
    pub used: Option<u64>,
    /// Entries it can hold.
    pub max: u64,
    /// Times it was full when an entry was needed.
    pub full: Option<u64>,
    /// Its memory.
    pub bytes: Option<u64>,
}

#[cfg(test)]
mod tests;
