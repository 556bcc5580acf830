use super::{Doctor, Feature, Status};

/// Nothing of the sample is lost, and nothing is there that it has not: no field was renamed.
#[test]
fn status_is_printed_as_the_sample_has_it() {
    let sample: serde_json::Value = serde_json::from_str(include_str!("sample.json")).unwrap();
    let status: Status = serde_json::from_value(sample.clone()).unwrap();
    assert_eq!(serde_json::to_value(&status).unwrap(), sample);
    assert_eq!(sample["triggers"]["last-defence"], "the kernel's own OOM killer");
    assert_eq!(
        (&sample["pressure"]["swap_total_bytes"], status.pressure.swap_total_bytes),
        (&0.into(), Some(0))
    );
    assert!(
        sample["pressure"]["mem_available_bytes"].is_null() && status.pressure.mem_available_bytes.is_none()
    );
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
