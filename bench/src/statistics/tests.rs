use super::{Median, Summary, interval_rank, mean, paired_differences, paired_ratios};

fn counted(n: u32) -> Vec<f64> {
    (1..=n).rev().map(f64::from).collect()
}

#[test]
fn percentiles_are_by_rank_and_do_not_need_sorted_input() {
    let summary = Summary::of(&counted(200)).unwrap();
    assert_eq!(summary, Summary { n: 200, p50: 100.5, p99: 198.0, max: 200.0 });
    assert_eq!(Summary::of(&[7.0]).unwrap(), Summary { n: 1, p50: 7.0, p99: 7.0, max: 7.0 });
}

#[test]
fn nothing_measured_gives_no_summary_rather_than_zeros() {
    assert_eq!(Summary::of(&[]), None);
    assert_eq!(Summary::of(&[f64::NAN, f64::INFINITY]), None);
    assert_eq!(Median::of(&[]), None);
}

#[test]
fn few_figures_have_a_median_but_no_interval() {
    let median = Median::of(&counted(5)).unwrap();
    assert_eq!((median.n, median.median, median.low, median.high), (5, 3.0, None, None));
}

#[test]
fn interval_ranks_are_those_of_the_printed_tables_of_the_sign_test() {
    // n and k as in any table of distribution-free confidence intervals for the median at 95 %.
    for (n, k) in
        [(6, 1), (8, 1), (9, 2), (12, 3), (15, 4), (20, 6), (25, 8), (30, 10), (40, 14), (50, 18), (100, 40)]
    {
        assert_eq!(interval_rank(n), Some(k), "n = {n}");
    }
    assert_eq!(interval_rank(0), None);
    assert_eq!(interval_rank(5), None);
}

#[test]
fn interval_rank_does_not_jump_where_the_approximation_takes_over() {
    let exact = interval_rank(1_000).unwrap();
    let approximate = interval_rank(1_001).unwrap();
    assert!(exact.abs_diff(approximate) <= 1, "{exact} and {approximate}");
}

#[test]
fn the_interval_is_symmetric_in_rank() {
    let median = Median::of(&counted(20)).unwrap();
    assert_eq!((median.median, median.low, median.high), (10.5, Some(6.0), Some(15.0)));
}

#[test]
fn the_interval_holds_the_true_median_in_about_95_percent_of_runs() {
    // A small congruential generator: uniform figures with true median 0.5, 2,000 runs of 20.
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(state >> 40).unwrap()) / f64::from(1_u32 << 24)
    };
    let held = (0..2_000)
        .filter(|_| {
            let run: Vec<f64> = (0..20).map(|_| uniform()).collect();
            let median = Median::of(&run).unwrap();
            median.low.unwrap() <= 0.5 && 0.5 <= median.high.unwrap()
        })
        .count();
    // The exact coverage for n = 20, k = 6 is 95.9 %; five standard deviations are 2.2 points.
    assert!((1_870..=1_965).contains(&held), "held {held} of 2000");
}

#[test]
fn ratios_are_formed_within_a_round_and_leave_out_what_was_not_measured() {
    assert_eq!(paired_ratios(&[2.0, 9.0, 4.0, f64::NAN], &[1.0, 3.0, 0.0, 1.0]), vec![2.0, 3.0]);
    assert_eq!(paired_differences(&[5.0, 1.0], &[3.0, 2.0]), vec![2.0, -1.0]);
    assert_eq!(mean(&[1.0, 2.0]), Some(1.5));
    assert_eq!(mean(&[]), None);
}
