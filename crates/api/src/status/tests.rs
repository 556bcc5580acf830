use super::Status;

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
