//! The fake kernel, as Rust calls it. One for each thread: its state is that of its own copy of the shared object.

use crate::cpus;
use libloading::{Library, Symbol};
use plimsoll_sys::bpf::{BpfError, Call, Table};
use plimsoll_wire::abi;
use std::{
    any::Any,
    cell::{Cell, RefCell},
    ffi::{CString, c_void},
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    rc::Rc,
};

/// What the fake kernel asks of whoever drives it.
pub trait Driver {
    /// Other CPUs may run here, while a program is between two reads or writes of what is shared. Called where no coroutine
    /// of [`crate::Cpus`] runs; one that does is stopped instead.
    fn yields(&self);
    /// A program signals the process of a task; 0, or a negative errno.
    fn signal(&self, task: u64, signal: u32) -> i32;
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    fn now(&self) -> u64;
}

/// `struct fake_settings`: see native/fake.h.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[expect(missing_docs, reason = "native/fake.h says what each is")]
pub struct Settings {
    pub cpus: u32,
    pub batch: u32,
    pub charged_members: u32,
    pub loose_pages_per_mm: u32,
    pub has_task_from_pid: u32,
    pub has_send_signal_task: u32,
    pub mms: u32,
    pub families: u32,
    pub accounts: u32,
    pub ring_bytes: u32,
    pub allowance_pages: i64,
}

/// `struct fake_task`: see native/fake.h.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
#[expect(missing_docs, reason = "native/fake.h says what each is")]
pub struct Task {
    pub mm: u64,
    pub start_ns: u64,
    pub pid: u32,
    pub uid: u32,
    pub flags: u32,
    pub leader: u32,
    pub threads: u32,
    pub signal_flags: u32,
    pub unhashed: u32,
}

/// `struct fake_hooks`.
#[repr(C)]
struct Hooks {
    yields: extern "C" fn(),
    signal: extern "C" fn(u64, u32) -> i32,
    now: extern "C" fn() -> u64,
}

thread_local! {
    static DRIVER: RefCell<Option<Rc<dyn Driver>>> = const { RefCell::new(None) };
    /// From a driver that was called by C, through which no panic may pass.
    static PANIC: RefCell<Option<Box<dyn Any + Send>>> = const { RefCell::new(None) };
    /// Where this thread pretends to be: a CPU, and the task that it runs.
    static HERE: Cell<(u32, u64)> = const { Cell::new((0, 0)) };
}

fn drive<T: Default>(does: impl FnOnce(&dyn Driver) -> T) -> T {
    let driver = DRIVER.with_borrow(Clone::clone);
    catch_unwind(AssertUnwindSafe(|| driver.map(|driver| does(&*driver)).unwrap_or_default())).unwrap_or_else(
        |cause| {
            PANIC.with_borrow_mut(|panic| panic.get_or_insert(cause).is::<()>());
            T::default()
        },
    )
}

extern "C" fn yields() {
    if !cpus::stop_here() {
        drive(|driver| driver.yields());
    }
}

extern "C" fn signal(task: u64, signal: u32) -> i32 {
    drive(|driver| driver.signal(task, signal))
}

extern "C" fn now() -> u64 {
    drive(|driver| driver.now())
}

/// A panic of a driver goes on once C has returned.
fn go_on<T>(result: T) -> T {
    match PANIC.with_borrow_mut(Option::take) {
        Some(cause) => resume_unwind(cause),
        None => result,
    }
}

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            /// # Safety
            /// The library must be the one that native/ is compiled to, and outlive these.
            unsafe fn find(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: of the type that native/fake.c gives it.
                    $($name: *unsafe { library.get(concat!("fake_", stringify!($name)).as_bytes()) }?,)*
                })
            }
        }
    };
}

