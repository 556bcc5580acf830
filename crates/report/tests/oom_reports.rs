//! Real reports of the kernel's OOM killer from public trackers and lists, as short as they still say what is asked of
//! them; each with where it is from. What is expected was read off the reports by eye (and, where a kernel developer
//! had judged one, taken from there), not off what the parser gave.

#[cfg(test)]
mod real_reports {
    use plimsoll_policy::units::Bytes;
    use plimsoll_report::oom::log::parse;
    use plimsoll_report::oom::{Diagnosis, Report, Victim, diagnose};
    use std::{fs, path::Path, time::Instant};

    /// A file under `fuzz/corpus/oom`, where it is from, and for each report in it `field=value` pairs.
    type Case = (&'static str, &'static str, &'static [&'static str]);

    const CASES: &[Case] = &[
        (
            "arm64-5.10-binder-order3-wrapped",
            "LKML 2024-06-14, Lei Liu: [PATCH v3] binder_alloc: Replace kcalloc with kvcalloc to mitigate OOM issues",
            &["kind=global cause=fragmented comm=dumpsys pid=31329 adj=-950 order=3 gfp=40dc0 \
               kernel=5.10.168-android12-9-00003-gc873b6b86254-ab10823632 free_kb=15088 zones=1 anon_kb=420092 \
               file_kb=352896 slab_kb=327084 pagetables_kb=133468 stacks_kb=106300 cma_kb=44 page=4096 \
               site=binder_alloc_mmap_handler,binder_mmap,kcalloc victim=- truncated=true"],
        ),
        (
            "i386-3.2-highmem-quoted",
            "linux-mm 2013-01-25, Fengguang Wu, 20130125005529.GA21668@localhost (Debian bug 695182)",
            &["kind=global cause=low-zone comm=bash pid=3836 adj=0 order=1 gfp=d0 kernel=3.2.0-4-686-pae \
               free_kb=47468868 zones=3 anon_kb=54504 slab_kb=28816 swap_kb=0 boot_ms=744754 victim=-"],
        ),
        (
            "x86-5.8-cpuset-movable-node",
            "LKML 2021-09-13, Feng Tang: [PATCH v2] mm/page_alloc: detect allocation forbidden by cpuset and bail out early",
            &["kind=cpuset cause=low-zone comm=runc:[2:INIT] pid=8291 adj=0 order=0 gfp=500cc2 \
               kernel=5.8.2-0.g71b519a-default zones=1 victim=4100 victim_comm=containerd victim_uid=0 \
               victim_anon_kb=51184 victim_file_kb=26016 victim_pgtables_kb=676 victim_adj=0 \
               cpuset=docker-9976a269caec812c134fa317f27487ee36e1129beba7278a463dd53e5fb9997b.scope mems=4 \
               task_memcg=/system.slice/containerd.service site=pipe_write reaped=true truncated=false"],
        ),
        (
            "i386-3.18-slab-quoted-printable",
            "linux-mm 2014-12-16, Joonsoo Kim, 20141216023800.GA23270@js1304-P5Q-DELUXE",
            &[
                "kind=global cause=kernel-memory comm=trinity-main pid=3366 adj=-1000 order=0 gfp=2840d0 \
                 kernel=3.18.0-g6e20c9e free_kb=19348 zones=2 slab_kb=35656 cma_kb=16228 swap_kb=0 tasks=2 \
                 victim=3339 victim_comm=rc victim_anon_kb=184 victim_file_kb=2000 site=__d_alloc,d_alloc truncated=false",
                "kind=global cause=unknown comm=trinity-main pid=3364 order=0 victim=- truncated=true",
            ],
        ),
        (
            "x86-3.13-swap-full-syslog",
            "blog of zlbruce, 2015-07-01, change-wordpress (a VPS of 512 MiB)",
            &[
                "kind=global cause=exhausted comm=mysqld pid=30714 adj=0 order=0 gfp=201da kernel=3.13.0-27-generic \
               host=zlb free_kb=4696 zones=2 anon_kb=372784 pagetables_kb=51988 stacks_kb=4896 swap_kb=1023996 \
               swap_free_kb=0 tasks=2 boot_ms=15847900740 site=filemap_fault victim=-",
            ],
        ),
        (
            "arm-4.14-fork-order1",
            "linux-mm 2019-08-05, Michal Hocko, 20190805112437.GF7597@dhcp22.suse.cz",
            &[
                "kind=global cause=exhausted comm=kworker/u8:2 pid=56 adj=0 order=1 gfp=15080c0 kernel=4.14.65 \
               free_kb=17960 zones=1 site=copy_process,_do_fork victim=- truncated=true",
            ],
        ),
        (
            "arm64-5.4-kmemleak-wrapped",
            "LKML 2020, on low min_free_kbytes and khugepaged: search '[330319.766059] systemd invoked oom-killer'",
            &[
                "kind=global cause=unknown comm=- victim=541 victim_comm=dbus-broker victim_uid=999 victim_anon_kb=892 \
                 victim_file_kb=380 victim_pgtables_kb=44 victim_adj=-900 task_memcg=/system.slice/dbus-broker.service \
                 reaped=true",
                "kind=global cause=kernel-memory comm=systemd pid=1 adj=0 order=1 gfp=40cc0 kernel=5.4.51-xxx \
                 free_kb=1363848 zones=2 anon_kb=679880 slab_kb=3182872 slab=kmemleak_object tasks=2 last_task=test_ntttcp \
                 site=getname_flags,user_path_at_empty victim=- nobody=true truncated=false",
            ],
        ),
        (
            "x86-4.2-sysrq-among-others",
            "linux-mm 2015-08-29, Tetsuo Handa: mm/oom: Suppress unnecessary \"sharing same memory\" message",
            &[
                "kind=global cause=unknown comm=fool-sysrq-f pid=5803 order=0 gfp=280da victim=4802 \
                 victim_anon_kb=1562884 victim_score=874 tasks=2 last_task=fool-sysrq-f",
                "kind=global cause=unknown comm=kworker/3:2 order=0 gfp=2000d0 victim=4803",
                "kind=sysrq cause=unknown comm=kworker/2:0 order=-1 gfp=d0 victim=4803 victim_anon_kb=1563232",
                "kind=sysrq cause=unknown comm=kworker/2:0 order=-1 victim=-",
            ],
        ),
        (
            "x86-5.8-bpf-percpu",
            "bpf list 2020-07, Lorenzo Bianconi on test_maps: search '[  244.333067] test_maps invoked oom-killer'",
            &[
                "kind=global cause=kernel-memory comm=test_maps pid=8632 order=0 gfp=140cc0 kernel=5.8.0-rc4-kvm+ \
                 free_kb=103728 zones=2 anon_kb=55320 slab_kb=103544 swap_kb=0 site=htab_map_alloc victim=-",
                "kind=global cause=kernel-memory comm=test_maps pid=3263 order=0 gfp=100cca free_kb=84700 zones=3 \
                 kernel=5.8.0-rc4-01471-g15d51f3a516b slab=kmemleak_object victim=-",
            ],
        ),
        (
            "x86-4.9-dom0-order3",
            "https://github.com/QubesOS/qubes-issues/issues/3487",
            &["kind=global cause=fragmented comm=Xorg pid=3548 order=3 gfp=240c0d0 zones=3 swap_kb=7733244 \
               kernel=4.9.56-21.pvops.qubes.x86_64 swap_free_kb=7457800 tasks=1 victim=- truncated=true"],
        ),
        (
            "x86-3.16-debian-uncertain-frames",
            "https://github.com/lesovsky/pgcenter/issues/44",
            &["kind=global cause=exhausted comm=pgcenter pid=4082 order=0 gfp=280da kernel=3.16.0-4-amd64 \
               host=tz-pw2-83 free_kb=16456 zones=3 anon_kb=938408 victim=-"],
        ),
        (
            "x86-4.19-memcg-cache",
            "https://github.com/bluek8s/kubedirector/issues/356",
            &[
                "kind=memcg cause=memcg-limit comm=- victim=62685 victim_comm=bash usage_kb=524288 limit_kb=524288 \
               memcg_kernel_kb=16560 memcg_anon_kb=448 memcg_file_kb=507172 tasks=2 memcg=/kubepods/pod951f6bc5-c5a5-\
               11ea-8707-80e455f266a2/024952d653ef1cd852f875a61bd27cf45cb1fd6cab3659ca7e5f12f037d99aa9",
            ],
        ),
        (
            "x86-3.10-memcg-dmesg-dates",
            "https://github.com/kubernetes/kubernetes/issues/56891",
            &[
                "kind=memcg cause=memcg-limit comm=- victim=28438 victim_comm=java victim_anon_kb=466160 \
                 victim_file_kb=13684 memcg_anon_kb=524188 memcg_file_kb=32 tasks=1",
                "kind=global cause=unknown comm=java pid=14881 order=0 gfp=d0 adj=-998 victim=-",
            ],
        ),
        (
            "x86-5.4-memcg-stats-in-lines",
            "https://github.com/kata-containers/runtime/pull/2775",
            &[
                "kind=memcg cause=memcg-limit comm=- usage_kb=1048576 limit_kb=1048576 memcg_anon_kb=1037832 memcg_file_kb=0 \
               memcg_kernel_kb=10568 memcg=/kubepods/pod200f55f9-b043-11ea-b578-fa163e82605e victim=-",
            ],
        ),
        (
            "x86-3.10-rhel7-kill-lines",
            "https://github.com/apache/doris/issues/3525",
            &[
                "kind=memcg cause=memcg-limit comm=- victim=18177 victim_comm=palo_be victim_uid=0 host=doris-03 \
               victim_anon_kb=45563572 victim_file_kb=0",
            ],
        ),
        (
            "x86-5.4-docker-global-tail",
            "https://github.com/arriven/db1000n/issues/272",
            &[
                "kind=global cause=unknown comm=- victim=50111 victim_comm=main victim_uid=0 victim_anon_kb=197036 \
               victim_pgtables_kb=508 reaped=true tasks=1 host=http-service-0 mems=0 task_memcg=/docker/d1dfb06deee84\
               98945c4fa337c6ec6d8336755e2f7be147ec3ec9190bfe224cc",
            ],
        ),
        (
            "x86-4.14-kata-memcg",
            "https://github.com/kata-containers/runtime/issues/1310",
            &[
                "kind=memcg cause=memcg-limit comm=mem pid=93 order=0 gfp=14200ca kernel=4.14.67+ boot_ms=13957 victim=-",
            ],
        ),
        (
            "x86-3.10-marathon-memcg",
            "https://github.com/d2iq-archive/marathon/issues/2874",
            &[
                "kind=memcg cause=memcg-limit comm=java pid=9949 order=0 gfp=d0 kernel=3.10.0-327.13.1.el7.x86_64 victim=-",
            ],
        ),
        (
            "x86-6.17-memcg-nobody-left",
            "https://github.com/systemd/systemd/issues/40208",
            &[
                "kind=global cause=unknown comm=- victim=- nobody=true",
                "kind=memcg cause=memcg-limit comm=systemd pid=20957 uid=1000 adj=100 order=0 gfp=cc0 victim=- \
                 kernel=6.17.3-arch2-1-lily site=__anon_vma_prepare,do_anonymous_page",
            ],
        ),
        (
            "x86-5.x-mempolicy",
            "linux-mm 2022, Gang Li: mm, oom: enable per numa node oom for CONSTRAINT_{MEMORY_POLICY,CPUSET}",
            &[
                "kind=mempolicy cause=unknown comm=- victim=13135 victim_comm=a.out victim_uid=0 victim_anon_kb=2697304 \
               victim_pgtables_kb=5312 tasks=3 mems=0,1,2 nodes=1 reaped=true \
               task_memcg=/user.slice/user-0.slice/session-3.scope",
            ],
        ),
        (
            "x86-6.x-cpuset-wrapped-kill",
            "LKML 2023-04, Gang Li to Michal Hocko, on cpuset oom",
            &[
                "kind=cpuset cause=unknown comm=- victim=1968 victim_comm=memkiller victim_uid=0 victim_anon_kb=1971712 \
               victim_file_kb=1024 cpuset=test mems=0 task_memcg=/user.slice/user-0.slice/session-4.scope",
            ],
        ),
        (
            "x86-5.10-gke-json",
            "https://github.com/2i2c-org/infrastructure/issues/2359",
            &[
                "kind=global cause=unknown comm=node order=0 gfp=cc0 adj=991 boot_ms=195998443 victim=-",
                "kind=global cause=unknown comm=ZMQbg/IO/0 order=0 gfp=cc0 adj=991 boot_ms=196120737 victim=-",
            ],
        ),
        (
            "x86-4.18-memcg-group-callers",
            "linux-mm 2018, Tetsuo Handa, on memory.oom.group: search 'Killed process 1 (systemd)' in linux-next",
            &[
                "kind=memcg cause=memcg-limit comm=- victim=9188 victim_comm=a.out victim_anon_kb=10324 with_it=1,9182 \
               usage_kb=51200 limit_kb=51200 memcg_anon_kb=49484 memcg=/test1 task_memcg=/test1 reaped=true group=/test1",
            ],
        ),
        (
            "x86-5.15-btrfs-slab",
            "linux-btrfs 2023-10, Abylay Ospan, on btrfs_extent_map",
            &[
                "kind=global cause=kernel-memory comm=ip order=3 gfp=c2cc0 adj=0 slab=btrfs_extent_map victim=-",
            ],
        ),
        (
            "arm-3.0-android-backtrace",
            "https://github.com/eolwral/OSMonitor/issues/54",
            &[
                "kind=global cause=unknown comm=osmcore_L adj=-1000 order=0 gfp=200da site=handle_pte_fault,handle_mm_fault \
               boot_ms=5623859 victim=-",
            ],
        ),
        (
            "x86-2.6-rhel6-kill-line",
            "a page on Linux memory, ## NUMA, with /var/log/messages of RHEL 6: search 'Killed process 9682, UID 27'",
            &[
                "kind=global cause=unknown comm=- victim=9682 victim_comm=mysqld victim_uid=27 victim_anon_kb=3744 \
                 victim_file_kb=80 victim_score=9",
                "kind=global comm=httpd pid=8911 order=0 gfp=201da adj=0 kernel=2.6.32-279.1.1.el6.i686 swap_kb=524280 \
                 swap_free_kb=0 victim=-",
            ],
        ),
        (
            "x86-6.16-victim-lines",
            "https://github.com/inducer/relate/issues/1383",
            &[
                "kind=global cause=unknown comm=postgres pid=3589817 uid=104 order=0 gfp=140dca tasks=1 victim=3581527 \
               kernel=6.16.9+deb14-amd64 victim_comm=uwsgi victim_uid=33 victim_anon_kb=263092 victim_file_kb=29128 \
               victim_pgtables_kb=740 site=do_anonymous_page",
            ],
        ),
        (
            "arm-6.x-cma-with-made-up-head",
            "https://github.com/raspberrypi/linux/issues/3872, its first line made up",
            &["kind=global cause=low-zone comm=pacman order=0 gfp=cc0 free_kb=519112 zones=1 cma_kb=513592 \
               swap_kb=785668 swap_free_kb=785668 stacks_kb=1488 victim=-"],
        ),
    ];

    fn kilobytes(bytes: Option<Bytes>) -> Option<String> {
        bytes.map(|bytes| (bytes.0 / 1024).to_string())
    }

    fn list<T: ToString>(items: &[T]) -> String {
        items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    fn of_victim(victim: Option<&Victim>, key: &str) -> Option<String> {
        match key {
            "victim" => {
                Some(victim.and_then(|victim| victim.pid).map_or("-".to_owned(), |pid| pid.to_string()))
            }
            "victim_comm" => victim?.comm.clone(),
            "victim_uid" => victim?.uid.map(|uid| uid.to_string()),
            "victim_anon_kb" => kilobytes(victim?.anon),
            "victim_file_kb" => kilobytes(victim?.file),
            "victim_pgtables_kb" => kilobytes(victim?.pgtables),
            "victim_adj" => victim?.oom_score_adj.map(|adj| adj.to_string()),
            "victim_score" => victim?.score.map(|score| score.to_string()),
            _ => panic!("no field {key}"),
        }
    }

    fn of_memory(report: &Report, key: &str) -> Option<String> {
        let counters = &report.counters;
        let memcg = report.memcg.as_ref();
        match key {
            "free_kb" => kilobytes(report.free()),
            "anon_kb" => kilobytes(counters.anon),
            "file_kb" => kilobytes(counters.file),
            "slab_kb" => kilobytes(counters.slab_unreclaimable),
            "pagetables_kb" => kilobytes(counters.pagetables),
            "stacks_kb" => kilobytes(counters.kernel_stack),
            "cma_kb" => kilobytes(counters.free_cma.or(report.zones.first()?.free_cma)),
            "swap_kb" => kilobytes(report.swap_total),
            "swap_free_kb" => kilobytes(report.swap_free),
            "slab" => report.slabs.first().map(|slab| slab.name.clone()),
            "zones" => Some(report.zones.len().to_string()),
            "page" => Some(report.page_bytes().0.to_string()),
            "memcg" => memcg?.path.clone(),
            "usage_kb" => kilobytes(memcg?.usage),
            "limit_kb" => kilobytes(memcg?.limit),
            "memcg_anon_kb" => kilobytes(memcg?.anon),
            "memcg_file_kb" => kilobytes(memcg?.file),
            "memcg_kernel_kb" => kilobytes(memcg?.kernel),
            _ => of_victim(report.victim.as_ref(), key),
        }
    }

    fn of_report(report: &Report, diagnosis: &Diagnosis, key: &str) -> Option<String> {
        match key {
            "kind" => Some(report.kind.name().to_owned()),
            "cause" => Some(diagnosis.cause.name().to_owned()),
            "comm" => Some(report.invoker.comm.clone().unwrap_or("-".to_owned())),
            "pid" => report.invoker.pid.map(|pid| pid.to_string()),
            "uid" => report.invoker.uid.map(|uid| uid.to_string()),
            "adj" => report.invoker.oom_score_adj.map(|adj| adj.to_string()),
            "order" => report.order.map(|order| order.to_string()),
            "gfp" => report.gfp.as_ref().map(|gfp| format!("{:x}", gfp.bits)),
            "kernel" => report.kernel.clone(),
            "host" => report.when.host.clone(),
            "boot_ms" => report.when.since_boot.map(|since| (since.0 / 1_000_000).to_string()),
            "tasks" => Some(report.tasks.len().to_string()),
            "last_task" => report.tasks.last().map(|task| task.comm.clone()),
            "cpuset" => report.cpuset.clone(),
            "mems" => report.mems_allowed.as_deref().map(list),
            "nodes" => report.nodes_of_policy.as_deref().map(list),
            "task_memcg" => report.task_memcg.clone(),
            "group" => report.group.clone(),
            "with_it" => {
                Some(list(&report.killed_with_it.iter().filter_map(|victim| victim.pid).collect::<Vec<_>>()))
            }
            "reaped" => Some(report.reaped.to_string()),
            "nobody" => Some(report.nobody_left.to_string()),
            "truncated" => Some(report.truncated.to_string()),
            _ => of_memory(report, key),
        }
    }

    /// Whether one field is as expected. A call site is when all the functions named are in it.
    fn is_right(report: &Report, diagnosis: &Diagnosis, key: &str, expected: &str) -> bool {
        if key == "site" {
            let site = diagnosis.call_site.clone().unwrap_or_default();
            return expected.split(',').all(|function| site.contains(function));
        }
        of_report(report, diagnosis, key).as_deref() == Some(expected)
    }

    fn read(name: &str) -> Vec<u8> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/oom").join(name);
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    #[test]
    fn every_field_and_every_cause_is_as_read_by_eye() {
        let (mut right, mut wrong) = (0_u32, Vec::new());
        for (name, source, expected) in CASES {
            let reports = parse(&read(name));
            assert_eq!(reports.len(), expected.len(), "{name} ({source}): {reports:#?}");
            for (report, expected) in reports.iter().zip(*expected) {
                let diagnosis = diagnose(report);
                for pair in expected.split_whitespace() {
                    let (key, value) = pair.split_once('=').unwrap();
                    if is_right(report, &diagnosis, key, value) {
                        right += 1;
                    } else {
                        let got = of_report(report, &diagnosis, if key == "site" { "comm" } else { key });
                        wrong.push(format!(
                            "{name}: {key} should be {value}, is {got:?} {:?}",
                            diagnosis.call_site
                        ));
                    }
                }
            }
        }
        println!("{right} fields right, {} wrong, in {} files", wrong.len(), CASES.len());
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// A file, which of its reports, what the words about it must hold (each after the one before), and what they must not.
    type Words = (&'static str, usize, &'static [&'static str], &'static [&'static str]);

    const WORDS: &[Words] = &[
        (
            "x86-5.15-btrfs-slab",
            0,
            &[
                "held most of it: the largest slab cache that cannot shrink is \"btrfs_extent_map\" with 3.2 GiB.",
                "who fills the slab cache \"btrfs_extent_map\" (slabtop)",
            ],
            &["of it: ;"],
        ),
        ("x86-5.8-bpf-percpu", 0, &["1.7 GiB that the report counts nowhere"], &["RAWv6", "slab cache that"]),
        ("arm-4.14-fork-order1", 0, &["what was free lay close to what"], &["lay below"]),
        (
            "made-up-whole-report",
            0,
            &[
                "lay below what the kernel keeps",
                "Who held most: process 4242 (\"hog\") 2.7 GiB (937.5 MiB of it in swap), of 1.9 GiB of memory and 976.0 MiB \
                 of swap in all.",
            ],
            &[],
        ),
        (
            "x86-6.16-victim-lines",
            0,
            &["it held 285.4 MiB", "as far as the table of processes goes: process 737"],
            &["held most"],
        ),
        (
            "x86-4.9-dom0-order3",
            0,
            &["as far as the table of processes goes", "the report's call trace, not seen here"],
            &["held most", "above"],
        ),
        (
            "x86-4.18-memcg-group-callers",
            0,
            &[
                "the memory cgroup \"/test1\"",
                "It used 50.0 MiB of 50.0 MiB",
                "raise memory.max of the cgroup",
            ],
            &["limit_in_bytes"],
        ),
        (
            "x86-4.2-sysrq-among-others",
            2,
            &["Somebody asked the kernel to kill", "this report does not show it"],
            &["show no shortage"],
        ),
    ];

    #[test]
    fn what_is_told_of_a_report_contradicts_none_of_its_numbers() {
        for (name, number, told, not_told) in WORDS {
            let diagnosis = diagnose(&parse(&read(name))[*number]);
            let text = format!("{} {}", diagnosis.summary, diagnosis.advice.join(" "));
            let mut rest = text.as_str();
            for part in *told {
                let at = rest.find(part);
                assert!(at.is_some(), "{name}: {part} in {text}");
                rest = &rest[at.unwrap_or_default()..];
            }
            for part in *not_told {
                assert!(!text.contains(part), "{name}: {part} in {text}");
            }
        }
    }

    #[test]
    fn advice_fits_in_three_pieces_and_the_summary_in_plain_words() {
        for (name, ..) in CASES {
            for report in parse(&read(name)) {
                let diagnosis = diagnose(&report);
                assert!((1..=3).contains(&diagnosis.advice.len()), "{name}: {:?}", diagnosis.advice);
                assert!(
                    !diagnosis.summary.is_empty() && !diagnosis.summary.chars().any(char::is_control),
                    "{name}"
                );
            }
        }
    }

    /// How fast is printed, not asserted: `cargo test --release -p plimsoll-report --test oom_reports -- --nocapture`.
    #[test]
    fn ten_megabytes_of_reports_and_of_other_lines_are_read() {
        let whole = String::from_utf8(read("made-up-whole-report")).unwrap();
        let report: String =
            whole.lines().map(|line| format!("Jun 14 04:09:56 box kernel: [    5.1] {line}\n")).collect();
        let other = "Jun 14 04:09:57 box kernel: [    5.1] usb 1-1: new high-speed USB device number 7 using xhci_hcd\n";
        for (name, unit, of_reports) in [("reports", report.as_str(), 1), ("other lines", other, 0)] {
            let units = 10_000_000 / unit.len() + 1;
            let log = unit.repeat(units);
            let start = Instant::now();
            let reports = parse(log.as_bytes());
            println!("10 MB of {name}: {} ms", start.elapsed().as_millis());
            assert_eq!(reports.len(), units * of_reports);
        }
    }

    #[test]
    fn the_binder_report_is_told_as_an_expert_told_it() {
        let reports = parse(&read("arm64-5.10-binder-order3-wrapped"));
        let diagnosis = diagnose(&reports[0]);
        for words in [
            "fragmented, not exhausted",
            "order 3",
            "14.7 MiB (15088 kB) in the Normal zone",
            "480.0 KiB of it in pieces of 32.0 KiB (order 3) or more, all of them reserved (H)",
            "binder_alloc_mmap_handler, called by binder_mmap, through kcalloc",
        ] {
            assert!(diagnosis.summary.contains(words), "{words}: {}", diagnosis.summary);
        }
        assert!(diagnosis.advice[0].contains("kvcalloc"), "{:?}", diagnosis.advice);
    }
}
