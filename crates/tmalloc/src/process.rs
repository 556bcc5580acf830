//! What the kernel tells of this process.

/// How many threads it has; `None`: that cannot be read. Allocates nothing.
pub(crate) fn threads() -> Option<u32> {
    let mut text = [0_u8; 1024];
    // SAFETY: the name ends with a zero byte.
    let file = unsafe { libc::open(c"/proc/self/stat".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return None;
    }
    // SAFETY: there is room for as much as is said; the descriptor is ours, and used no more.
    let length = unsafe {
        let length = libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
        length
    };
    let text = text.get(..usize::try_from(length).ok()?)?;
    // The program's name, in parentheses, can hold anything. The number of threads is the 18th word after it (proc(5)).
    let name_end = text.iter().rposition(|byte| *byte == b')')?;
    let words = core::str::from_utf8(text.get(name_end + 1..)?).ok()?;
    words.split_ascii_whitespace().nth(17)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    #[test]
    fn threads_are_counted() {
        // Other tests run beside this one, in threads of their own.
        let (end, ended) = channel::<()>();
        let thread = std::thread::spawn(move || ended.recv());
        assert!(super::threads().is_some_and(|count| count >= 2));
        drop(end);
        assert!(thread.join().unwrap().is_err());
    }
}
