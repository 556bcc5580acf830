use super::{BenchReport, Machine, Series};

fn machine() -> Machine {
    Machine {
        kernel: "6.12.1".to_owned(),
        cpus: 2,
        cpu_model: None,
        virtual_machine: Some(true),
        memory_bytes: 8 << 30,
        swap_bytes: 0,
        page_size_bytes: 4096,
        transparent_hugepage: Some("madvise".to_owned()),
        load_average_at_start: Some(0.5),
        version: "0.1.0".to_owned(),
    }
}

fn report() -> BenchReport {
    let mut report = BenchReport::new("faults", machine());
    let none: Series<'_> = ("none", &[100.0, 200.0, 100.0, 100.0, 100.0, 100.0]);
    let guarded: Series<'_> = ("plimsoll", &[110.0, 220.0, 110.0, 110.0, 110.0, 110.0]);
    report.add_row("far", none, "ns/page");
    report.add_row("far", guarded, "ns/page");
    report.add_ratio("far", guarded, none);
    report
}

#[test]
fn json_carries_the_fields_that_scripts_rely_on() {
    let json = serde_json::to_value(report()).unwrap();
    assert_eq!(json["bench"], "faults");
    assert_eq!(json["machine"]["cpus"], 2);
    let row = &json["rows"][1];
    assert_eq!((row["case"].as_str(), row["variant"].as_str()), (Some("far"), Some("plimsoll")));
    assert_eq!(
        (row["n"].as_u64(), row["p50"].as_f64(), row["unit"].as_str()),
        (Some(6), Some(110.0), Some("ns/page"))
    );
    assert_eq!((row["p99"].as_f64(), row["max"].as_f64()), (Some(220.0), Some(220.0)));
    let ratio = &json["ratios"][0];
    assert_eq!((ratio["of"].as_str(), ratio["to"].as_str()), (Some("plimsoll"), Some("none")));
    assert!((ratio["median"].as_f64().unwrap() - 1.1).abs() < 1e-9);
    assert!(ratio["low"].is_number() && ratio["high"].is_number());
}

#[test]
fn too_few_rounds_give_null_and_not_a_false_interval() {
    let mut report = BenchReport::new("faults", machine());
    let series: Series<'_> = ("a", &[1.0, 2.0]);
    report.add_ratio("far", series, series);
    let json = serde_json::to_value(&report).unwrap();
    assert!(json["ratios"][0]["low"].is_null() && json["ratios"][0]["high"].is_null());
    assert!(report.to_string().contains("too few rounds"));
}

#[test]
fn a_series_without_figures_is_a_note_and_not_a_row() {
    let mut report = BenchReport::new("latency", machine());
    report.add_row("4 MiB", ("earlyoom", &[]), "ns");
    assert!(report.rows.is_empty());
    assert_eq!(report.notes, ["4 MiB: earlyoom: nothing measured"]);
}

#[test]
fn the_table_lines_up_and_names_the_machine() {
    let text = report().to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("faults: Linux 6.12.1, 2 x unknown processor, 8192 MiB, load 0.50 at start")
    );
    let column = lines[1].find("unit").unwrap();
    assert!(lines[2..4].iter().all(|line| line[column..].starts_with("ns/page")), "{text}");
    assert!(text.contains("plimsoll / none"), "{text}");
}
