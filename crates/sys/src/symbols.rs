//! Names of the kernel's functions, from `/proc/kallsyms`.

use blazesym::{
    MaybeDefault,
    symbolize::{Input, Symbolized, Symbolizer, source::Kernel},
};
use std::{
    fs::File,
    io::{self, BufRead as _, BufReader},
    path::PathBuf,
};

/// Where the kernel shows its symbols; the addresses only to whoever has `CAP_SYSLOG` (`kernel.kptr_restrict`).
const KALLSYMS: &str = "/proc/kallsyms";

/// Whether the kernel shows this process the addresses of its functions.
///
/// # Errors
/// What the kernel said of `/proc/kallsyms`.
pub fn shows_kernel_functions() -> io::Result<bool> {
    for line in BufReader::new(File::open(KALLSYMS)?).lines() {
        let line = line?;
        let mut words = line.split(' ');
        // Places within the memory of a CPU come first, and the first of those is at 0.
        if let (Some(address), Some("t" | "T")) = (words.next(), words.next()) {
            return Ok(address.bytes().any(|digit| digit != b'0'));
        }
    }
    Ok(false)
}

/// Names the functions that these addresses are in, by address; `None` for one that no symbol is known of. Heavy: reads all
/// symbols of the kernel and its modules.
///
/// # Errors
/// What the kernel said of `/proc/kallsyms`, or that it could not be understood.
pub fn kernel_functions(addresses: &[u64]) -> io::Result<Vec<Option<String>>> {
    // Its own search would take whatever lies in /boot.
    let kernel = Kernel {
        kallsyms: MaybeDefault::Some(PathBuf::from(KALLSYMS)),
        vmlinux: MaybeDefault::None,
        ..Kernel::default()
    };
    let symbols = Symbolizer::new();
    let named = symbols.symbolize(&kernel.into(), Input::AbsAddr(addresses));
    let named = named.map_err(|error| io::Error::other(format!("{KALLSYMS}: {error:#}")))?;
    let name = |found: Symbolized<'_>| found.into_sym().map(|symbol| symbol.name.into_owned());
    Ok(named.into_iter().map(name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_function_of_the_kernel_has_its_name_and_nonsense_has_none() {
        let text = fs::read_to_string(KALLSYMS).unwrap();
        let address = |name: &str| {
            let line = text.lines().find(|line| line.ends_with(&format!(" T {name}"))).unwrap();
            u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
        };
        let start = address("wake_up_process");
        assert_eq!(shows_kernel_functions().unwrap(), start != 0);
        if start == 0 {
            return crate::process::testing::skip("kernel.kptr_restrict hides the kernel's addresses");
        }
        let names = kernel_functions(&[start + 4, 1]).unwrap();
        assert_eq!(names, [Some("wake_up_process".to_owned()), None]);
    }
}
