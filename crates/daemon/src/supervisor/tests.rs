use super::*;

fn heard(ear: &UnixDatagram) -> Option<String> {
    let mut message = [0; 256];
    ear.set_nonblocking(true).unwrap();
    let length = ear.recv(&mut message).ok()?;
    Some(String::from_utf8(message[..length].to_vec()).unwrap())
}

#[test]
fn nobody_is_told_where_nobody_asks() {
    let nobody = Supervisor::new(None, Some("3000000")).unwrap();
    nobody.ready();
    assert_eq!(nobody.pulse(Nanos(5)).due(), None);
    Supervisor::new(Some("/nowhere/notify".into()), None).unwrap_err();
}

#[test]
fn a_service_manager_hears_the_start_and_what_came_of_a_reload_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let ear = UnixDatagram::bind(&path).unwrap();
    let one = Supervisor::new(Some(path.into()), None).unwrap();
    one.ready();
    one.reloading(Nanos(7_000_900));
    one.reloaded("stays as it was:\nWATCHDOG=trigger");
    assert_eq!(heard(&ear).as_deref(), Some("READY=1"));
    assert_eq!(heard(&ear).as_deref(), Some("RELOADING=1\nMONOTONIC_USEC=7000"));
    assert_eq!(heard(&ear).as_deref(), Some("READY=1\nSTATUS=stays as it was: WATCHDOG=trigger"));
    assert_eq!(one.pulse(Nanos(5)).due(), None, "no watchdog was asked for");
}

#[test]
fn signs_of_life_come_three_times_within_the_time_and_wait_for_nobody() {
    let name = format!("plimsoll-test-{}", std::process::id());
    let ear = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let one = Supervisor::new(Some(format!("@{name}").into()), Some("90000000")).unwrap();
    let second = 1_000_000_000;
    let mut pulse = one.pulse(Nanos(0));
    pulse.beat(Nanos(0));
    pulse.beat(Nanos(29 * second));
    assert_eq!((heard(&ear).as_deref(), heard(&ear)), (Some("WATCHDOG=1"), None));
    assert_eq!(pulse.due(), Some(Nanos(30 * second)));
    // Nobody reads: soon there is no room.
    for turn in 1..5000 {
        pulse.beat(Nanos(turn * 30 * second));
    }
    assert_eq!(pulse.due(), Some(Nanos(5000 * 30 * second)));
    drop(ear);
    pulse.beat(Nanos(5000 * 30 * second));
}
