//! What tests run the guard on: the limits programs compiled for this machine, on a kernel made of memory, with as many
//! CPUs as wanted, of which any may stop between two reads and writes of what is shared.
//!
//! What it does not show is in `native/fake.h`.

#![expect(unsafe_code, reason = "C is called, and calls back")]
#![expect(
    clippy::panic,
    reason = "for tests only: what is asked for and not there is a mistake of the test's"
)]

mod compile;
mod cpus;
mod kernel;

pub use compile::compile;
pub use cpus::Cpus;
pub use kernel::{Driver, FakeKernel, Map, Program, Settings, Space, Task};
