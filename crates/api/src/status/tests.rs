use super::{
    Doctor, Feature, GuardView, Guards, Kernel, MapView, OwnView, Pressure, Selection, SelectionEffort,
    Status, Triggers,
};

fn guard() -> GuardView {
    GuardView { state: String::from("on"), dry_run: false, dying: 0, incidents: 2, last_incident: Some(2) }
}

fn status() -> Status {
    Status {
        daemon: true,
        triggers: Triggers {
            kernel: String::from("on"),
            daemon: String::from("on"),
            last_defence: String::from("the kernel's own OOM killer"),
        },
        guards: Guards {
            limits: guard(),
            pressure: guard(),
            own: OwnView {
                resident_bytes: Some(8 << 20),
                uptime_seconds: None,
                wake_ups: None,
                incidents_lost: Some(0),
                protected: None,
                reap_lowest_bytes_per_second: None,
            },
            others: None,
            tmalloc: None,
            workingset: None,
        },
        accounts: Vec::new(),
        groups: vec![],
        default: None,
        pressure: Pressure {
            mem_total_bytes: Some(4 << 30),
            mem_available_bytes: None,
            anon_bytes: None,
            swap_total_bytes: Some(0),
            swap_free_bytes: None,
            term_at_mem_bytes: None,
            term_at_swap_bytes: None,
            kill_at_mem_bytes: None,
            kill_at_swap_bytes: None,
            selection: Some(Selection {
                from: Some(String::from("programs")),
                ready_ns: None,
                last: Some(SelectionEffort { processes: 300, looks: 2, age_ns: 400_000 }),
            }),
        },
        kernel: Kernel {
            release: Some(String::from("6.12.0")),
            attached: true,
            pin: None,
            schema: Some(1),
            programs: vec![String::from("rss_stat")],
            maps: vec![MapView {
                name: String::from("accounts"),
                used: Some(1),
                max: 1024,
                full: None,
                bytes: None,
            }],
            map_bytes: None,
            records_dropped: Some(0),
            signals_failed: None,
        },
    }
}

#[test]
fn status_has_the_top_level_fields_that_scripts_rely_on() {
    let json = serde_json::to_value(status()).unwrap();
    let fields: Vec<&String> = json.as_object().unwrap().keys().collect();
    assert_eq!(
        fields,
        ["accounts", "daemon", "default", "groups", "guards", "kernel", "pressure", "triggers"]
    );
    assert_eq!(json["triggers"]["last-defence"], "the kernel's own OOM killer");
    assert_eq!(json["pressure"]["swap_total_bytes"], 0);
    assert!(json["pressure"]["mem_available_bytes"].is_null());
    assert_eq!(json["pressure"]["selection"]["last"]["looks"], 2);
    assert_eq!(serde_json::from_value::<Status>(json).unwrap(), status());
}

#[test]
fn doctor_has_the_fields_that_scripts_rely_on() {
    let doctor = Doctor {
        kernel: String::from("6.12.0 x86_64"),
        features: vec![Feature {
            name: String::from("process_mrelease"),
            present: false,
            used_for: String::from("reaping"),
            fallback: None,
        }],
        verdict: String::from("limits work"),
    };
    let json = serde_json::to_value(&doctor).unwrap();
    let expected = serde_json::json!({
        "kernel": "6.12.0 x86_64",
        "features": [{"name": "process_mrelease", "present": false, "used_for": "reaping", "fallback": null}],
        "verdict": "limits work"
    });
    assert_eq!(json, expected);
    assert_eq!(serde_json::from_value::<Doctor>(json).unwrap(), doctor);
}
