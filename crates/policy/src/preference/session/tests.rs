use super::{PROGRAMS, Pattern, Programs, SHELLS};
use crate::{
    preference::{AVOIDED, Effect, Exe, Facts, PREFERRED, Rule, Rules},
    selection::Weight,
    units::Uid,
};
use std::vec;

const SESSION: &[u8] =
    b"/user.slice/user-1000.slice/user@1000.service/session.slice/org.gnome.Shell@wayland.service";

const SHELL: Facts<'static> = Facts {
    uid: Uid(1000),
    comm: b"bash",
    exe: Some(Exe { path: b"/usr/bin/bash", only_root_writes: true }),
    cgroup: Some(b"/user.slice/user-1000.slice/session-4.scope"),
    cmdline: None,
    oom_score_adj: 0,
    child_of_init: false,
    mark: None,
    leads_terminal: true,
};

fn compositor(path: &'static [u8], cgroup: &'static [u8]) -> Facts<'static> {
    let exe = Some(Exe { path, only_root_writes: true });
    Facts { comm: b"gnome-shell", exe, cgroup: Some(cgroup), leads_terminal: false, ..SHELL }
}

fn carries(facts: &Facts<'_>) -> bool {
    Rules::default().judge(facts).session
}

#[test]
fn every_pattern_of_the_defaults_is_one() {
    assert!(PROGRAMS.iter().chain(SHELLS).all(|text| Pattern::new(text).is_ok()));
    assert_eq!(Programs::default().exe.len(), PROGRAMS.len());
}

#[test]
fn it_takes_the_executable_and_the_unit_together() {
    let shell = compositor(b"/usr/bin/gnome-shell", SESSION);
    assert!(carries(&shell));
    assert!(carries(&compositor(b"/usr/libexec/Xwayland", SESSION)));
    let manager = b"/user.slice/user-1000.slice/user@1000.service/init.scope";
    assert!(carries(&compositor(b"/usr/lib/systemd/systemd", manager)));
    assert!(carries(&compositor(b"/usr/bin/sway", b"/user.slice/user-1000.slice/session-2.scope")));
    // Its user's own file, another program, somebody else's session, no session at all.
    assert!(!carries(&Facts {
        exe: Some(Exe { path: b"/usr/bin/gnome-shell", only_root_writes: false }),
        ..shell
    }));
    assert!(!carries(&compositor(b"/usr/bin/weston-terminal", SESSION)));
    assert!(!carries(&compositor(b"/home/usr/bin/gnome-shell", SESSION)));
    assert!(!carries(&Facts { uid: Uid(1001), ..shell }));
    assert!(!carries(&compositor(b"/usr/bin/gnome-shell", b"/system.slice/kiosk.service")));
    assert!(!carries(&compositor(b"/usr/bin/gnome-shell", b"/user.slice/user-1000.slice")));
    assert!(!carries(&Facts { exe: None, ..shell }));
}

#[test]
fn where_systemd_makes_no_units_the_executable_alone_decides() {
    assert!(carries(&compositor(b"/usr/bin/weston", b"/")));
    assert!(carries(&compositor(b"/usr/bin/weston", b"/memory/of/somebody")));
    assert!(carries(&Facts { cgroup: None, ..compositor(b"/usr/bin/weston", b"/") }));
}

#[test]
fn a_shell_counts_as_a_login_and_not_as_an_interpreter() {
    assert!(carries(&SHELL));
    let dash = Exe { path: b"/usr/bin/dash", only_root_writes: true };
    assert!(carries(&Facts { comm: b"sh", exe: Some(dash), ..SHELL }));
    assert!(!carries(&Facts { comm: b"backup.sh", ..SHELL }));
    assert!(!carries(&Facts { comm: b"", ..SHELL }));
    assert!(!carries(&Facts { leads_terminal: false, ..SHELL }));
}

#[test]
fn for_the_machine_it_is_avoided_unless_a_rule_says_otherwise() {
    assert_eq!(Rules::default().judge(&SHELL).weight_of_machine(), AVOIDED);
    assert_eq!(Rules::default().judge(&SHELL).weight, Weight::NEUTRAL);
    let rule = Rule { uid: vec![Uid(1000)], ..Rule::new(Effect::Weight(PREFERRED)) };
    let judged = Rules::new(vec![rule]).unwrap().judge(&SHELL);
    assert_eq!((judged.weight_of_machine(), judged.session), (PREFERRED, true));
}
