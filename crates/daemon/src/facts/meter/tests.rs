use super::*;
use crate::journal::Journal;
use std::{path::Path, sync::mpsc::sync_channel, time::Duration};

const SOON: Duration = Duration::from_secs(20);

fn gauge() -> Gauge {
    Gauge::new(ProcRoot::open(Path::new("/proc")).unwrap(), false)
}

fn nowhere() -> Account {
    Account::Cgroup("/no/such/cgroup".parse().unwrap())
}

#[test]
fn a_cgroup_that_is_not_there_is_absent_and_the_machine_is_known() {
    let mut gauge = gauge();
    assert_eq!(gauge.usage(&nowhere()), Reading::Absent);
    assert_eq!(gauge.processes(&nowhere()), None);
    let anonymous = gauge.proc.read_meminfo().unwrap().anonymous.unwrap();
    let seen = gauge.usage(&Account::System).known().unwrap();
    assert!(seen.usage.0 > anonymous.0 / 2 && seen.usage == seen.settled && seen.mapped == Bytes(0));
    assert!(gauge.count_all().unwrap() > 0);
}

#[test]
fn what_is_mapped_counts_where_it_is_to() {
    let mut other = Gauge { mapped: true, ..gauge() };
    let seen = other.usage(&Account::System).known().unwrap();
    assert!(seen.mapped > Bytes(0) && seen.usage > seen.mapped);
}

#[test]
fn all_that_is_asked_about_is_told_at_once_with_the_number_of_cpus() {
    let (told, heard) = sync_channel(1);
    let folder = tempfile::tempdir().unwrap();
    let in_force = InForceFile::new(folder.path(), Journal::mute());
    let meter =
        Meter::new(&Offload::start().unwrap(), gauge(), in_force, move |looked| told.send(looked).unwrap());
    let order = |key, account| Order { key, account, line: Bytes(0), hard: Some(Bytes(0)), inherits: false };
    assert!(meter.ask(vec![order(7, nowhere()), order(9, Account::System)]));
    let looked = heard.recv_timeout(SOON).unwrap();
    assert_eq!(looked.looks.iter().map(|look| look.key).collect::<Vec<_>>(), [7, 9]);
    assert_eq!((&looked.looks[0].usage, &looked.looks[0].members), (&Reading::Absent, &None));
    assert!(looked.looks[1].usage.known().is_some() && looked.took > Nanos(0));
    assert!(looked.cpus.is_some_and(|cpus| cpus > 0));
}
