use super::*;

fn set(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    set
}

fn machine(capacities: &[(usize, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (cpu, capacity) in capacities {
        let cpu = folder.path().join(format!("cpu{cpu}"));
        fs::create_dir(&cpu).unwrap();
        fs::write(cpu.join("cpu_capacity"), format!("{capacity}\n")).unwrap();
    }
    folder
}

#[test]
fn the_big_cores_are_taken_of_those_that_are_allowed() {
    let folder = machine(&[(0, "446"), (1, "446"), (2, "1024"), (3, "1024"), (4, "871")]);
    let fastest = |allowed: &[usize]| members(&fastest_of(&set(allowed), folder.path())).collect::<Vec<_>>();
    assert_eq!(fastest(&[0, 1, 2, 3, 4]), [2, 3]);
    assert_eq!(fastest(&[0, 1, 4]), [4]);
    assert_eq!(fastest(&[0, 1]), [0, 1]);
}

#[test]
fn where_nothing_is_told_all_that_are_allowed_are_taken() {
    for folder in [machine(&[]), machine(&[(0, "1024"), (1, "1024")]), machine(&[(0, "fast"), (1, "")])] {
        assert!(members(&fastest_of(&set(&[0, 1]), folder.path())).eq([0, 1]));
    }
}

#[test]
fn this_machine_has_cpus() {
    let fastest = fastest_allowed().unwrap();
    assert!(fastest.count() > 0 && has_all(&sched_getaffinity(None).unwrap(), &fastest));
}