functions! {
    load: fn(*const Settings, *const Hooks);
    enter: fn(u32, u64);
    yield_after: fn(u32);
    mm: fn(u32) -> u64;
    mm_new: fn(u64, u64, u32);
    mm_executed: fn(u64);
    mm_used_by: fn(u64, u32, u64);
    count: fn(u64, u32, u32, i64);
    task: fn(u32) -> u64;
    task_set: fn(u64, *const Task);
    next_record: fn(*mut u64, *mut c_void, u32) -> u32;
    give_back: fn(u64);
    given_back: fn() -> u64;
    walk_one: fn(u64, *mut c_void, u32) -> u32;
    map_value_bytes: fn(*mut c_void) -> u32;
    map_entries: fn(*mut c_void) -> u32;
    map_read: fn(*mut c_void, *const c_void, *mut c_void) -> i32;
    map_write: fn(*mut c_void, *const c_void, *const c_void) -> i32;
    map_delete: fn(*mut c_void, *const c_void) -> i32;
    map_list: fn(*mut c_void, *mut c_void, *mut c_void, *mut u64, u32) -> u32;
    map_fail_updates: fn(*mut c_void, u32);
}

/// A kernel, and the limits programs loaded into it.
pub struct FakeKernel {
    functions: Functions,
    library: Library,
}

impl fmt::Debug for FakeKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeKernel").finish_non_exhaustive()
    }
}

