//! Every key of the configuration as data, and the page that is made of it.

use super::login_path::LOGIN_PATH;
use plimsoll_policy::preference::{PROGRAMS, SHELLS};

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
        &[$(Key {
            section: stringify!($section),
            name: stringify!($name),
            kind: $kind,
            unit: $unit,
            default: $default,
            example: $example,
            meaning: $meaning,
        },)*]
    };
}

/// All keys, section by section; those of rules are [`RULE_KEYS`].
pub const KEYS: &[Key] = keys! {
    limits.default: "LINE", "-", None, "{ hard = \"4G\" }",
        "The line of every user between `uid_min` and `uid_max` who has none of their own and none of a group. Not set: they have no limit.";
    limits.users: "table of LINE", "-", None, "{ alice = { hard = \"2G\", soft = \"1.5G\", action = \"kill\" }, 1001 = { hard = \"25%\" } }",
        "Lines of single users, by name or uid. A line in a later file replaces that user's earlier one and leaves the others. Not set: nobody has one.";
    limits.groups: "table of LINE", "-", None, "{ staff = { hard = \"4G\" }, 100 = { hard = \"10%\", action = \"term\" } }",
        "Lines of groups, by name or gid: each member without a line of their own gets it for themselves. Of several groups' lines the one with the larger `hard` counts. A line in a later file replaces that group's earlier one and leaves the others. Not set: no group has one.";
    limits.budgets: "table of LINE", "-", None, "{ staff = { hard = \"16G\" }, 100 = { hard = \"50%\", action = \"term\" } }",
        "Lines of groups, by name or gid: all members together have it, besides what each may have. Whichever line is crossed acts. Of a user in more than four such groups those with the lowest `hard` count. A line in a later file replaces that group's earlier one and leaves the others. Not set: no group has one.";
    limits.cgroups: "table of LINE", "-", None, "{ \"/machine.slice\" = { hard = \"4G\" }, \"/system.slice/build.service\" = { hard = \"25%\", action = \"term\" } }",
        "Lines of cgroups, by path from the root of the hierarchy that has the memory controller: all that is charged there and below. At most 256. A line in a later file replaces that cgroup's earlier one and leaves the others. Not set: no cgroup has one.";
    limits.system: "LINE", "-", None, "{ hard = \"80%\" }",
        "The line of all programs of the machine together. Not set: there is none, and the machine guard alone acts.";
    limits.charge: "`\"anon\"` or `\"rss\"`", "-", Some("\"anon\""), "\"anon\"",
        "What usage is: anonymous and swapped pages, or file and shared-memory pages too.";
    limits.shared: "`\"owner\"` or `\"ignore\"`", "-", Some("\"owner\""), "\"ignore\"",
        "Whether shared memory (shared anonymous, memfd, tmpfs, System V), and what lies in pipes, is charged, once, to the user who owns it, as seen within a second. With `charge = \"rss\"` each process is charged for what it has mapped of it instead.";
    limits.uid_min: "0 to 4294967294", "uid", None, "1000",
        "The first uid that `limits.default` is for. Not set: `UID_MIN` of /etc/login.defs, or 1000.";
    limits.uid_max: "0 to 4294967294", "uid", None, "60000",
        "The last uid that `limits.default` is for; 61184 to 65535 (systemd's services, `nobody`) it is never for. Raise it for the users of a directory (LDAP, AD). Not set: `UID_MAX` of /etc/login.defs, or 60000.";
    limits.kill_deadline_ms: "1 to 86400000", "milliseconds", Some("5000"), "2000",
        "How long a killed process may hold on to its memory before the account's next one is killed.";
    limits.term_grace_ms: "0 to 86400000", "milliseconds", Some("10000"), "3000",
        "From SIGTERM to SIGKILL, for lines whose action is `term`.";
    limits.triggers: "list of `\"kernel\"`, `\"daemon\"`, `\"last-defence\"`", "-", Some("[\"kernel\", \"daemon\", \"last-defence\"]"), "[\"daemon\"]",
        "Which triggers may act on lines. Each works when the others are dead; leaving one out is for proving that, not for guarding.";

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
    machine.memory_max: "SIZE from 1M to 1T", "bytes", Some("\"40G\""), "\"128G\"",
        "The most of available and anonymous memory that the shares `term_memory`, `kill_memory` and `notice_memory` are taken of: on a large machine a tenth is more than anybody needs to be warned in time.";
    machine.notice: "`true` or `false`", "-", Some("true"), "false",
        "Whether an incident tells, once per shortage and before anybody is asked to end, that memory runs short and who would be next.";
    machine.notice_memory: "0.1 to 99.9", "percent", Some("15"), "20",
        "Told when available memory is at or below this share and free swap at or below `notice_swap`; as `term_memory` where that is more.";
    machine.notice_swap: "0.1 to 100", "percent", Some("15"), "20",
        "The share of free swap for that; as `term_swap` where that is more.";
    machine.reclaim: "`true` or `false`", "-", Some("true"), "false",
        "Whether pages that are not in use are moved to swap while available memory is at or below `term_memory` and free swap above `term_swap`: up to 256 MiB every 2 s.";
    machine.spike_ms: "0 to 86400000", "milliseconds", Some("1000"), "500",
        "How long memory may be low before anybody is selected, while it is not being used up so fast that what is worse is reached within 250 ms: `kill_memory`, or the margin. 0: at once.";
    machine.stall: "0.1 to 100", "percent", Some("40"), "60",
        "SIGKILL to the largest process when available memory is at or below `term_memory`, whatever swap is free, and programs could do nothing but wait for memory for this share of the last `stall_ms`; 15 % of it is enough where as many pages were read again as files have left. 100 turns it off.";
    machine.stall_ms: "500 to 60000", "milliseconds", Some("3000"), "5000",
        "The time that `stall` is a share of.";

    last_defence.memory_max: "`true` or `false`", "-", Some("true"), "false",
        "Whether `memory.max` of the slice of each user with a line is set above the line, through systemd where it runs, for lines whose action is `kill` or `term`. Put back where nobody else changed it since.";
    last_defence.headroom: "`\"auto\"`, SIZE of 16M or more, or a share of the line", "-", Some("\"auto\""), "\"25%\"",
        "How far above the line: `memory.max` counts page cache, shared memory and kernel memory too, which no line counts. `\"auto\"` is a quarter of the line and at least 256M.";
    last_defence.oom_score_adj: "`true` or `false`", "-", Some("true"), "false",
        "Whether the largest process of each user near the line is put before the user's others for the kernel's own OOM killer, by raising its `oom_score_adj`. Put back where nobody else changed it since.";

    protect.exe: "list of absolute paths", "-", Some("[]"), "[\"/usr/lib/postgresql/17/bin/postgres\"]",
        "Executables that are never selected, if root owns them, besides the login path below, which is protected where a system user (below `uid_min`) runs it. A later file's list replaces an earlier one.";
    protect.cgroup: "list of absolute paths", "-", Some("[]"), "[\"/system.slice/postgresql.service\"]",
        "Cgroups whose processes, and those of all cgroups below, are never selected; paths are from the root of the cgroup v2 tree. A later file's list replaces an earlier one.";

    session.exe: "list of PATTERN", "-", None, "[\"/usr/*/sway\", \"/usr/*/tmux\"]",
        "Paths of executables that a user's session stands on. Not set: [those below](#what-sessions-stand-on). A later file's list replaces an earlier one.";
    session.shells: "list of PATTERN", "-", None, "[\"/usr/bin/bash\"]",
        "Paths of shells, which a session stands on where they lead one that has a terminal, under their own name: no script, and none that a shell started. Not set: [those below](#what-sessions-stand-on).";

    history.max_bytes: "1M to 1T", "SIZE", Some("\"64M\""), "\"16M\"",
        "How large the database of incidents may become, parted among accounts (history.md); its write-ahead log beside it takes some 5 MiB more at most.";
    history.max_age_days: "1 to 36500", "days", Some("180"), "30",
        "Incidents older than this are forgotten.";
    history.max_incidents: "1 to 10000000", "incidents", Some("100000"), "10000",
        "Of more incidents than this the oldest of the account that has most are forgotten.";

    tmalloc.headroom: "0 to 1T", "SIZE", Some("\"1M\""), "\"4M\"",
        "What grants of memory leave free under each line, for stacks, libc and what a program allocates without asking: it is granted what stays at or under `hard` less this.";

    reaping.expedite: "`\"ours\"` or `\"any\"`", "-", Some("\"ours\""), "\"any\"",
        "Whose memory the daemon frees when it is killed: that of its own victims and of those that `plimsoll kill --expedite` names, or that of every process that anybody kills (`kill -9`, the kernel, a container engine), too. For the latter a program runs at each signal on the machine, some nanoseconds long (reaping.md).";
    reaping.expedite_from: "1M to 1T", "SIZE", Some("\"64M\""), "\"256M\"",
        "Of those that anybody kills, only who has so much in anonymous memory and swap.";

    fragmentation.enabled: "`true` or `false`", "-", Some("true"), "true",
        "Whether memory is compacted ahead of need where blocks of several pages run out while memory is free (fragmentation.md).";

    workingset.workingset_protection: "0 or 1", "-", Some("0"), "1",
        "Whether files in use, and anonymous memory, are kept in memory when it runs short. 0 undoes everything at once.";
    workingset.anon_min_ratio: "0 to 100", "percent of RAM", Some("15"), "10",
        "Anonymous memory is not swapped out while no more than this is in RAM.";
    workingset.clean_min_ratio: "0 to 100", "percent of RAM", Some("15"), "25",
        "Hard protection: the files that are used most stay in memory, up to seven eighths of this. When clean file memory falls below it and nothing can be swapped, the process that selection names is ended before the rest is lost.";
    workingset.clean_low_ratio: "0 to 100", "percent of RAM", Some("0"), "10",
        "Soft protection: so much of the files that come next stays in memory, unless a program needs the memory to go on.";
    workingset.cgroup: "absolute path", "-", None, "\"/machine.slice\"",
        "The memory cgroup that is protected instead of the machine; its limit stands for RAM then. Paths are from the root of the hierarchy of memory cgroups. Not set: the machine.";

    metrics.listen: "list of absolute paths and of loopback addresses with a port", "-", Some("[]"), "[\"/run/plimsoll/metrics.sock\", \"127.0.0.1:9758\"]",
        "Where Prometheus metrics are read (metrics.md): from unix sockets, and from ports that only programs on this machine reach. At most 4. Empty: nowhere.";
    metrics.group: "name or gid of a group", "-", None, "\"prometheus\"",
        "Whose members may read from those unix sockets. Not set: root alone.";
    metrics.users: "`true` or `false`", "-", Some("false"), "true",
        "Whether the ports tell of single users and units, too, as the sockets do. Every local user can read a port.";

    maps.max_processes: "0 to 4194304", "address spaces", Some("0"), "20000",
        "How many address spaces of limited users can be accounted at the same time, set when the daemon starts; 0: one for each MiB of memory, rounded up to a power of two, 16384 at least and 65536 at most. What happens when they run out: limits.md.";
    maps.max_accounts: "1 to 65534", "accounts", Some("4096"), "256",
        "How many accounts can have a line at the same time, set when the daemon starts. Under `limits.default` only users who run something need one.";
};

