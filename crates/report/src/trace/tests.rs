use super::{LINE_BYTES_MAX, check, replay, simulated, words};
use plimsoll_policy::{
    machine::{MachineConfig, trace::Replay},
    units::Nanos,
};
use serde_json::{Value, json};
use std::{fs, path::Path};

const BEGIN: &str = "{\"begin\":{\"version\":1,\"at\":0,\"page_size\":4096,\"cpus\":2}}\n";
const SHORT: &str = "{\"look\":{\"at\":0,\"mem_available\":40,\"anon\":960,\"swap_total\":0}}\n";

fn shown(name: &str) -> Replay {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/traces").join(name).with_extension("jsonl");
    replay(&fs::read(path).unwrap(), None).unwrap()
}

fn at_once() -> MachineConfig {
    MachineConfig { spike: Nanos(0), ..MachineConfig::default() }
}

/// After how many milliseconds, with how much available: what is sent.
fn steps(name: &str) -> Vec<(u64, u64, String)> {
    let json = serde_json::to_value(simulated(&shown(name))).unwrap();
    let step = |one: &Value| {
        let what = one["signal"].as_str().unwrap_or("told");
        let mib = one["mem_available_bytes"].as_u64().unwrap() >> 20;
        (one["after_ns"].as_u64().unwrap() / 1_000_000, mib, what.to_owned())
    };
    json["decisions"].as_array().unwrap().iter().map(step).collect()
}

#[test]
fn the_table_of_the_page_is_what_its_traces_come_to() {
    let step = |ms, mib, what: &str| (ms, mib, what.to_owned());
    let all = |name| steps(name);
    assert_eq!(
        all("phone"),
        [step(8000, 260, "told"), step(13_500, 150, "SIGTERM"), step(16_750, 85, "SIGKILL")]
    );
    assert_eq!(
        all("laptop"),
        [step(3600, 2280, "told"), step(8400, 1320, "SIGTERM"), step(11_200, 760, "SIGKILL")]
    );
    assert_eq!(
        all("server"),
        [step(2100, 6092, "told"), step(5100, 3092, "SIGTERM"), step(6200, 1992, "SIGKILL")]
    );
    assert_eq!(all("thrashing"), [step(7000, 1000, "SIGKILL")]);
    for name in ["phone", "laptop", "server"] {
        let told = words(&shown(name));
        let killed = told.lines().last().unwrap();
        let (victim, others) = match name {
            "phone" => ("\"camera\"", "\"launcher\""),
            "laptop" => ("\"ld\"", "\"gnome-shell\""),
            _ => ("\"analytics\"", "\"postgres\""),
        };
        assert!(killed.contains(victim) && !told.contains(others), "{told}");
    }
}

#[test]
fn names_of_processes_are_told_and_never_raw() {
    let names = json!({"names": [{"pid": 7, "start_ns": 1, "comm": "a\u{1b}[2J\"\n\u{202e}b"}]});
    let list = "{\"list\":[{\"pid\":7,\"start_ns\":1,\"uid\":1000,\"usage\":2000}]}\n";
    let text = format!("{BEGIN}{list}{SHORT}{names}\n");
    let told = words(&replay(text.as_bytes(), Some(at_once())).unwrap());
    let expected =
        r#"SIGKILL to process 7 ("a\u{1b}[2J\"\n\u{202e}b"), with 7.8 MiB (machine-low-memory-kill)."#;
    assert!(told.contains(expected), "{told}");
    assert_eq!(check(text.as_bytes()), Ok(()));
}

#[test]
fn the_line_that_is_wrong_is_named() {
    let wrong = |text: &str| replay(text.as_bytes(), None).unwrap_err().to_string();
    assert_eq!(wrong(""), "line 1: a trace begins with a line \"begin\"");
    assert!(wrong(&format!("{BEGIN}\n\n{{\"lok\":1}}\n")).starts_with("line 4: unknown variant"));
    assert!(wrong(&format!("{BEGIN}{SHORT}{}", "[".repeat(10_000))).starts_with("line 3: "));
    let long = format!("{BEGIN}{}", " ".repeat(LINE_BYTES_MAX)) + "x";
    assert_eq!(wrong(&long), format!("line 2: longer than {LINE_BYTES_MAX} bytes"));
    let skips = vec![json!({"victim": {"pid": 1, "start_ns": 1}, "until": null}); 1000];
    let begin =
        json!({"begin": {"version": 1, "at": 0, "page_size": 4096, "cpus": 1, "state": {"skips": skips}}});
    let (looks, _) = replay(format!("{begin}\n{SHORT}").as_bytes(), None).unwrap().looks();
    assert_eq!(looks, 1);
}

#[test]
fn what_the_machine_decided_is_set_beside_it() {
    let list = "{\"list\":[{\"pid\":7,\"start_ns\":1,\"uid\":1000,\"usage\":2000}]}\n";
    let decided = "{\"decided\":{\"signal\":\"term\",\"victim\":{\"pid\":8,\"start_ns\":1},\"reason\":\"machine-low-memory-term\"}}\n";
    let short = SHORT.replace("40", "10485760").replace("960", "1038090240");
    let text = format!("{BEGIN}{list}{short}{decided}{}", short.replace("\"at\":0", "\"at\":20000000000"));
    let told = words(&replay(text.as_bytes(), Some(at_once())).unwrap());
    assert!(told.contains("On the machine: SIGTERM to process 8 (machine-low-memory-term)."), "{told}");
    assert!(
        told.contains("The rest is supposed")
            && told.ends_with("Not all of it was decided as on the machine."),
        "{told}"
    );
}