impl FakeKernel {
    /// The programs of this tree, compiled.
    pub fn of_this_tree() -> &'static Path {
        Path::new(env!("PLIMSOLL_NATIVE"))
    }

    /// A kernel of this thread's own, with what [`crate::compile`] made of the programs.
    ///
    /// # Errors
    /// When the shared object cannot be copied or opened.
    pub fn open(programs: &Path) -> io::Result<Rc<Self>> {
        // Opened twice under one name it would be the same.
        let copy = tempfile::Builder::new().suffix(".so").tempfile()?;
        std::fs::copy(programs, copy.path())?;
        // SAFETY: it has no constructors.
        let library = unsafe { Library::new(copy.path()) }.map_err(io::Error::other)?;
        // SAFETY: it is kept with them.
        let functions = unsafe { Functions::find(&library) }.map_err(io::Error::other)?;
        Ok(Rc::new(Self { functions, library }))
    }

    /// What it asks is asked of `driver` from here on, on this thread.
    pub fn driven_by(&self, driver: Option<Rc<dyn Driver>>) {
        DRIVER.set(driver);
    }

    /// Loads the programs anew: with empty maps.
    pub fn load(&self, settings: &Settings) {
        let hooks = Hooks { yields, signal, now };
        // SAFETY: it copies both.
        unsafe { (self.functions.load)(settings, &raw const hooks) }
    }

    /// From here on this CPU runs, and this task on it.
    pub fn enter(&self, cpu: u32, task: u64) {
        HERE.set((cpu, task));
        // SAFETY: two numbers are noted.
        unsafe { (self.functions.enter)(cpu, task) }
    }

    /// Where [`FakeKernel::enter`] entered last.
    pub fn here(&self) -> (u32, u64) {
        HERE.get()
    }

    /// After so many reads and writes of what is shared others may run; 0: they may not.
    pub fn yield_after(&self, times: u32) {
        // SAFETY: a number is noted.
        unsafe { (self.functions.yield_after)(times) }
    }

    /// The address space at a place.
    pub fn mm(&self, place: u32) -> u64 {
        // SAFETY: it checks the number.
        unsafe { (self.functions.mm)(place) }
    }

    /// A new address space where [`FakeKernel::mm`] says: with no pages, used by nobody.
    pub fn mm_new(&self, mm: u64, serial: u64, is_protected: bool) {
        // SAFETY: `mm` is one of its own.
        unsafe { (self.functions.mm_new)(mm, serial, u32::from(is_protected)) }
    }

    /// A program was loaded into it: at the end of an exec, and at a fork.
    pub fn mm_executed(&self, mm: u64) {
        // SAFETY: `mm` is one of its own.
        unsafe { (self.functions.mm_executed)(mm) }
    }

    /// So many use it, and this task (0: none) is its owner.
    pub fn mm_used_by(&self, mm: u64, users: u32, owner: u64) {
        // SAFETY: both are of its own.
        unsafe { (self.functions.mm_used_by)(mm, users, owner) }
    }

    /// A CPU changes one of its counters; no event is told.
    pub fn count(&self, mm: u64, cpu: u32, member: u32, delta: i64) {
        // SAFETY: `mm` is one of its own; the CPU is one of those that it was loaded for.
        unsafe { (self.functions.count)(mm, cpu, member, delta) }
        go_on(());
    }

    /// The task at a place.
    pub fn task(&self, place: u32) -> u64 {
        // SAFETY: it checks the number.
        unsafe { (self.functions.task)(place) }
    }

    /// What a task is from here on.
    pub fn task_set(&self, task: u64, is: &Task) {
        // SAFETY: `task` is one of its own.
        unsafe { (self.functions.task_set)(task, is) }
    }

    fn symbol<T: Copy>(&self, name: &str) -> io::Result<T> {
        let bytes = CString::new(name).map_err(io::Error::other)?;
        // SAFETY: whoever asks knows what it is.
        let symbol: Symbol<'_, T> =
            unsafe { self.library.get(bytes.as_bytes_with_nul()) }.map_err(io::Error::other)?;
        Ok(*symbol)
    }

    /// Something happens in the kernel: the program that is attached there runs, with these arguments. Returns what it does.
    ///
    /// # Panics
    /// When there is no such program.
    pub fn event(&self, program: &str, arguments: &[u64]) -> i32 {
        let found = self.symbol::<unsafe extern "C" fn(*const u64) -> i32>(program);
        let program = found.unwrap_or_else(|error| panic!("{program}: {error}"));
        // SAFETY: a tracepoint's program takes as many numbers as the tracepoint has, which whoever calls knows.
        go_on(unsafe { program(arguments.as_ptr()) })
    }

    /// A program that user space calls.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn program(self: &Rc<Self>, name: &'static str) -> Result<Program, BpfError> {
        let function = self.symbol(name).map_err(|source| BpfError::Run { program: name, source })?;
        Ok(Program { name, function, _kernel: Rc::clone(self) })
    }

    /// A map of the programs.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn map(self: &Rc<Self>, name: &'static str) -> Result<Map, BpfError> {
        let variable = self.symbol(name).map_err(|source| BpfError::Map { map: name, source })?;
        Ok(Map { name, variable, kernel: Rc::clone(self) })
    }

    /// What the programs have counted.
    ///
    /// # Panics
    /// When they count nothing.
    pub fn counters(&self) -> abi::plimsoll_counters {
        let found = self.symbol::<*const abi::plimsoll_counters>("counters");
        let counters = found.unwrap_or_else(|error| panic!("counters: {error}"));
        // SAFETY: it is of this type; this thread is the only one of this kernel.
        unsafe { counters.read_unaligned() }
    }

    /// All entries of a map whose keys are as long as `K` and whose values begin with a `V`, and what follows that.
    fn entries<K: Copy, V: Copy>(self: &Rc<Self>, name: &'static str) -> Vec<(K, V, Vec<u8>, u64)> {
        let map = self.map(name).unwrap_or_else(|error| panic!("{error}"));
        let (count, bytes) = (map.entries_max() as usize, map.value_bytes());
        let (mut keys, mut values) = (vec![0; count * size_of::<K>()], vec![0; count * bytes]);
        let mut serials = vec![0; count];
        let count = map.list(&mut keys, &mut values, &mut serials);
        let all = keys.chunks_exact(size_of::<K>()).zip(values.chunks_exact(bytes)).zip(serials).take(count);
        all.map(|((key, value), serial)| {
            // SAFETY: as long as a `K`, which is plain C data.
            let key = unsafe { key.as_ptr().cast::<K>().read_unaligned() };
            assert!(size_of::<V>() <= bytes, "values of map {name}");
            // SAFETY: at least as long as a `V`, which is plain C data.
            let known = unsafe { value.as_ptr().cast::<V>().read_unaligned() };
            (key, known, value.get(size_of::<V>()..).unwrap_or_default().to_vec(), serial)
        })
        .collect()
    }

    /// The address spaces that the programs track.
    pub fn spaces(self: &Rc<Self>) -> Vec<Space> {
        let remainder = |bytes: &[u8; 4]| i64::from(i32::from_ne_bytes(*bytes));
        let all = self.entries::<u64, abi::plimsoll_mm>("mms").into_iter();
        all.map(|(key, value, rest, serial)| {
            let remainders = rest.as_chunks::<4>().0.iter().map(remainder).sum();
            Space { key, value, remainders, serial }
        })
        .collect()
    }

    /// The families.
    pub fn families(self: &Rc<Self>) -> Vec<(u64, abi::plimsoll_family)> {
        self.entries("families").into_iter().map(|(id, family, ..)| (id, family)).collect()
    }

    /// Whose accounts are, and their numbers.
    pub fn numbers(self: &Rc<Self>) -> Vec<(u64, u32)> {
        self.entries("account_numbers").into_iter().map(|(key, index, ..)| (key, index)).collect()
    }

    /// The account of this number, with all its usage: what lies in its tree, too.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn account(self: &Rc<Self>, index: u32) -> abi::plimsoll_account {
        let mut value = [0; size_of::<abi::plimsoll_account>()];
        let map = self.map("accounts").unwrap_or_else(|error| panic!("{error}"));
        assert!(map.read(&index.to_ne_bytes(), &mut value).unwrap_or(false), "account {index}");
        // SAFETY: as long as one, and plain C data.
        let mut account = unsafe { value.as_ptr().cast::<abi::plimsoll_account>().read_unaligned() };
        account.usage_pages += self.kept_of(index).iter().sum::<i64>();
        account
    }

    /// What lies in the leaves and branches of an account's tree: see bpf/limits/tree.h.
    ///
    /// # Panics
    /// When there are not so many accounts.
    pub fn kept_of(self: &Rc<Self>, index: u32) -> Vec<i64> {
        let map = |name| self.map(name).unwrap_or_else(|error| panic!("{error}"));
        let (tree, accounts) = (map("tree"), map("accounts").entries_max());
        (index..tree.entries_max())
            .step_by(accounts as usize)
            .map(|node| {
                let mut kept = [0; 8];
                assert!(tree.read(&node.to_ne_bytes(), &mut kept).unwrap_or(false), "account {index}");
                i64::from_ne_bytes(kept)
            })
            .collect()
    }

    /// The record at a reader's place, which moves on to the next one. `into`: as long as records are. False: there is none.
    pub fn next_record(&self, at: &mut u64, into: &mut [u8]) -> bool {
        let room = u32::try_from(into.len()).unwrap_or(u32::MAX);
        // SAFETY: no more than `room` bytes are written.
        unsafe { (self.functions.next_record)(at, into.as_mut_ptr().cast(), room) != 0 }
    }

    /// Whether there is a record at a reader's place; `bytes`: as long as records are.
    pub fn has_record(&self, at: u64, bytes: usize) -> bool {
        let mut at = at;
        let room = u32::try_from(bytes).unwrap_or(u32::MAX);
        // SAFETY: into nothing nothing is written.
        unsafe { (self.functions.next_record)(&raw mut at, std::ptr::null_mut(), room) != 0 }
    }

    /// The records before a reader's place are given back.
    pub fn give_back(&self, at: u64) {
        // SAFETY: a number is noted.
        unsafe { (self.functions.give_back)(at) }
    }

    /// Where whoever reads records next begins.
    pub fn given_back(&self) -> u64 {
        // SAFETY: a number is read.
        unsafe { (self.functions.given_back)() }
    }

    /// Shows one task to the program that walks all; returns how many bytes it wrote.
    pub fn walk_one(&self, task: u64, into: &mut [u8]) -> usize {
        let room = u32::try_from(into.len()).unwrap_or(u32::MAX);
        // SAFETY: no more than `room` bytes are written.
        let written = unsafe { (self.functions.walk_one)(task, into.as_mut_ptr().cast(), room) };
        go_on(written as usize)
    }
}

