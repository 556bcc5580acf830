//! Every key of the configuration as data, and the page that is made of it.

use super::login_path::LOGIN_PATH;

/// One key: what it holds and means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// The section it stands in.
    pub section: &'static str,
    /// Its name there.
    pub name: &'static str,
    /// What may be written.
    pub kind: &'static str,
    /// What a number counts; `-` where there is nothing to count.
    pub unit: &'static str,
    /// What holds when it is not set, as TOML; `None`: described by `meaning`.
    pub default: Option<&'static str>,
    /// What to write, for the page and for the tests.
    pub example: &'static str,
    /// What it does, in a sentence or two.
    pub meaning: &'static str,
}

macro_rules! keys {
    ($($section:ident.$name:ident: $kind:literal, $unit:literal, $default:expr, $example:literal, $meaning:literal;)*) => {
        /// All keys, section by section.
        pub const KEYS: &[Key] = &[$(Key {
            section: stringify!($section),
            name: stringify!($name),
            kind: $kind,
            unit: $unit,
            default: $default,
            example: $example,
            meaning: $meaning,
        },)*];
    };
}

keys! {
    limits.default: "LINE", "-", None, "{ hard = \"4G\" }",
        "The line of every user between `uid_min` and `uid_max` who has none of their own. Not set: they have no limit.";
    limits.users: "table of LINE", "-", None, "{ alice = { hard = \"2G\", soft = \"1.5G\", action = \"kill\" }, 1001 = { hard = \"25%\" } }",
        "Lines of single users, by name or uid. A line in a later file replaces that user's earlier one and leaves the others. Not set: nobody has one.";
    limits.charge: "`\"anon\"` or `\"rss\"`", "-", Some("\"anon\""), "\"anon\"",
        "What usage is: anonymous and swapped pages, or file and shared-memory pages too.";
    limits.uid_min: "0 to 4294967294", "uid", None, "1000",
        "The first uid that `limits.default` is for. Not set: `UID_MIN` of /etc/login.defs, or 1000.";
    limits.uid_max: "0 to 4294967294", "uid", None, "60000",
        "The last uid that `limits.default` is for. Not set: `UID_MAX` of /etc/login.defs, or 60000.";
    limits.kill_deadline_ms: "1 to 86400000", "milliseconds", Some("5000"), "2000",
        "How long a killed process may hold on to its memory before the account's next one is killed.";
    limits.term_grace_ms: "0 to 86400000", "milliseconds", Some("10000"), "3000",
        "From SIGTERM to SIGKILL, for lines whose action is `term`.";

    machine.enabled: "`true` or `false`", "-", Some("true"), "true",
        "Whether the whole machine is guarded against running out of memory.";
    machine.term_memory: "0.1 to 99.9", "percent", Some("10"), "7.5",
        "SIGTERM to the largest process when available memory is at or below this share of available and anonymous memory, and free swap at or below `term_swap`.";
    machine.kill_memory: "0.1 to 99.9", "percent", Some("5"), "3",
        "SIGKILL instead, when available memory is at or below this share and free swap at or below `kill_swap`; not above `term_memory`.";
    machine.term_swap: "0.1 to 100", "percent", Some("10"), "\"10%\"",
        "The share of free swap for SIGTERM; 100 leaves swap out of the decision, as it is on a machine that has none.";
    machine.kill_swap: "0.1 to 100", "percent", Some("5"), "5",
        "The share of free swap for SIGKILL; not above `term_swap`.";
    machine.term_grace_ms: "0 to 86400000", "milliseconds", Some("10000"), "5000",
        "From SIGTERM to SIGKILL, when the process is still there.";
    machine.kill_deadline_ms: "1 to 86400000", "milliseconds", Some("5000"), "2000",
        "From SIGKILL until another process may be selected though the first is still there.";

    protect.exe: "list of absolute paths", "-", Some("[]"), "[\"/usr/lib/postgresql/17/bin/postgres\"]",
        "Executables that are never selected, if root owns them, besides the login path below, which is always protected. A later file's list replaces an earlier one.";
    protect.cgroup: "list of absolute paths", "-", Some("[]"), "[\"/system.slice/postgresql.service\"]",
        "Cgroups whose processes, and those of all cgroups below, are never selected; paths are from the root of the cgroup v2 tree. A later file's list replaces an earlier one.";

    history.max_bytes: "1M to 1T", "SIZE", Some("\"64M\""), "\"16M\"",
        "How large the record log and its predecessor may become together; the database beside them grows to about the same.";
    history.max_age_days: "1 to 36500", "days", Some("180"), "30",
        "Incidents older than this are forgotten.";
    history.max_incidents: "1 to 10000000", "incidents", Some("100000"), "10000",
        "Of more incidents than this the oldest are forgotten.";

    maps.max_processes: "0 to 4194304", "address spaces", Some("0"), "20000",
        "How many address spaces of limited users can be accounted at the same time; 0 chooses by the machine's size.";
    maps.max_accounts: "1 to 65536", "accounts", Some("1024"), "256",
        "How many accounts can have a line at the same time.";
}

const HEAD: &str = "\
# Configuration

<!-- Generated from crates/daemon/src/config/keys.rs. To renew it: PLIMSOLL_BLESS=1 cargo test -p plimsoll-daemon config -->

`/etc/plimsoll/plimsoll.toml` is read first, then `/etc/plimsoll/conf.d/*.toml` in the order of their names; hidden files
are left out. The value of a later file wins. Missing files mean the defaults. `plimsoll daemon --config F` reads F and
nothing else. SIGHUP reads everything again; when anything is wrong, the old configuration stays in force.

An unknown key, a value of the wrong type or out of its range is an error that names file and line. No file may be larger
than 1 MiB. Lines set with `plimsoll limit set` are kept in the state folder and win over the ones here.

- SIZE: a text such as `\"512M\"` (= `\"512MiB\"`, powers of 1024), `\"500MB\"` (powers of 1000), `\"25%\"` of RAM (lines only), or a plain
  number of bytes.
- LINE: a table `{ hard = SIZE, soft = SIZE, action = ACTION }`. `hard` is required; `soft` is 90 % of it where not set;
  a percentage in it is of RAM, as it is in `hard`. ACTION is `\"notify\"`, `\"term\"` or `\"kill\"` (the default).
- Percentages are written `10`, `7.5` or `\"7.5%\"`, with at most one decimal.
";

/// The page `docs/config.md`.
#[must_use]
pub fn reference() -> String {
    let mut page = String::from(HEAD);
    let mut section = "";
    for key in KEYS {
        if key.section != section {
            section = key.section;
            page.push_str(&format!("\n## [{section}]\n"));
        }
        let default = key.default.map_or_else(|| "see above".to_owned(), |text| format!("`{text}`"));
        page.push_str(&format!(
            "\n### {}.{}\n{}\n\n- type: {}\n- unit: {}\n- default: {default}\n- example: `{} = {}`\n",
            section, key.name, key.meaning, key.kind, key.unit, key.name, key.example
        ));
    }
    page.push_str("\n## The login path\nThese are always protected, wherever a distribution put them:\n\n");
    for path in LOGIN_PATH {
        page.push_str(&format!("- `{path}`\n"));
    }
    page
}
