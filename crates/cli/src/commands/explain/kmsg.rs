//! The kernel's own buffer.

use super::cannot_read;
use crate::exit::Failure;
use plimsoll_report::oom::log::Parser;
use rustix::{
    fs::{Mode, OFlags, open},
    io::Errno,
};
use std::{
    fs::File,
    io::{self, Read},
};

/// Each read gives one record; 8 KiB is what the kernel makes of the longest (`CONSOLE_EXT_LOG_MAX`,
/// `PRINTK_MESSAGE_MAX`).
const RECORD_BYTES_MAX: usize = 16 << 10;

/// Reads what is there, and waits for nothing.
pub(super) fn read(parser: &mut Parser) -> Result<(), Failure> {
    let kmsg = open("/dev/kmsg", OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
    let mut kmsg = kmsg.map(File::from).map_err(|error| refused(&error.into()))?;
    let mut record = vec![0; RECORD_BYTES_MAX];
    loop {
        match kmsg.read(&mut record) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                let record = record.get(..length).unwrap_or_default();
                // What follows the first line are the record's own properties.
                parser.line(record.split(|byte| *byte == b'\n').next().unwrap_or_default());
            }
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::AGAIN) => return Ok(()),
                // The record was overwritten meanwhile; the next one is the oldest there is.
                Some(Errno::PIPE | Errno::INTR) => {}
                _ => return Err(refused(&error)),
            },
        }
    }
}

fn refused(error: &io::Error) -> Failure {
    let instead = "run as root (kernel.dmesg_restrict), or give a file";
    cannot_read("the kernel's buffer, /dev/kmsg", error, instead)
}
