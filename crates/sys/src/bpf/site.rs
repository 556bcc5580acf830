//! Where the limits programs and their maps are: in the kernel, reached through their pins, or wherever tests run them.
//! Resolved when the program is compiled: the kill path pays nothing.

use super::error::BpfError;
use std::{fmt::Debug, io};
use zerocopy::{FromBytes, IntoBytes};

/// The place of the limits programs.
pub trait Site: Debug {
    /// What calls one of them.
    type Program: Call;
    /// What reads and writes a map of theirs.
    type Map: Table;
    /// A walk of all tasks: what the programs write at each, whole records at a time, until 0 bytes are read.
    type Walk: io::Read;

    /// The program of this name.
    ///
    /// # Errors
    /// [`BpfError::Pin`] when there is none.
    fn program(&self, name: &'static str) -> Result<Self::Program, BpfError>;

    /// The map of this name.
    ///
    /// # Errors
    /// [`BpfError::Pin`] when there is none.
    fn map(&self, name: &'static str) -> Result<Self::Map, BpfError>;

    /// Begins a walk of all tasks.
    ///
    /// # Errors
    /// [`BpfError::Scan`] when it cannot begin.
    fn walk(&self) -> Result<Self::Walk, BpfError>;
}

/// A program that is called with a C structure, which it reads and fills.
pub trait Call: Debug {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Runs the program on `context` in place; its own return value comes back.
    ///
    /// `T` must be one of the wire structures that the program of this name takes: plain C data.
    ///
    /// # Errors
    /// [`BpfError::Run`] when it cannot be run.
    fn run<T: Copy>(&self, context: &mut T) -> Result<u32, BpfError>;

    /// Runs a program that takes nothing.
    ///
    /// # Errors
    /// [`BpfError::Run`] when it cannot be run.
    fn run_bare(&self) -> Result<u32, BpfError>;

    /// The error that the program reported itself, as a negative errno.
    fn error(&self, result: i32) -> BpfError {
        BpfError::Run { program: self.name(), source: io::Error::from_raw_os_error(result.saturating_neg()) }
    }
}

/// A map as user space sees it.
pub trait Table: Debug {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Bytes of a value.
    fn value_bytes(&self) -> usize;

    /// Its maximum.
    fn entries_max(&self) -> u32;

    /// Bytes of kernel memory it takes; `None` where that is not told.
    fn memory_bytes(&self) -> Option<u64>;

    /// Reads the value of `key`; false when there is none. `value` must be as long as the map's values.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    fn read(&self, key: &[u8], value: &mut [u8]) -> Result<bool, BpfError>;

    /// The value of `key`, where the map's values are such structures.
    ///
    /// # Errors
    /// [`BpfError::Map`], also where they are longer or shorter.
    fn get<T: FromBytes + IntoBytes>(&self, key: &[u8]) -> Result<Option<T>, BpfError> {
        if self.value_bytes() != size_of::<T>() {
            return Err(BpfError::Map { map: self.name(), source: io::ErrorKind::InvalidData.into() });
        }
        let mut value = T::new_zeroed();
        Ok(self.read(key, value.as_mut_bytes())?.then_some(value))
    }

    /// Writes one entry.
    ///
    /// # Errors
    /// [`BpfError::Map`] when there is no room.
    fn write(&self, key: &[u8], value: &[u8]) -> Result<(), BpfError>;

    /// Deletes one entry, which is there.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    fn delete(&self, key: &[u8]) -> Result<(), BpfError>;

    /// Shows every entry to `visit`. Room for one batch must hold the fullest hash bucket.
    ///
    /// # Errors
    /// [`BpfError::Map`]; what `visit` says.
    fn each<const KEY: usize>(
        &self,
        room: (&mut [u8], &mut [u8]),
        visit: impl FnMut(&[u8; KEY], &[u8]) -> Result<(), BpfError>,
    ) -> Result<(), BpfError> {
        in_batches(room, self.value_bytes(), |from, keys, values| self.read_batch(from, keys, values), visit)
    }

    /// Reads up to `keys.len() / key size` entries from where `cursor` stands (`None`: the start). Returns how many
    /// there were and where to go on; no cursor means the end. Entries added or removed meanwhile may be missed or
    /// seen: a snapshot it is not.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    fn read_batch(
        &self,
        cursor: Option<u64>,
        keys: &mut [u8],
        values: &mut [u8],
    ) -> Result<(usize, Option<u64>), BpfError>;
}

/// Asks for one batch after the other, from where the one before ended, and shows every entry.
pub(super) fn in_batches<const KEY: usize>(
    (keys, values): (&mut [u8], &mut [u8]),
    value_bytes: usize,
    mut batch: impl FnMut(Option<u64>, &mut [u8], &mut [u8]) -> Result<(usize, Option<u64>), BpfError>,
    mut visit: impl FnMut(&[u8; KEY], &[u8]) -> Result<(), BpfError>,
) -> Result<(), BpfError> {
    let mut cursor = None;
    loop {
        let (count, next) = batch(cursor, keys, values)?;
        let entries = keys.as_chunks::<KEY>().0.iter().zip(values.chunks_exact(value_bytes));
        entries.take(count).try_for_each(|(key, value)| visit(key, value))?;
        if next.is_none() {
            return Ok(());
        }
        cursor = next;
    }
}