/// The keys of one rule, of which there is a list.
pub const RULE_KEYS: &[Key] = keys! {
    rules.effect: "`\"prefer\"`, `\"avoid\"` or `\"never\"`", "-", None, "\"avoid\"",
        "Whether those that match are selected before others of their size, after them, or never. Must be set. `never` needs `exe`, `unit` or `cgroup`, because a process chooses everything else itself.";
    rules.weight: "1 to 6553", "percent", None, "50",
        "What their memory counts when the largest is looked for. Not set: 400 for `prefer`, 25 for `avoid`.";
    rules.exe: "PATTERN or list of PATTERN", "-", None, "\"/usr/lib/firefox/*\"",
        "The path of the executable. `never` protects only what root owns and nobody else can write, and what is the same file under that path for the daemon.";
    rules.unit: "PATTERN or list of PATTERN", "-", None, "[\"tmux-*.scope\", \"app.slice\"]",
        "A systemd unit that the process is in, at any depth. `never` goes by the units that the system's own manager made, not by what a user's manager or a container named.";
    rules.cgroup: "PATTERN or list of PATTERN", "-", None, "\"/user.slice/user-1000.slice\"",
        "The path of the cgroup, or of one above it, from the root of the hierarchy. For `never` as for `unit`.";
    rules.cmdline: "PATTERN or list of PATTERN", "-", None, "\"*-contentproc*\"",
        "The command line, arguments separated by spaces. It is read ahead of need, since reading it can wait for the process: one that is not read yet matches nothing.";
    rules.comm: "PATTERN or list of PATTERN", "-", None, "[\"cc1plus\", \"rustc\"]",
        "The name, of at most 15 bytes, which any process can change.";
    rules.uid: "0 to 4294967295 or list of these", "uid", None, "[1000, 1001]",
        "The real uid.";
    rules.scope: "`\"process\"`, `\"tree\"` or `\"cgroup\"`", "-", None, "\"tree\"",
        "How much goes when one of them is selected: the process, the process that matches and all its descendants, or its cgroup. Not set: the process, or the cgroup where `memory.oom.group` says so.";
};

