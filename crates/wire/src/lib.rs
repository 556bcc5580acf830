//! Checked decoding of what the kernel says: everything that comes in from outside is untrusted bytes until it has
//! been through here.

pub mod abi;
pub mod record;
pub mod text;
