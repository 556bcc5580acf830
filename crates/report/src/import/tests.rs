use super::{Peer, Tenths, check, import, regex::patterns};

fn earlyoom(arguments: &str) -> String {
    import(Peer::Earlyoom, format!("# comment\nEARLYOOM_ARGS=\"{arguments}\"\n").as_bytes()).unwrap()
}

#[track_caller]
fn assert_keys(page: &str, expected: &[&str]) {
    let lines: Vec<&str> = page.lines().collect();
    for key in expected {
        assert!(lines.contains(key), "{key}:\n{page}");
    }
}

#[test]
fn shares_of_earlyoom_are_ours_and_sigkill_comes_at_half() {
    let page = earlyoom("-m 7.5 -s 20,15 -w 3");
    let expected =
        ["memory_max = \"1T\"", "term_memory = 7.5", "kill_memory = 3.7", "term_swap = 20", "kill_swap = 15"];
    assert_keys(&page, &expected);
    assert_keys(&page, &["term_grace_ms = 3000"]);
    assert_keys(&earlyoom(""), &["term_memory = 10", "kill_memory = 5", "term_swap = 10", "kill_swap = 5"]);
    assert_keys(
        &earlyoom("-m5 -s100"),
        &["term_memory = 5", "kill_memory = 2.5", "term_swap = 100", "kill_swap = 50"],
    );
}

#[test]
fn an_amount_is_a_share_of_the_most_that_shares_are_taken_of() {
    // 'Reserve 10 % of RAM but at most 1 GiB', as its manual has it: 10 GiB.
    let both = earlyoom("-m 10 -M 1048576");
    assert_keys(&both, &["memory_max = \"10485760K\"", "term_memory = 10", "kill_memory = 5"]);
    let alone = earlyoom("-M 409600,307200");
    assert_keys(&alone, &["memory_max = \"819200K\"", "term_memory = 50", "kill_memory = 37.5"]);
    let page = earlyoom("-S 1000");
    assert!(page.contains("# -S 1000: swap goes by shares"), "{page}");
}

#[test]
fn names_become_rules_and_what_is_no_list_of_names_is_told() {
    let page =
        earlyoom(r"-r 3600 -n --avoid '(^|/)(init|Xorg|ssh\\.d)$' --prefer=firefox --ignore '^dbus' -pg");
    assert_keys(
        &page,
        &[
            "comm = [\"init\", \"Xorg\", \"ssh.d\"]",
            "comm = [\"*firefox*\"]",
            "comm = [\"dbus*\"]",
            "weight = 1",
        ],
    );
    for option in ["# -r 3600: ", "# -n: ", "# -p: ", "# -g: "] {
        assert!(page.contains(option), "{option}\n{page}");
    }
    let page = earlyoom("--prefer '[Cc]hrome+'");
    assert!(
        page.contains("# --prefer [Cc]hrome+: no list of names") && !page.contains("[[rules]]"),
        "{page}"
    );
}

#[test]
fn lists_of_names_are_understood_and_nothing_else() {
    let all = |regex| patterns(regex).map(|found| found.join(" "));
    for (regex, expected) in [
        ("^(a|b.c)$", Some("a b?c")),
        ("a|^b$", Some("*a* b")),
        ("^x(1|2)(y|)z.*$", Some("x1yz* x1z* x2yz* x2z*")),
        (r"^a\*b\.c$", Some(r"a\*b.c")),
        ("a+", None),
        ("[ab]", None),
        ("(a", None),
        ("a)", None),
        ("a\\", None),
        ("(a|b)?", None),
        ("é", None),
        ("(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)", None),
        ("((((((((((a))))))))))", None),
    ] {
        assert_eq!(all(regex).as_deref(), expected, "{regex}");
    }
}

#[test]
fn a_value_that_earlyoom_would_not_take_is_refused_in_one_line() {
    for (arguments, expected) in [
        ("-m lots", "-m 'lots' is not PERCENT"),
        ("-m 101", "-m '101'"),
        ("-M", "-M has no value"),
        ("extra", "argument 'extra'"),
        ("--prefer", "--prefer has no value"),
        ("'open", "not closed"),
    ] {
        let text = format!("EARLYOOM_ARGS={arguments}\n");
        let error = import(Peer::Earlyoom, text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn limits_of_systemd_oomd_are_what_is_left() {
    let oomd = |text: &str| import(Peer::SystemdOomd, text.as_bytes());
    let page = oomd("[OOM]\n#SwapUsedLimit=80%\nDefaultMemoryPressureLimit=\nOdd=1\n").unwrap();
    let expected = [
        "term_memory = 10",
        "kill_memory = 10",
        "term_swap = 10",
        "kill_swap = 10",
        "stall = 60",
        "stall_ms = 30000",
    ];
    assert_keys(&page, &expected);
    assert_keys(&page, &["# Odd=1: not known"]);
    let page = oomd(
        "[OOM]\nSwapUsedLimit=92.5%\nDefaultMemoryPressureLimit=500‰\nDefaultMemoryPressureDurationSec=1min 30s\n",
    )
    .unwrap();
    assert_keys(&page, &["term_memory = 7.5", "stall = 50", "stall_ms = 60000", "# It is 60 s at most."]);
    let page =
        oomd("[Service]\nExecStart=/bin/x\nManagedOOMSwap=kill\nManagedOOMPreference=avoid\n").unwrap();
    assert!(page.contains("# ManagedOOMSwap=kill: all processes") && !page.contains("ExecStart"), "{page}");
    for wrong in ["SwapUsedLimit=90", "SwapUsedLimit=101%", "DefaultMemoryPressureDurationSec=soon"] {
        let error = oomd(&format!("[OOM]\n{wrong}\n")).unwrap_err().to_string();
        assert!(error.contains("is not a s"), "{error}");
    }
}

#[test]
fn shares_have_one_decimal() {
    for (text, expected) in [
        ("10", Some("10")),
        ("7.56", Some("7.5")),
        ("100", Some("100")),
        ("100.1", None),
        ("", None),
        ("1.", None),
        ("-1", None),
    ] {
        assert_eq!(Tenths::parse(text).map(|tenths| tenths.to_string()).as_deref(), expected, "{text}");
    }
}

#[test]
fn what_is_foreign_is_never_raw() {
    assert_eq!(check(b"EARLYOOM_ARGS=\"--prefer \x1b[2J -N /bin/\xff\x1b -\x1b\"\n"), Ok(()));
    assert_eq!(check("[OOM]\nOdd\u{202e}=\u{1b}\nSwapUsedLimit=\u{1b}%\n".as_bytes()), Ok(()));
}