const HEAD: &str = "\
# Configuration

<!-- Generated from crates/daemon/src/config/keys.rs. To renew it: PLIMSOLL_BLESS=1 cargo test -p plimsoll-daemon config -->

Write what you want to change into `/etc/plimsoll/plimsoll.toml`, then `systemctl reload plimsoll`:
```toml run
[limits]
default = { hard = \"4G\" }
users = { alice = { hard = \"25%\", action = \"term\" } }

[machine]
term_memory = 7.5
```
The daemon reads that file first, then `/etc/plimsoll/conf.d/*.toml` in the order of their names; it leaves out hidden
files. The value of a later file wins. Missing files mean the defaults. `plimsoll daemon --config F` reads F and nothing
else, unless F is that first file itself. At SIGHUP, which a reload sends, the daemon reads everything again. When
anything is wrong, the old configuration stays in force. `[protect]`, `[history]`, `[metrics]`, `[maps]` and
`limits.charge` take effect at the next start.

An unknown key, a value of the wrong type or out of its range is an error that names file and line. `plimsoll daemon
--check` says what is wrong, and does nothing else. No file may be larger than 1 MiB. Lines set with `plimsoll limit
set` are kept in the state folder and win over the ones here.

- SIZE: a text such as `\"512M\"` (= `\"512MiB\"`, powers of 1024), `\"500MB\"` (powers of 1000), `\"25%\"` of RAM
  (lines only), or a plain number of bytes.
