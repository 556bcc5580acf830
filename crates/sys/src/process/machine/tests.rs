use super::*;
use std::{process::Command, thread::available_parallelism};

fn getconf(name: &str) -> u64 {
    let output = Command::new("getconf").arg(name).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

#[test]
fn page_size_and_tick_are_those_of_the_c_library() {
    assert_eq!(page_size().bytes().0, getconf("PAGESIZE"));
    assert_eq!(tick_ns() * getconf("CLK_TCK"), NANOSECONDS_A_SECOND);
}

#[test]
fn clocks_go_forward_and_sleep_counts_only_in_the_time_since_boot() {
    let (monotonic_ns, boottime_ns) = (clock_monotonic_ns(), clock_boottime_ns());
    assert!(boottime_ns >= monotonic_ns && monotonic_ns > 0);
    assert!(clock_monotonic_ns() >= monotonic_ns && clock_boottime_ns() >= boottime_ns);
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    let seconds: u64 = uptime.split('.').next().unwrap().parse().unwrap();
    assert!((seconds..seconds + 5).contains(&(clock_boottime_ns() / NANOSECONDS_A_SECOND)));
}

#[test]
fn the_machine_has_memory_and_at_least_the_cpus_we_may_use() {
    assert!(crate::process::mem_total().unwrap() > plimsoll_policy::units::Bytes(64 << 20));
    let usable = u32::try_from(available_parallelism().unwrap().get()).unwrap();
    let (possible, online) = (possible_cpus().unwrap(), online_cpus().unwrap());
    assert!(possible >= online && online >= usable, "{possible} {online} {usable}");
}

#[test]
fn the_running_kernel_is_the_one_that_uname_names() {
    let output = Command::new("uname").arg("-r").output().unwrap();
    assert_eq!(kernel_version().unwrap(), parse_osrelease(&output.stdout).unwrap());
}
