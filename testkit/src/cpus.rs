//! CPUs: each does one thing, and may be stopped in the middle of it while others go on.

use crate::kernel::FakeKernel;
use corosensei::{Coroutine, CoroutineResult, Yielder, stack::DefaultStack};
use std::{
    cell::{Cell, RefCell},
    fmt,
    rc::Rc,
};

thread_local! {
    /// Of what runs here now.
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(std::ptr::null()) };
}

/// Stops what runs on this CPU, until it is to go on. False: nothing that can be stopped runs here.
pub(crate) fn stop_here() -> bool {
    let yielder = YIELDER.replace(std::ptr::null());
    if yielder.is_null() {
        return false;
    }
    // SAFETY: it is that of the coroutine on whose stack this is, for as long as that one runs.
    unsafe { &*yielder }.suspend(());
    YIELDER.set(yielder);
    true
}

/// Nothing runs here any more that can be stopped; also where it panicked.
struct Left;

impl Drop for Left {
    fn drop(&mut self) {
        YIELDER.set(std::ptr::null());
    }
}

type Stopped = Coroutine<(), (), (), DefaultStack>;

/// The CPUs of a kernel.
pub struct Cpus {
    kernel: Rc<FakeKernel>,
    /// What was stopped on each, and the task that ran.
    stopped: RefCell<Vec<Option<(Stopped, u64)>>>,
    stacks: RefCell<Vec<DefaultStack>>,
}

impl fmt::Debug for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cpus").field(&self.stopped.borrow().len()).finish()
    }
}

impl Cpus {
    /// So many, of which none does anything.
    pub fn new(kernel: Rc<FakeKernel>, count: u32) -> Self {
        let stopped = RefCell::new((0..count).map(|_| None).collect());
        Self { kernel, stopped, stacks: RefCell::default() }
    }

    /// Those that do nothing, or those that were stopped in the middle of something.
    pub fn which(&self, were_stopped: bool) -> Vec<u32> {
        let all = self.stopped.borrow();
        let cpus = all.iter().zip(0..).filter(|(one, _)| one.is_some() == were_stopped);
        cpus.map(|(_, cpu)| cpu).collect()
    }

    /// Whether this one does nothing.
    pub fn is_idle(&self, cpu: u32) -> bool {
        self.stopped.borrow().get(cpu as usize).is_some_and(Option::is_none)
    }

    /// Begins something on a CPU that does nothing, as a task; after so many reads and writes of what is shared it is
    /// stopped, 0: never. Returns whether it came to its end.
    ///
    /// # Panics
    /// As `does` does; and where it finds no memory for a stack.
    pub fn begin(&self, cpu: u32, task: u64, stops_after: u32, does: impl FnOnce() + 'static) -> bool {
        let stack = self.stacks.borrow_mut().pop();
        let stack =
            stack.unwrap_or_else(|| DefaultStack::new(256 << 10).unwrap_or_else(|error| panic!("{error}")));
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            let _left = Left;
            YIELDER.set(yielder);
            does();
        });
        self.run(cpu, coroutine, task, stops_after)
    }

    /// What was stopped on a CPU goes on, as [`Cpus::begin`].
    ///
    /// # Panics
    /// As [`Cpus::begin`].
    pub fn go_on(&self, cpu: u32, stops_after: u32) -> bool {
        let stopped = self.stopped.borrow_mut().get_mut(cpu as usize).and_then(Option::take);
        stopped.is_none_or(|(coroutine, task)| self.run(cpu, coroutine, task, stops_after))
    }

    fn run(&self, cpu: u32, mut coroutine: Stopped, task: u64, stops_after: u32) -> bool {
        let before = self.kernel.here();
        self.kernel.enter(cpu, task);
        self.kernel.yield_after(stops_after);
        let result = coroutine.resume(());
        let (_, task) = self.kernel.here();
        self.kernel.yield_after(0);
        self.kernel.enter(before.0, before.1);
        match result {
            CoroutineResult::Yield(()) => {
                if let Some(place) = self.stopped.borrow_mut().get_mut(cpu as usize) {
                    *place = Some((coroutine, task));
                }
                false
            }
            CoroutineResult::Return(()) => {
                self.stacks.borrow_mut().push(coroutine.into_stack());
                true
            }
        }
    }
}

impl Drop for Cpus {
    fn drop(&mut self) {
        // What is still in the middle of something has frames of C on its stack: it is left as it is.
        self.stopped.get_mut().drain(..).for_each(std::mem::forget);
    }
}
