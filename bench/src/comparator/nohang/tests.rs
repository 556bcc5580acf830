use super::short;

#[test]
fn a_machine_is_told_to_be_short_and_the_rest_stays_as_it_is() {
    let told =
        short("MemTotal: 1000 kB\nMemFree: 900 kB\nMemAvailable: 950 kB\nSwapTotal: 10 kB\nSwapFree: 9 kB\n")
            .unwrap();
    assert_eq!(
        told,
        "MemTotal: 1000 kB\nMemFree: 900 kB\nMemAvailable: 30 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
    );
}
