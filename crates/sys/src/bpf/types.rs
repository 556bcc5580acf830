//! What the kernel's own description of its types (BTF) says that the programs depend on.

use super::error::BpfError;
use crate::probe::{Answer, function_hooks_of};
use libbpf_rs::btf::{
    Btf, BtfKind, ReferencesType as _, TypeId,
    types::{Array, Composite, FuncProto, Ptr, Typedef},
};

/// How the kernel counts a process's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counters {
    /// A shared count and a remainder on each CPU (`percpu_counter`, since Linux 6.2).
    PerCpu,
    /// A shared count, and what each thread keeps to itself for up to 64 faults (`SPLIT_RSS_COUNTING`, until 6.1).
    PerTask,
}

/// Where the kernel tells its types.
pub(crate) const BTF_FILE: &str = "/sys/kernel/btf/vmlinux";

/// What the running kernel lets the programs do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a thing that a kernel may have")]
pub(crate) struct Features {
    /// Threads keep page counts to themselves: [`Counters::PerTask`].
    pub(crate) task_caches: bool,
    /// They may signal a process other than the one that runs (`bpf_send_signal_task`, since Linux 6.13).
    pub(crate) signals_others: bool,
    /// They may ask for a process by its number (`bpf_task_from_pid`, since Linux 6.2).
    pub(crate) finds_tasks: bool,
    /// They may refuse a fork (`fmod_ret/security_task_alloc`), and have to: whoever is born could not be signalled.
    pub(crate) refuses_forks: bool,
    /// They may see who is handed a file (`fentry/security_file_receive`), and who becomes another user
    /// (`fentry/commit_creds`).
    pub(crate) tells_received: bool,
}

impl Features {
    /// Reads the kernel's types, which are megabytes: once for a load.
    pub(crate) fn read() -> Result<Self, BpfError> {
        Self::of(&kernel_types()?)
    }

    pub(crate) fn of(types: &Btf<'static>) -> Result<Self, BpfError> {
        let has = |names: &[&str]| names.iter().all(|name| find(types, BtfKind::Func, name).is_some());
        let hooks = |name| function_hooks_of(types, name) == Answer::Present;
        let signals_others = has(&["bpf_send_signal_task", "bpf_task_from_pid"]);
        Ok(Self {
            task_caches: counters_of(types).map_err(BpfError::Load)? == Counters::PerTask,
            signals_others,
            refuses_forks: !signals_others && hooks("security_task_alloc"),
            tells_received: hooks("security_file_receive") && hooks("commit_creds"),
            finds_tasks: has(&["bpf_task_from_pid", "bpf_task_release"]),
        })
    }
}

/// The kernel's own.
pub(crate) fn kernel_types() -> Result<Btf<'static>, BpfError> {
    Btf::from_vmlinux().map_err(|error| BpfError::Load(format!("{BTF_FILE}: {error}")))
}

/// Whether a tracepoint hands a structure of this name to its programs, as its first argument.
pub(crate) fn hands_over(tracepoint: &str, structure: &str) -> Result<bool, BpfError> {
    let types = kernel_types()?;
    let name = format!("btf_trace_{tracepoint}");
    let prototype = find(&types, BtfKind::Typedef, &name)
        .and_then(|id| types.type_by_id::<Typedef<'_>>(id))
        .and_then(|typedef| typedef.referenced_type().skip_mods_and_typedefs().next_type())
        .ok_or_else(|| BpfError::Load(format!("the kernel has no tracepoint {tracepoint}")))?;
    let prototype =
        FuncProto::try_from(prototype).map_err(|_other| BpfError::Load(format!("{name} is no function")))?;
    // The first is the tracepoint's own: what a program was attached with.
    let handed = prototype.get(1).and_then(|argument| types.type_by_id::<Ptr<'_>>(argument.ty));
    let target = handed.map(|pointer| pointer.referenced_type().skip_mods_and_typedefs());
    Ok(target
        .and_then(|target| target.name().map(|name| name.to_owned()))
        .is_some_and(|name| *name == *structure))
}

/// How the kernel of these types counts pages.
pub(crate) fn counters_of(types: &Btf<'static>) -> Result<Counters, String> {
    let member = find(types, BtfKind::Struct, "mm_struct")
        .and_then(|mm| types.type_by_id::<Composite<'_>>(mm))
        .and_then(|mm| member(types, &mm, "rss_stat", ANONYMOUS_DEPTH_MAX))
        .ok_or("the kernel's mm_struct has no rss_stat")?;
    let element = types.type_by_id::<Array<'_>>(member).and_then(|array| {
        let name = array.contained_type().skip_mods_and_typedefs().name()?.to_str()?;
        Some((name.to_owned(), array.capacity()))
    });
    if element == Some(("percpu_counter".to_owned(), 4)) {
        return Ok(Counters::PerCpu);
    }
    let per_task = types
        .type_by_id::<Composite<'_>>(member)
        .is_some_and(|composite| composite.name().is_some_and(|name| name == "mm_rss_stat"))
        && find(types, BtfKind::Struct, "task_rss_stat").is_some();
    if per_task { Ok(Counters::PerTask) } else { Err("page counters of a kind that is not known".into()) }
}

#[expect(unsafe_code, reason = "libbpf-rs finds types by name alone, and names are shared between kinds")]
/// The type of this kind and name.
pub(crate) fn find(types: &Btf<'static>, kind: BtfKind, name: &str) -> Option<TypeId> {
    use libbpf_rs::AsRawLibbpf as _;
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: the list of types and the name outlive the call.
    let number = unsafe {
        libbpf_rs::libbpf_sys::btf__find_by_name_kind(
            types.as_libbpf_object().as_ptr(),
            name.as_ptr(),
            kind as u32,
        )
    };
    u32::try_from(number).ok().filter(|number| *number > 0).map(TypeId::from)
}

/// How deep members without a name are looked into; the kernel nests two.
const ANONYMOUS_DEPTH_MAX: u32 = 4;

/// The type of a member, also of those in structures without a name.
fn member(types: &Btf<'static>, of: &Composite<'_>, name: &str, depth: u32) -> Option<TypeId> {
    for index in 0..of.len() {
        let one = of.get(index)?;
        let own = one.name.and_then(|name| name.to_str()).unwrap_or_default();
        if own == name {
            return Some(one.ty);
        }
        if own.is_empty()
            && depth > 0
            && let Some(inner) = types.type_by_id::<Composite<'_>>(one.ty)
            && let Some(found) = member(types, &inner, name, depth.saturating_sub(1))
        {
            return Some(found);
        }
    }
    None
}
