//! Small programs given to the kernel, to see what it takes.

use super::{
    Answer,
    program::{self, Hook},
};
use crate::bpf::types::{BTF_FILE, find};
use libbpf_rs::{
    btf::{Btf, BtfKind},
    libbpf_sys,
};
use std::io;

const NEEDS_ROOT: &str = "loading a program needs root (CAP_BPF and CAP_PERFMON)";

/// Whether programs can be loaded for a kernel function of this name: a kernel may have been built without trampolines, or
/// refuse them.
#[must_use]
pub fn function_hooks(function: &str) -> Answer {
    match Btf::from_vmlinux() {
        Ok(types) => Trial::new(&types).typed(BtfKind::Func, function, |target| {
            Trial::new(&types).loads(Hook::Function(target), &program::empty())
        }),
        Err(error) => Answer::Unknown(format!("{BTF_FILE}: {error}")),
    }
}

/// Programs given to the kernel, with its types at hand.
pub(super) struct Trial<'a> {
    pub(super) types: Option<&'a Btf<'static>>,
    /// Whether it takes any program of ours at all.
    pub(super) may_load: Answer,
}

pub(super) fn may_load() -> Answer {
    match program::load(Hook::Raw, &program::empty()) {
        Ok(_loaded) => Answer::Present,
        Err(error) => refused(&error),
    }
}

/// Missing rights say nothing about the kernel, unless root itself lacks them: then something forbids BPF here.
fn refused(error: &io::Error) -> Answer {
    let permission = matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES));
    match (permission, rustix::process::geteuid().is_root()) {
        (true, false) => Answer::Unknown(NEEDS_ROOT.to_owned()),
        (true, true) => Answer::Absent(format!(
            "the kernel refuses it to root ({error}): a container, a security module or kernel lockdown forbids it"
        )),
        (false, _) => Answer::Absent(format!("the kernel refuses it: {error}")),
    }
}

impl<'a> Trial<'a> {
    pub(super) fn new(types: &'a Btf<'static>) -> Self {
        Self { types: Some(types), may_load: may_load() }
    }

    /// The number of a type, by kind and name.
    pub(super) fn number(&self, kind: BtfKind, name: &str) -> Option<u32> {
        let types = self.types?;
        find(types, kind, name).map(u32::from)
    }

    pub(super) fn loads(&self, hook: Hook, instructions: &[libbpf_sys::bpf_insn]) -> Answer {
        match (&self.may_load, program::load(hook, instructions)) {
            (Answer::Present, Ok(_loaded)) => Answer::Present,
            (Answer::Present, Err(error)) => refused(&error),
            (cannot, _) => cannot.clone(),
        }
    }

    pub(super) fn asked(&self, ask: impl Fn() -> io::Result<bool>) -> Answer {
        if self.may_load != Answer::Present {
            return self.may_load.clone();
        }
        match ask() {
            Ok(present) => Answer::of(present, "the kernel does not know it"),
            Err(error) => refused(&error),
        }
    }

    pub(super) fn helper(&self, helper: libbpf_sys::bpf_func_id) -> Answer {
        self.asked(|| program::has_helper(helper))
    }

    /// A type or function that is not in the kernel's list is absent, whoever asks.
    pub(super) fn typed(&self, kind: BtfKind, name: &str, then: impl Fn(u32) -> Answer) -> Answer {
        self.number(kind, name).map_or_else(|| Answer::Absent(format!("the kernel has no '{name}'")), then)
    }

    pub(super) fn tracepoint(&self, name: &str) -> Answer {
        self.typed(BtfKind::Typedef, &format!("btf_trace_{name}"), |target| {
            self.loads(Hook::Tracepoint(target), &program::empty())
        })
    }

    pub(super) fn attaches(&self, name: &str) -> Answer {
        if self.may_load != Answer::Present {
            return self.may_load.clone();
        }
        self.typed(BtfKind::Typedef, &format!("btf_trace_{name}"), |target| {
            let attached = program::load(Hook::Tracepoint(target), &program::empty())
                .and_then(|one| program::attach(&one));
            attached.map_or_else(|error| refused(&error), |_detached_here| Answer::Present)
        })
    }

    /// Called from the hook that the programs call it from.
    pub(super) fn kfunc(
        &self,
        name: &str,
        hook: &str,
        made: impl Fn(u32) -> Option<Vec<libbpf_sys::bpf_insn>>,
    ) -> Answer {
        self.typed(BtfKind::Func, name, |kfunc| {
            self.typed(BtfKind::Typedef, &format!("btf_trace_{hook}"), |target| match made(kfunc) {
                Some(instructions) => self.loads(Hook::Tracepoint(target), &instructions),
                None => Answer::Absent("the kernel lacks the type that it is used with".to_owned()),
            })
        })
    }

    pub(super) fn rdonly_cast(&self) -> Answer {
        self.kfunc("bpf_rdonly_cast", "rss_stat", |kfunc| {
            let cell = self.number(BtfKind::Struct, "refcount_struct")?;
            Some(program::casts(kfunc, cell))
        })
    }

    pub(super) fn send_signal_task(&self) -> Answer {
        self.kfunc("bpf_send_signal_task", "sched_process_exec", |kfunc| Some(program::signals_task(kfunc)))
    }

    pub(super) fn task_from_pid(&self) -> Answer {
        self.kfunc("bpf_task_from_pid", "sched_process_exec", |kfunc| {
            Some(program::finds_task(kfunc, self.number(BtfKind::Func, "bpf_task_release")?))
        })
    }

    pub(super) fn task_iterator(&self) -> Answer {
        self.typed(BtfKind::Func, "bpf_iter_task", |target| {
            self.loads(Hook::Iterator(target), &program::empty())
        })
    }
}
