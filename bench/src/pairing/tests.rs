use super::{Figures, interleave};
use crate::{error::BenchError, statistics::paired_ratios};

#[test]
fn a_round_goes_forwards_and_backwards() {
    let mut order = Vec::new();
    interleave(3, 2, |variant| {
        order.push(variant);
        Ok(Figures { own: 1.0, cpu: 1.0, kept_up: 1.0 })
    })
    .unwrap();
    assert_eq!(order, [0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0]);
}

#[test]
fn an_even_drift_of_the_machine_does_not_show_in_the_ratio() {
    let mut elapsed = 0.0;
    let rounds = interleave(2, 4, |_| {
        elapsed += 1.0;
        Ok(Figures { own: 100.0 + elapsed, cpu: 50.0, kept_up: 200.0 })
    })
    .unwrap();
    let ratios = paired_ratios(&rounds[1].own, &rounds[0].own);
    assert_eq!(ratios.len(), 4);
    assert!(ratios.iter().all(|ratio| (ratio - 1.0).abs() < 1e-12), "{ratios:?}");
    assert_eq!((&rounds[0].kept_up, &rounds[0].cpu), (&vec![200.0; 4], &vec![50.0; 4]));
}

#[test]
fn a_segment_that_fails_ends_the_case() {
    let outcome = interleave(2, 2, |variant| {
        if variant == 1 {
            Err(BenchError::NotPermitted)
        } else {
            Ok(Figures { own: 1.0, cpu: 1.0, kept_up: 1.0 })
        }
    });
    assert!(matches!(outcome, Err(BenchError::NotPermitted)));
}
