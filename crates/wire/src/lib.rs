//! Checked decoding of what the kernel says: everything that comes in from outside is untrusted bytes until it has
//! been through here.

pub mod abi;
pub mod marked;
pub mod record;
pub mod task;
pub mod text;
pub mod tmalloc;
pub mod workingset;