/// An address space as the programs keep it.
#[derive(Debug, Clone, Copy)]
pub struct Space {
    /// Its key.
    pub key: u64,
    /// What they know of it.
    pub value: abi::plimsoll_mm,
    /// What they have seen of the CPUs' own counts, all together.
    pub remainders: i64,
    /// For which address space it was entered: see [`FakeKernel::mm_new`].
    pub serial: u64,
}

/// A program that user space calls.
pub struct Program {
    name: &'static str,
    function: unsafe extern "C" fn(*mut c_void) -> i32,
    _kernel: Rc<FakeKernel>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Call for Program {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run<T: Copy>(&self, context: &mut T) -> Result<u32, BpfError> {
        // SAFETY: the program of this name takes a `T`, says who calls.
        Ok(go_on(unsafe { (self.function)((&raw mut *context).cast()) }).cast_unsigned())
    }

    fn run_bare(&self) -> Result<u32, BpfError> {
        // SAFETY: the program of this name takes nothing.
        Ok(go_on(unsafe { (self.function)(std::ptr::null_mut()) }).cast_unsigned())
    }
}

/// A map as user space sees it.
pub struct Map {
    name: &'static str,
    variable: *mut c_void,
    kernel: Rc<FakeKernel>,
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Map {
    /// So many more of its updates find no memory.
    pub fn fail_updates(&self, times: u32) {
        // SAFETY: `variable` is the map's.
        unsafe { (self.kernel.functions.map_fail_updates)(self.variable, times) }
    }

    /// All entries, as many as fit; which address space ([`FakeKernel::mm_new`]) each was made for, of those that are.
    pub fn list(&self, keys: &mut [u8], values: &mut [u8], serials: &mut [u64]) -> usize {
        let room = u32::try_from(values.len() / self.value_bytes()).unwrap_or(u32::MAX);
        let room =
            if serials.is_empty() { room } else { room.min(u32::try_from(serials.len()).unwrap_or(room)) };
        let serials = if serials.is_empty() { std::ptr::null_mut() } else { serials.as_mut_ptr() };
        let (keys, values) = (keys.as_mut_ptr().cast(), values.as_mut_ptr().cast());
        // SAFETY: no more than `room` entries are written; keys are no longer than values.
        unsafe { (self.kernel.functions.map_list)(self.variable, keys, values, serials, room) as usize }
    }
}

impl Table for Map {
    fn name(&self) -> &'static str {
        self.name
    }

