use super::*;

fn rounds(own: &[f64]) -> Rounds {
    Rounds { own: own.to_vec(), cpu: own.to_vec(), kept_up: Vec::new() }
}

#[test]
fn over_all_sizes_each_size_counts_alike() {
    let small = vec![rounds(&[10.0, 10.0]), rounds(&[20.0, 10.0])];
    let large = vec![rounds(&[1000.0, 1000.0]), rounds(&[500.0, 4000.0])];
    let all = over_all(&[small, large]);
    let close = |found: &[f64], wanted: [f64; 2]| {
        found.len() == 2 && found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-9)
    };
    assert!(close(&all[0].own, [100.0, 100.0]), "{all:?}");
    assert!(close(&all[1].cpu, [100.0, 200.0]), "{all:?}");
}

#[test]
fn sizes_are_named_as_people_do() {
    assert_eq!(SIZES_BYTES.map(size_name), ["16B", "64B", "256B", "1KiB", "4KiB", "16KiB", "64KiB"]);
}