- LINE: a table `{ hard = SIZE, soft = SIZE, action = ACTION }`. `hard` is required; `soft` is 90 % of it where not set;
  a percentage in it is of RAM, as it is in `hard`. ACTION is `\"notify\"`, `\"term\"` or `\"kill\"` (the default).
- Percentages are written `10`, `7.5` or `\"7.5%\"`, with at most one decimal.
- PATTERN: `*` is any number of bytes, slashes too, `?` is one, a backslash takes the next as it is. It must match the
  whole.
";

const RULES: &str = "
## [[rules]]
A rule says who is selected before others of their size, after them, or never. A process is measured by its memory times
its weight; without rules, marks and `oom_score_adj` every weight is 100 percent. Each rule is a table of its own in a
list:

```toml run
[[rules]]
effect = \"avoid\"
unit = [\"tmux-*.scope\", \"sway.service\"]

[[rules]]
effect = \"prefer\"
comm = [\"cc1plus\", \"rustc\"]
scope = \"tree\"
```

What a rule names must all match, each by any of its patterns. One thing decides the weight, in this order:

1. The first rule that matches; those of a later file come before those of an earlier one. A `never` is not undone by
   others.
2. The mark of the cgroup (`user.oomd_omit`, `user.oomd_avoid`, which `ManagedOOMPreference=` sets): root's as it says;
   a user's own makes their own processes count half.
3. `oom_score_adj`, as a factor from 25 percent at -1000 over 100 at 0 to 200 at 1000. -1000 protects what the service
   manager itself started as root. For a process of any other user -1000 counts as 0: it can only have inherited it.

Both the machine guard and users' lines go by that (docs/selection.md, docs/limits.md). `scope` is for the machine guard
alone: at a user's line one process goes at a time. A reload has everybody judged anew.
";

const SESSION: &str = "
## What sessions stand on
At a user's line these come last, because with them all that runs in the user's session ends or is out of reach: the
compositor, the session bus, the user manager, a terminal multiplexer, the login shell.
[limits.md](limits.md#what-a-session-stands-on) tells more. By default they are:

";

fn described(key: &Key) -> String {
    let default = key.default.map_or_else(|| "see above".to_owned(), |text| format!("`{text}`"));
    format!(
        "\n### {}.{}\n{}\n\n- type: {}\n- unit: {}\n- default: {default}\n- example: `{} = {}`\n",
        key.section, key.name, key.meaning, key.kind, key.unit, key.name, key.example
    )
}

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
        page.push_str(&described(key));
    }
    page.push_str(RULES);
    RULE_KEYS.iter().for_each(|key| page.push_str(&described(key)));
    page.push_str("\n## The login path\nThese are protected, wherever a distribution put them, when a system user (below `limits.uid_min`) runs them. An ordinary user can load anything into a program of their own, so theirs are like any other:\n\n");
    LOGIN_PATH.iter().for_each(|path| page.push_str(&format!("- `{path}`\n")));
    page.push_str(SESSION);
    let listed = |paths: &[&str]| paths.iter().map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", ");
    page.push_str(&format!(
        "- `session.exe`: {}\n- `session.shells`: {}\n",
        listed(PROGRAMS),
        listed(SHELLS)
    ));
    page
}
