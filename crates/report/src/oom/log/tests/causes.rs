//! Made-up reports for causes that are rare in public ones: the whole report with some of its numbers changed.

use super::{WHOLE, one};
use crate::oom::{Cause, Diagnosis, Kind, diagnose};
use plimsoll_policy::units::Bytes;

fn judged(changes: &[(&str, &str)]) -> Diagnosis {
    let mut text = WHOLE.to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    diagnose(&one(&text))
}

#[track_caller]
fn says(diagnosis: &Diagnosis, cause: Cause, words: &str) {
    assert_eq!(diagnosis.cause, cause, "{}", diagnosis.summary);
    assert!(diagnosis.summary.contains(words), "{words}: {}", diagnosis.summary);
}

#[test]
fn locked_memory_is_told_from_used_memory() {
    let locked =
        judged(&[("inactive_anon:470120", "inactive_anon:100"), ("unevictable:768", "unevictable:470000")]);
    says(&locked, Cause::Unreclaimable, "1.8 GiB locked or otherwise unevictable");
    assert!(locked.advice[0].contains("ulimit -l"), "{:?}", locked.advice);
    let huge = judged(&[
        ("inactive_anon:470120", "inactive_anon:100"),
        ("hugepages_total=0", "hugepages_total=900"),
    ]);
    says(&huge, Cause::Unreclaimable, "1.8 GiB set aside as huge pages");
    assert!(huge.advice[0].contains("vm.nr_hugepages"), "{:?}", huge.advice);
}

#[test]
fn the_kernels_own_memory_is_told_part_by_part() {
    let anon = ("inactive_anon:470120", "inactive_anon:20000");
    let tables = judged(&[anon, ("pagetables:2210", "pagetables:440000")]);
    says(&tables, Cause::KernelMemory, "1.7 GiB in page tables");
    assert!(tables.advice[0].contains("huge pages"), "{:?}", tables.advice);
    let stacks = judged(&[anon, ("kernel_stack:2112kB", "kernel_stack:1700000kB")]);
    says(&stacks, Cause::KernelMemory, "1.6 GiB in kernel stacks");
    assert!(stacks.advice[0].contains("threads"), "{:?}", stacks.advice);
    let slab = judged(&[anon, ("slab_unreclaimable:9300", "slab_unreclaimable:430000")]);
    says(&slab, Cause::KernelMemory, "1.6 GiB in slab caches");
    let hidden = judged(&[("inactive_anon:470120", "inactive_anon:20000")]);
    says(&hidden, Cause::KernelMemory, "counts nowhere");
}

#[test]
fn a_driver_that_may_only_use_a_low_zone_is_named_as_such() {
    let head = "0x140dca(GFP_HIGHUSER_MOVABLE|__GFP_ZERO|__GFP_COMP)";
    let dma = judged(&[
        (head, "0xcc1(GFP_KERNEL|GFP_DMA)"),
        ("DMA free:7680kB", "DMA free:300kB"),
        ("DMA32 free:44800kB", "DMA32 free:900000kB"),
        ("inactive_anon:470120", "inactive_anon:256000"),
        ("free:13120", "free:225075"),
    ]);
    says(&dma, Cause::LowZone, "Only the DMA zone");
    assert!(dma.advice[0].contains("driver"), "{:?}", dma.advice);
}

#[test]
fn nodes_with_nothing_but_movable_memory_serve_no_kernel() {
    let head = "0x140dca(GFP_HIGHUSER_MOVABLE|__GFP_ZERO|__GFP_COMP)";
    let text = WHOLE.replace(head, "0xcc0(GFP_KERNEL)").replace("Node 0 DMA32", "Node 0 Movable");
    let without_dma: String =
        text.lines().filter(|line| !line.starts_with("Node 0 DMA")).map(|line| format!("{line}\n")).collect();
    let text =
        without_dma.replace("free:44800kB", "free:900000kB").replace("NONE,nodemask", "CPUSET,nodemask");
    let diagnosis = diagnose(&one(&text));
    says(&diagnosis, Cause::LowZone, "None of the zones");
    assert!(diagnosis.advice[0].contains("cpuset.mems"), "{:?}", diagnosis.advice);
}

#[test]
fn a_cgroup_at_its_limit_says_nothing_of_the_machine() {
    let memcg = judged(&[
        ("CONSTRAINT_NONE,nodemask=(null)", "CONSTRAINT_MEMCG,nodemask=(null)"),
        ("global_oom,", "oom_memcg=/kubepods.slice/pod7,"),
        (
            "Mem-Info:\n",
            "memory: usage 512000kB, limit 512000kB, failcnt 12\nswap: usage 0kB, limit 0kB, failcnt 0\n\
          Memory cgroup stats for /kubepods.slice/pod7:\nanon 200000000\nfile 310000000\nshmem 300000000\nkernel 9000000\n",
        ),
    ]);
    says(&memcg, Cause::MemcgLimit, "\"/kubepods.slice/pod7\", which had reached its limit");
    assert!(memcg.advice[0].contains("resources.limits.memory"), "{:?}", memcg.advice);
    assert!(memcg.advice[1].contains("tmpfs"), "{:?}", memcg.advice);
}