    fn value_bytes(&self) -> usize {
        // SAFETY: `variable` is the map's.
        unsafe { (self.kernel.functions.map_value_bytes)(self.variable) as usize }
    }

    fn entries_max(&self) -> u32 {
        // SAFETY: `variable` is the map's.
        unsafe { (self.kernel.functions.map_entries)(self.variable) }
    }

    fn memory_bytes(&self) -> Option<u64> {
        None
    }

    fn read(&self, key: &[u8], value: &mut [u8]) -> Result<bool, BpfError> {
        assert_eq!(value.len(), self.value_bytes(), "value of map {}", self.name);
        let (key, value) = (key.as_ptr().cast(), value.as_mut_ptr().cast());
        // SAFETY: the value is as long as the map's, checked above; keys are as long as whoever reads this map has them.
        Ok(go_on(unsafe { (self.kernel.functions.map_read)(self.variable, key, value) }) == 0)
    }

    fn write(&self, key: &[u8], value: &[u8]) -> Result<(), BpfError> {
        let (key, value) = (key.as_ptr().cast(), value.as_ptr().cast());
        // SAFETY: as in `read`.
        match go_on(unsafe { (self.kernel.functions.map_write)(self.variable, key, value) }) {
            0 => Ok(()),
            errno => Err(BpfError::Map {
                map: self.name,
                source: io::Error::from_raw_os_error(errno.saturating_neg()),
            }),
        }
    }

    fn delete(&self, key: &[u8]) -> Result<(), BpfError> {
        // SAFETY: as in `read`.
        match go_on(unsafe { (self.kernel.functions.map_delete)(self.variable, key.as_ptr().cast()) }) {
            0 => Ok(()),
            errno => Err(BpfError::Map {
                map: self.name,
                source: io::Error::from_raw_os_error(errno.saturating_neg()),
            }),
        }
    }

    fn read_batch(
        &self,
        _: Option<u64>,
        keys: &mut [u8],
        values: &mut [u8],
    ) -> Result<(usize, Option<u64>), BpfError> {
        Ok((self.list(keys, values, &mut []), None))
    }
}
