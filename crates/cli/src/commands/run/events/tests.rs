use super::*;
use serde_json::Value;
use std::io::{PipeReader, Read as _, pipe};

fn incident() -> Incident {
    serde_json::from_str(include_str!("../../../../../policy/src/incident/sample.json")).unwrap()
}

fn job(id: u32) -> Account {
    Account::Job(JobId(id))
}

fn of_incident(incident: &Incident, name: Option<&str>) -> Event {
    Event::new(What::Killed, job(7)).of_incident(incident, name)
}

fn told(event: &Event) -> Value {
    serde_json::from_slice(&event.to_json()).unwrap()
}

#[test]
fn an_event_has_the_fields_that_scripts_rely_on_and_null_for_what_is_not_known() {
    let event = told(&Event { status: Some(137), ..Event::new(What::Ended, job(7)) });
    let mut names: Vec<&str> = event.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    let all = "event hard_bytes incident job peak_bytes processes reason seconds_left status story time usage_bytes";
    assert_eq!(names.join(" "), all);
    let known: Vec<&str> = names.into_iter().filter(|name| !event[name].is_null()).collect();
    assert_eq!(known, ["event", "job", "status", "time"]);
    assert_eq!((&event["event"], &event["job"]), (&"ended".into(), &"job:7".into()));
}

#[test]
fn an_incident_is_a_jobs_by_its_line_or_by_those_who_were_in_it() {
    let mut theirs = incident();
    assert!(!concerns(&job(7), &theirs));
    theirs.victims[0].jobs = vec![JobId(9), JobId(7)];
    assert!(concerns(&job(7), &theirs) && concerns(&job(9), &theirs) && !concerns(&job(8), &theirs));
    let mut other = theirs.victims[0].clone();
    (other.pid, other.jobs) = (Pid(99), Vec::new());
    theirs.victims.push(other);
    let event = told(&of_incident(&theirs, Some("alice")));
    assert_eq!(event["processes"].as_array().unwrap().len(), 1, "nobody outside of it is told of");
    assert!(event["usage_bytes"].is_null() && event["hard_bytes"].is_null(), "these are the user's");
    let own = Incident { account: Some(job(7)), ..theirs };
    let event = told(&of_incident(&own, Some("build")));
    assert_eq!(event["event"], "killed");
    assert_eq!(event["usage_bytes"], own.usage_bytes);
    assert_eq!((&event["incident"], &event["reason"]), (&own.id.into(), &own.reason.clone().into()));
    assert!(event["story"].as_str().unwrap().contains("build"), "{event}");
    let refused = Incident { action: Outcome::Refuse, ..own };
    assert_eq!(told(&of_incident(&refused, None))["event"], "refused");
}

fn lines() -> (Lines, PipeReader) {
    let (reader, writer) = pipe().unwrap();
    // As a program may have it that waits for nothing.
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    (Lines::to(File::from(std::os::fd::OwnedFd::from(writer))), reader)
}

#[test]
fn who_reads_late_gets_every_line_whole() {
    let (mut lines, mut reader) = lines();
    let event = of_incident(&incident(), None);
    let count = 100;
    (0..count).for_each(|_| lines.write(&event));
    let read = thread::spawn(move || {
        thread::sleep(Duration::from_millis(200));
        let mut all = String::new();
        reader.read_to_string(&mut all).map(|_| all)
    });
    assert_eq!(lines.finish(), 0);
    let all = read.join().unwrap().unwrap();
    let whole = all.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok());
    assert_eq!(whole.count(), count);
}

#[test]
fn what_nobody_reads_is_counted_and_who_has_closed_it_misses_nothing() {
    let (mut lines, reader) = lines();
    let event = of_incident(&incident(), None);
    (0..WAITING_MAX * 3).for_each(|_| lines.write(&event));
    assert!(lines.finish() > 0);
    drop(reader);
    let (mut closed, reader) = self::lines();
    drop(reader);
    closed.write(&event);
    assert_eq!(closed.finish(), 0);
}