/// The node's total for pods: the pod, of class besteffort, has no limit to raise.
#[test]
fn a_limit_above_the_pod_is_not_the_pods() {
    let pod =
        "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod00a1.slice/cri-containerd-77.scope";
    let text = [
        ("CONSTRAINT_NONE,nodemask=(null)", "CONSTRAINT_MEMCG,nodemask=(null)"),
        ("global_oom,task_memcg=", &format!("oom_memcg=/kubepods.slice,task_memcg={pod},was=")),
        ("Mem-Info:\n", "memory: usage 7812000kB, limit 7812000kB, failcnt 12\n"),
    ];
    let diagnosis = judged(&text);
    says(
        &diagnosis,
        Cause::MemcgLimit,
        "\"/kubepods.slice\", which had reached its limit. It is above the cgroup",
    );
    assert!(
        diagnosis.advice.iter().all(|advice| !advice.contains("raise the pod")),
        "{:?}",
        diagnosis.advice
    );
    assert!(diagnosis.advice[1].contains("kubeReserved"), "{:?}", diagnosis.advice);
}

#[test]
fn swap_that_is_being_turned_off_is_not_no_swap() {
    let total = ("Total swap = 1048572kB", "Total swap = 0kB");
    let text = WHOLE.replace(total.0, total.1);
    let free = text.lines().find(|line| line.contains("Free swap")).unwrap();
    let stamp = free.split("Free swap").next().unwrap();
    let diagnosis = diagnose(&one(&text.replace(free, &format!("{stamp}Free swap  = -245804kB"))));
    says(
        &diagnosis,
        Cause::Exhausted,
        "Swap was being turned off, and what it held had to come back into memory: 240.0 MiB of it.",
    );
    assert!(!diagnosis.summary.contains("There was no swap"), "{}", diagnosis.summary);
    assert!(diagnosis.advice.iter().any(|advice| advice.contains("swapoff")), "{:?}", diagnosis.advice);
}

#[test]
fn anonymous_memory_is_named_before_what_is_less() {
    let held = |text: &str| {
        let story = diagnose(&one(text)).story;
        story.into_iter().find(|part| part.starts_with("Who held")).unwrap_or_default()
    };
    assert!(!held(WHOLE).contains("in anonymous memory"), "its largest process stands for it");
    let table = |line: &&str| !line.starts_with('[') || !line.contains("hog");
    let without: String = WHOLE.lines().filter(table).map(|line| format!("{line}\n")).collect();
    let held = held(&without);
    assert!(held.contains(": processes together, in anonymous memory, 1.8 GiB, of 1.9 GiB"), "{held}");
}

#[test]
fn fragmentation_is_the_cause_only_where_pages_were_there() {
    let head = ("order=0", "order=3");
    let blocks = "250*32kB (UE) 100*64kB (UE) 50*128kB (UE) 25*256kB (UME) 25*512kB (UM)";
    let fine = ("DMA32 free:44800kB", "DMA32 free:144800kB");
    let gone = (blocks, "0*32kB 0*64kB 0*128kB 0*256kB 0*512kB");
    says(&judged(&[head, fine, gone]), Cause::Fragmented, "not exhausted");
    says(&judged(&[head, gone]), Cause::Exhausted, "exhausted");
    says(&judged(&[head, fine]), Cause::Unknown, "enough free memory");
}

#[test]
fn a_request_by_sysrq_is_no_shortage() {
    let asked = judged(&[("order=0", "order=-1"), ("DMA32 free:44800kB", "DMA32 free:144800kB")]);
    says(&asked, Cause::Unknown, "SysRq");
    let short = judged(&[("order=0", "order=-1")]);
    says(&short, Cause::Exhausted, "SysRq");
}

#[test]
fn nodes_that_were_allowed_are_the_ones_that_count() {
    let other = WHOLE.replace("Node 0", "Node 1").replace("free:44800kB", "free:900000kB");
    let start = other.find("Node 1 DMA32 free").unwrap();
    let zone: String = other[start..].lines().take(2).map(|line| format!("{line}\n")).collect();
    let text = WHOLE.replace("CONSTRAINT_NONE,nodemask=(null)", "CONSTRAINT_MEMORY_POLICY,nodemask=0");
    let text = text.replace("inactive_anon:470120", "inactive_anon:700000");
    let at = text.find("Node 0 DMA: ").unwrap();
    let text = format!("{}{zone}{}", &text[..at], &text[at..]);
    let report = one(&text);
    assert_eq!((report.kind, report.nodes_of_policy.as_deref()), (Kind::Mempolicy, Some(&[0][..])));
    says(&diagnose(&report), Cause::Exhausted, "NUMA policy");
    let spread = one(&text.replace("MEMORY_POLICY,nodemask=0", "NONE,nodemask=(null)"));
    says(&diagnose(&spread), Cause::Unknown, "enough free memory");
}

#[test]
fn the_page_size_is_the_reports_own() {
    let mut text = WHOLE.to_owned();
    for size in [4096, 2048, 1024, 512, 256, 128, 64, 32, 16, 8, 4] {
        text = text.replace(&format!("*{size}kB"), &format!("*{}kB", size * 16));
    }
    let report = one(&text);
    assert_eq!(report.page_bytes(), Bytes(65536));
    assert_eq!(report.tasks[1].rss, Some(Bytes(468_000 * 65536)));
    assert_eq!(report.counters.free, Some(Bytes(13120 * 65536)));
}
