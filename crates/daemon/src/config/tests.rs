use super::{
    keys::{KEYS, RULE_KEYS},
    *,
};
use plimsoll_policy::{
    account::Action,
    machine::{Permille, StallConfig, Thresholds},
    size::Size,
    units::{Bytes, Nanos, Uid},
};
use proptest::prelude::*;

/// A configuration of its own in a folder of its own.
struct Etc {
    folder: tempfile::TempDir,
}

impl Etc {
    fn new(files: &[(&str, &str)]) -> Self {
        let etc = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(etc.path("conf.d")).unwrap();
        for (name, content) in files {
            fs::write(etc.path(name), content).unwrap();
        }
        etc
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn places(&self) -> Places {
        Places {
            main: self.path("plimsoll.toml"),
            main_required: false,
            drop_ins: Some(self.path("conf.d")),
            login_defs: self.path("login.defs"),
        }
    }

    fn load(&self) -> Result<Config, ConfigError> {
        load(&self.places())
    }
}

fn parsed(text: &str) -> Result<Config, ConfigError> {
    Etc::new(&[("plimsoll.toml", text)]).load()
}

fn hard(config: &Config, who: &str) -> Size {
    config.limits.users.iter().find(|user| user.who.to_string() == who).unwrap().line.hard
}

#[test]
fn without_any_file_the_defaults_hold() {
    let folder = tempfile::tempdir().unwrap();
    let gone = folder.path().join("gone");
    let places =
        Places { main: gone.clone(), main_required: false, drop_ins: Some(gone.clone()), login_defs: gone };
    assert_eq!(load(&places).unwrap(), Config::default());
}

#[test]
fn a_file_that_was_named_has_to_exist_and_is_read_alone() {
    let etc = Etc::new(&[("conf.d/a.toml", "[maps]\nmax_accounts = 7")]);
    let named = etc.path("plimsoll.toml");
    let error = load(&Places::new(Some(&named))).unwrap_err();
    assert!(matches!(&error, ConfigError::Read { path, .. } if *path == named), "{error}");
    fs::write(&named, "[maps]\nmax_processes = 9").unwrap();
    let config = load(&Places::new(Some(&named))).unwrap();
    assert_eq!(config.maps, Maps { max_processes: 9, max_accounts: 4096 });
}

#[test]
fn later_files_win_key_by_key_and_user_by_user() {
    let etc = Etc::new(&[
        (
            "plimsoll.toml",
            "[limits.users]\nalice = { hard = \"1G\" }\nbob = { hard = \"1G\" }\n[maps]\nmax_accounts = 5\nmax_processes = 5",
        ),
        (
            "conf.d/20-b.toml",
            "[limits.users]\nalice = { hard = \"3G\" }\n1000 = { hard = \"4G\" }\n[maps]\nmax_accounts = 20",
        ),
        (
            "conf.d/10-a.toml",
            "[limits.users]\nalice = { hard = \"2G\" }\n\"user:1000\" = { hard = \"1M\" }\n[maps]\nmax_accounts = 10",
        ),
        ("conf.d/.hidden.toml", "not even TOML"),
        ("conf.d/30-c.toml.bak", "nor this"),
    ]);
    let config = etc.load().unwrap();
    assert_eq!(config.limits.users.len(), 3);
    assert_eq!(hard(&config, "alice"), "3G".parse().unwrap());
    assert_eq!(hard(&config, "bob"), "1G".parse().unwrap());
    assert_eq!(hard(&config, "1000"), "4G".parse().unwrap());
    assert_eq!(config.maps, Maps { max_processes: 5, max_accounts: 20 });
}

#[test]
fn a_group_may_be_written_in_every_way_and_is_one_group_across_files() {
    let etc = Etc::new(&[
        (
            "plimsoll.toml",
            "[limits.groups]\nstaff = { hard = \"1G\" }\n50 = { hard = \"1G\" }\nwheel = { hard = \"1G\" }",
        ),
        (
            "conf.d/a.toml",
            "[limits.groups]\n\"@staff\" = { hard = \"2G\" }\n\"@50\" = { hard = \"3G\" }\n\"user\" = { hard = \"4G\" }",
        ),
    ]);
    let groups = etc.load().unwrap().limits.groups;
    let shown: Vec<_> = groups.iter().map(|group| format!("{} {}", group.who, group.line.hard)).collect();
    assert_eq!(shown, ["@50 3G", "@staff 2G", "@user 4G", "@wheel 1G"]);
}

#[test]
fn every_value_arrives_where_it_belongs() {
    let config = parsed(
        "[limits]\ndefault = { hard = \"25%\", soft = \"20%\", action = \"term\" }\ncharge = \"rss\"\nuid_min = 500\n\
         uid_max = 600\nkill_deadline_ms = 1\nterm_grace_ms = 2\n\
         [limits.users]\nalice = { hard = 1048576 }\n\
         [limits.groups]\nstaff = { hard = 2097152 }\n\
         [limits.budgets]\n\"group:staff\" = { hard = 4194304 }\n50 = { hard = 4194304 }\n\
         [machine]\nenabled = false\nterm_memory = 12.5\nkill_memory = \"2.2%\"\nterm_swap = 100\nkill_swap = 0.1\n\
         memory_max = \"1G\"\nspike_ms = 5\nstall = 70\nstall_ms = 600\n\
         term_grace_ms = 3\nkill_deadline_ms = 4\n\
         [protect]\nexe = [\"/opt/db\"]\ncgroup = [\"/system.slice/db.service\"]\n\
         [history]\nmax_bytes = \"2M\"\nmax_age_days = 4\nmax_incidents = 5\n\
         [metrics]\nlisten = [\"[::1]:9758\", \"/run/m.sock\", \"[::1]:9758\"]\ngroup = \"staff\"\nusers = true\n\
         [maps]\nmax_processes = 6\nmax_accounts = 7\n",
    )
    .unwrap();
    let line = config.limits.default.unwrap();
    assert_eq!((line.hard.to_string(), line.soft.unwrap().to_string()), ("25%".to_owned(), "20%".to_owned()));
    assert_eq!((line.action, config.limits.charge), (Action::Term, Charge::Rss));
    assert_eq!(config.limits.uids, UidRange { min: Uid(500), max: Uid(600) });
    let ladder = config.limits.ladder;
    assert_eq!((ladder.kill_deadline, ladder.term_grace), (Nanos(1_000_000), Nanos(2_000_000)));
    let [alice] = &config.limits.users[..] else { panic!("{:?}", config.limits.users) };
    assert_eq!(alice.who, plimsoll_policy::who::Who::User("alice".to_owned()));
    let expected = Line { hard: Size::Bytes(Bytes(1 << 20)), soft: None, action: Action::Kill };
    assert_eq!(alice.line, expected);
    let [staff] = &config.limits.groups[..] else { panic!("{:?}", config.limits.groups) };
    let expected = Line { hard: Size::Bytes(Bytes(2 << 20)), ..expected };
    assert_eq!((staff.who.to_string(), staff.line), ("@staff".to_owned(), expected));
    let budgets: Vec<_> = config.limits.budgets.iter().map(|one| one.who.to_string()).collect();
    assert_eq!(budgets, ["group:50", "group:staff"]);
    let guard = MachineConfig {
        term: Thresholds { memory: Permille(125), swap: Permille(1000) },
        kill: Thresholds { memory: Permille(22), swap: Permille(1) },
        term_grace: Nanos(3_000_000),
        kill_deadline: Nanos(4_000_000),
        memory_max: Bytes(1 << 30),
        spike: Nanos(5_000_000),
        stall: Some(StallConfig { full: Permille(700), within: Nanos(600_000_000) }),
        ..MachineConfig::default()
    };
    let machine = Machine { enabled: false, guard };
    assert_eq!(config.machine, machine);
    assert_eq!(config.protect.exe.last().unwrap(), "/opt/db");
    assert_eq!(config.protect.exe.len(), login_path::LOGIN_PATH.len() + 1);
    assert_eq!(config.protect.cgroup, ["/system.slice/db.service"]);
    let history = History { max_bytes: Bytes(2 << 20), max_age_days: 4, max_incidents: 5 };
    assert_eq!(config.history, history);
    let listen = [Listen::Loopback("[::1]:9758".parse().unwrap()), Listen::Unix("/run/m.sock".into())].into();
    let group = Some(plimsoll_policy::who::Who::Members("staff".to_owned()));
    assert_eq!(config.metrics, Metrics { listen, group, users: true });
    assert_eq!(config.maps, Maps { max_processes: 6, max_accounts: 7 });
}

/// `(what the second line holds, what the message must hold)`
const BAD: &[(&str, &str)] = &[
    ("[limit]", "unknown field `limit`"),
    ("limits.hrad = 1", "unknown field `hrad`"),
    ("limits.\"h\\u001b[31m\\nx\\u009b\" = 1", "unknown field `h"),
    ("limits.users.alice = { hard = \"1G\", sotf = 1 }", "unknown field `sotf`"),
    ("limits.users.alice = { soft = \"1G\" }", "missing field `hard`"),
    ("limits.users.alice = { hard = \"12Q\" }", "size '12Q': unknown unit"),
    ("limits.users.alice = { hard = 0 }", "line of 0"),
    ("limits.users.alice = { hard = \"0%\" }", "line of 0"),
    ("limits.users.alice = { hard = -5 }", "negative"),
    ("limits.users.alice = { hard = \"1K\" }", "less than 65536 bytes"),
    ("limits.users.alice = { hard = \"101%\" }", "more than 100%"),
    ("limits.users.alice = { hard = \"1G\", soft = \"2G\" }", "above the hard limit"),
    ("limits.users.alice = { hard = \"10%\", soft = \"20%\" }", "above the hard limit"),
    ("limits.users.alice = { hard = \"1G\", action = \"slap\" }", "unknown variant `slap`"),
    ("limits.users.alice = { hard = \"1G\", action = \"deny\" }", "is for jobs"),
    ("limits.users.\"@staff\" = { hard = \"1G\" }", "limits.groups"),
    ("limits.users.\"job:7\" = { hard = \"1G\" }", "'job:7' cannot have a line here"),
    ("limits.groups.\"user:alice\" = { hard = \"1G\" }", "is no user name, uid, @group"),
    ("limits.groups.\"group:staff\" = { hard = \"1G\" }", "see limits.budgets"),
    ("limits.budgets.\"@staff\" = { hard = \"1G\" }", "see limits.groups"),
    ("limits.budgets.\"a:b\" = { hard = \"1G\" }", "is no user name"),
    ("limits.users.\"group:staff\" = { hard = \"1G\" }", "limits.budgets"),
    ("limits.groups.4294967295 = { hard = \"1G\" }", "gid '4294967295' is out of range"),
    ("limits.groups.staff = { hard = \"1G\", sotf = 1 }", "unknown field `sotf`"),
    ("limits.groups.staff = { hard = 0 }", "line of 0"),
    ("limits.groups.\"a\\nb\" = { hard = \"1G\" }", "is no user name"),
    ("limits.users.default = { hard = \"1G\" }", "limits.default"),
    ("limits.users.4294967295 = { hard = \"1G\" }", "out of range"),
    ("limits.users.\"a\\u001b[31m\\nb\" = { hard = \"1G\" }", "is no user name"),
    ("limits.charge = \"all\"", "unknown variant `all`"),
    ("limits.uid_min = -1", "-1 is out of range; allowed is 0 to 4294967294"),
    ("limits.kill_deadline_ms = 0", "allowed is 1 to 86400000"),
    ("limits.kill_deadline_ms = 1.5", "invalid type"),
    ("machine.enabled = 1", "invalid type"),
    ("machine.term_memory = 100", "'100%' is no percentage from 0.1 to 99.9"),
    ("machine.term_memory = 0", "'0%' is no percentage"),
    ("machine.term_swap = 100.1", "is no percentage from 0.1 to 100.0"),
    ("machine.term_memory = 7.12", "at most one decimal"),
    ("machine.term_memory = -5", "'-5%' is no percentage"),
    ("machine.stall_ms = 499", "allowed is 500 to 60000"),
    ("machine.memory_max = \"10%\"", "out of range"),
    ("machine.term_memory = nan", "is no percentage"),
    ("machine.term_memory = 1e300", "is no percentage"),
    ("machine.term_memory = \"1G\"", "'1G' is no percentage"),
    ("machine.term_memory = [1]", "a percentage such as"),
    ("protect.exe = [\"sshd\"]", "'sshd' is not an absolute path"),
    ("protect.exe = [\"/usr/../sshd\"]", "not an absolute path"),
    ("protect.cgroup = [\"/a\\nb\"]", "not an absolute path"),
    ("protect.cgroup = \"/a\"", "invalid type"),
    ("history.max_bytes = \"1K\"", "allowed is 1M to 1T"),
    ("history.max_bytes = \"10%\"", "allowed is 1M to 1T"),
    ("history.max_age_days = 0", "allowed is 1 to 36500"),
    ("metrics.listen = [\"0.0.0.0:9758\"]", "only loopback addresses are allowed: write 127.0.0.1:9758"),
    ("metrics.listen = [\"[2001:db8::1]:80\"]", "'[2001:db8::1]:80' can be reached from other machines"),
    ("metrics.listen = [\"127.0.0.1\"]", "'127.0.0.1' is neither"),
    ("metrics.listen = [\"localhost:9758\"]", "loopback address with a port"),
    ("metrics.listen = [\"127.0.0.1:0\"]", "names no port"),
    ("metrics.listen = [\"/run/../x\"]", "no path of a unix socket"),
    ("metrics.users = 1", "invalid type"),
    ("maps.max_accounts = 0", "allowed is 1 to 65534"),
    ("maps.max_processes = 4194305", "allowed is 0 to 4194304"),
    ("maps.max_accounts = ", "value"),
    ("maps = ", "value"),
    ("\"unterminated", ""),
    ("\u{0}", ""),
];

#[test]
fn whatever_is_wrong_is_one_line_with_file_and_line() {
    for (bad, expected) in BAD {
        let etc = Etc::new(&[("conf.d/x.toml", &format!("# first\n{bad}\n"))]);
        let error = etc.load().unwrap_err();
        let text = error.to_string();
        let place = format!("{}:2: ", etc.path("conf.d/x.toml").display());
        assert!(text.starts_with(&place), "{bad}: {text}");
        assert!(text.contains(expected), "{bad}: {text}");
        assert!(!text.contains(char::is_control), "{bad}: {text:?}");
    }
}

#[test]
fn text_that_is_not_utf_8_is_refused_at_its_line() {
    let etc = Etc::new(&[]);
    fs::write(etc.path("plimsoll.toml"), b"[maps]\n\n# \xff\n").unwrap();
    let error = etc.load().unwrap_err().to_string();
    assert!(error.contains("plimsoll.toml:3: not UTF-8"), "{error}");
}

#[test]
fn keys_that_contradict_each_other_across_files_are_refused() {
    for (main, drop_in, expected) in [
        ("[machine]\nkill_memory = 20", "", "machine.kill_memory = 20.0 is above machine.term_memory = 10.0"),
        ("[machine]\nkill_swap = 9", "[machine]\nterm_swap = 8", "machine.kill_swap = 9.0 is above"),
        (
            "metrics.listen = [\"/a\", \"/b\", \"/c\", \"/d\", \"/e\"]",
            "",
            "metrics.listen has more than 4 addresses",
        ),
        ("[limits]\nuid_min = 70000", "", "limits.uid_min = 70000 is above limits.uid_max = 60000"),
    ] {
        let error = Etc::new(&[("plimsoll.toml", main), ("conf.d/a.toml", drop_in)]).load().unwrap_err();
        assert!(matches!(&error, ConfigError::Contradiction { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    // Only the outcome counts, not what an earlier file says by itself.
    let etc = Etc::new(&[
        ("plimsoll.toml", "[machine]\nkill_memory = 20"),
        ("conf.d/a.toml", "[machine]\nterm_memory = 30"),
    ]);
    assert_eq!(etc.load().unwrap().machine.guard.term.memory, Permille(300));
}

#[test]
fn a_file_that_is_too_large_or_no_file_is_refused() {
    let etc = Etc::new(&[]);
    let size = usize::try_from(FILE_MAX_BYTES).unwrap();
    fs::write(etc.path("plimsoll.toml"), "\n".repeat(size)).unwrap();
    assert_eq!(etc.load().unwrap(), Config::default());
    fs::write(etc.path("plimsoll.toml"), "\n".repeat(size + 1)).unwrap();
    assert!(matches!(etc.load(), Err(ConfigError::TooLarge { .. })));
    fs::remove_file(etc.path("plimsoll.toml")).unwrap();
    nix::unistd::mkfifo(&etc.path("plimsoll.toml"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    assert!(matches!(etc.load(), Err(ConfigError::Read { .. })));
}

#[test]
fn more_drop_ins_than_are_read_are_refused_not_left_out() {
    let etc = Etc::new(&[]);
    for number in 0..DROP_INS_MAX {
        fs::write(etc.path(&format!("conf.d/{number}.toml")), "").unwrap();
    }
    assert_eq!(etc.load().unwrap(), Config::default());
    fs::write(etc.path("conf.d/more.toml"), "").unwrap();
    assert!(matches!(etc.load(), Err(ConfigError::TooMany { .. })));
}

#[test]
fn the_uid_range_comes_from_login_defs_where_it_is_not_set() {
    let etc = Etc::new(&[("login.defs", "UID_MIN 500\nUID_MAX 59999\n")]);
    assert_eq!(etc.load().unwrap().limits.uids, UidRange { min: Uid(500), max: Uid(59_999) });
    fs::write(etc.path("plimsoll.toml"), "[limits]\nuid_max = 800").unwrap();
    assert_eq!(etc.load().unwrap().limits.uids, UidRange { min: Uid(500), max: Uid(800) });
}

#[test]
fn login_defs_is_read_as_shadow_reads_it() {
    for (text, min, max) in [
        ("", 1000, 60_000),
        ("UID_MIN\t\t\t 500\nUID_MAX 40000\n", 500, 40_000),
        ("  UID_MIN 0x10\r\nUID_MAX 0777\n", 16, 511),
        ("#UID_MIN 1\nSYS_UID_MIN 2\nUID_MINI 3\nuid_min 4\n", 1000, 60_000),
        ("UID_MIN 1\nUID_MIN 2", 2, 60_000),
        ("UID_MIN\nUID_MAX x\nUID_MIN -1\nUID_MIN +1\nUID_MAX 4294967295\nUID_MIN 08", 1000, 60_000),
        ("UID_MIN 70000\n", 1000, 60_000),
        ("UID_MIN \"700\"\n", 700, 60_000),
        ("UID_MIN 0\nUID_MAX 0\n", 0, 0),
        ("# UID_MIN 5\n\tUID_MIN 700 # people\nUID_MAX 800# x\n", 700, 60_000),
        ("UID_MIN 99999999999999999999\nUID_MAX 0xffffffff\nUID_MAX 1e5\n", 1000, 60_000),
        ("UID_MAX 999\n", 1000, 60_000),
        ("UID_MAX 4294967294\n", 1000, 4_294_967_294),
    ] {
        let range = UidRange { min: Uid(min), max: Uid(max) };
        assert_eq!(login_defs::parse(text.as_bytes()), range, "{text:?}");
    }
    assert_eq!(
        login_defs::parse(b"\xff\xfe UID_MIN 5\nUID_MAX \xff\nUID_MIN 6"),
        UidRange { min: Uid(6), max: Uid(60_000) }
    );
}

#[test]
fn the_documented_defaults_are_the_ones_in_force() {
    let mut text = String::new();
    for key in KEYS {
        if let Some(default) = key.default {
            text.push_str(&format!("{}.{} = {default}\n", key.section, key.name));
        }
    }
    assert_eq!(parsed(&text).unwrap(), Config::default());
}

#[test]
fn each_documented_example_is_accepted_and_changes_its_key() {
    for key in KEYS {
        let text = format!("{}.{} = {}\n", key.section, key.name, key.example);
        let config = parsed(&text).unwrap_or_else(|error| panic!("{text}{error}"));
        let is_default = key.default == Some(key.example);
        let same_by_chance = ["uid_min", "uid_max", "term_swap"].contains(&key.name) || is_default;
        assert!(same_by_chance || config != Config::default(), "{text}");
    }
}

#[test]
fn each_documented_key_of_a_rule_is_accepted_and_changes_the_rule() {
    let rule = |lines: &str| format!("[[rules]]\n{lines}");
    for key in RULE_KEYS {
        let written = format!("{} = {}\n", key.name, key.example);
        let bare = if key.name == "effect" { "comm = \"x\"\n" } else { "effect = \"avoid\"\ncomm = \"x\"\n" };
        let bare = if key.name == "comm" { "effect = \"avoid\"\nuid = 1\n" } else { bare };
        let config =
            parsed(&rule(&format!("{bare}{written}"))).unwrap_or_else(|error| panic!("{written}{error}"));
        assert!(key.name == "effect" || config != parsed(&rule(bare)).unwrap(), "{written}");
    }
    let message = parsed(&rule("x-y = 1\n")).unwrap_err().to_string();
    assert!(RULE_KEYS.iter().all(|key| message.contains(&format!("`{}`", key.name))), "{message}");
}

#[test]
fn a_bad_rule_is_refused_with_its_line_and_what_to_do() {
    for (lines, part) in [
        ("effect = \"never\"\ncomm = \"sshd\"", "needs exe, unit or cgroup"),
        ("effect = \"avoid\"", "names nobody"),
        ("comm = \"x\"", "missing field `effect`"),
        ("effect = \"kill\"\ncomm = \"x\"", "prefer"),
        ("effect = \"avoid\"\ncomm = \"x\"\nweight = 100", "under 100 percent"),
        ("effect = \"prefer\"\ncomm = \"x\"\nweight = 7000", "1 to 6553 percent"),
        ("effect = \"never\"\nexe = \"/x\"\nweight = 50", "takes no weight"),
        ("effect = \"avoid\"\nexe = \"a\\\\\"", "is no pattern"),
        ("effect = \"avoid\"\nuid = \"alice\"", "one value or a list"),
    ] {
        let error = parsed(&format!("machine.enabled = true\n[[rules]]\n{lines}\n")).unwrap_err().to_string();
        assert!(
            error.contains(part) && [".toml:2", ".toml:3", ".toml:4"].iter().any(|line| error.contains(line)),
            "{lines}: {error}"
        );
    }
}

#[test]
fn the_rules_of_a_later_file_come_first() {
    let rule = |comm: &str| format!("[[rules]]\neffect = \"avoid\"\ncomm = \"{comm}\"\n");
    let (early, late) = (rule("a") + &rule("b"), rule("c"));
    let etc = Etc::new(&[("plimsoll.toml", &early), ("conf.d/1.toml", &late)]);
    let together = parsed(&(rule("c") + &rule("a") + &rule("b"))).unwrap();
    assert_eq!(load(&etc.places()).unwrap().rules, together.rules);
}

/// serde names the fields it knows when it meets one that it does not.
fn known_fields(section: &str) -> Vec<String> {
    let text = if section.is_empty() { "x-y = 1".to_owned() } else { format!("[{section}]\nx-y = 1") };
    let message = parsed(&text).unwrap_err().to_string();
    let (_, listed) = message.split_once("expected ").unwrap();
    listed.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_table_of_keys_and_the_decoder_agree() {
    let mut sections: Vec<&str> = KEYS.iter().map(|key| key.section).collect();
    sections.dedup();
    assert_eq!(known_fields(""), [sections.as_slice(), &["rules"]].concat());
    for section in sections {
        let documented: Vec<_> =
            KEYS.iter().filter(|key| key.section == section).map(|key| key.name).collect();
        assert_eq!(known_fields(section), documented, "[{section}]");
    }
}

#[test]
fn each_key_is_described_by_whole_sentences() {
    for key in KEYS {
        assert!(key.meaning.ends_with('.') && key.meaning.len() > 20, "{}.{}", key.section, key.name);
    }
}

#[test]
fn the_page_in_docs_is_the_one_that_the_code_describes() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
    let reference = keys::reference();
    if std::env::var_os("PLIMSOLL_BLESS").is_some_and(|bless| bless == "1") {
        fs::write(&page, &reference).unwrap();
    }
    let found = fs::read_to_string(&page).unwrap_or_default();
    assert!(
        found == reference,
        "{} is stale: PLIMSOLL_BLESS=1 cargo test -p plimsoll-daemon config",
        page.display()
    );
}

#[test]
fn the_login_path_is_absolute_and_names_nothing_twice() {
    let mut seen = std::collections::HashSet::new();
    for path in login_path::LOGIN_PATH {
        assert!(path.starts_with("/usr/") && !path.ends_with('/') && seen.insert(path), "{path}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_decoder_panic_or_speak_in_two_lines(text in "[ -~\n\u{0}\u{9b}]{0,80}") {
        let path = Path::new("f");
        for bytes in [text.clone().into_bytes(), format!("[limits]\nusers.{text} = {{ hard = \"{text}\" }}").into_bytes()] {
            if let Err(error) = file::Raw::parse(path, &bytes) {
                prop_assert!(!error.to_string().contains(char::is_control), "{error:?}");
            }
        }
    }

    #[test]
    fn no_bytes_make_the_login_defs_parser_panic(bytes: Vec<u8>) {
        let range = login_defs::parse(&bytes);
        prop_assert!(range.min <= range.max);
    }
}
