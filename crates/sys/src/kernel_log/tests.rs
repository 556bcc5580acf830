use super::*;
use std::{fs::OpenOptions, io::Write as _};

#[test]
fn the_log_is_read_on_from_its_end_and_again_from_its_beginning() {
    let mut log = match KernelLog::open() {
        Ok(log) => log,
        Err(error) => return crate::process::testing::skip(format_args!("{KMSG_PATH}: {error}")),
    };
    let mut writer = match OpenOptions::new().write(true).open(KMSG_PATH) {
        Ok(file) => file,
        Err(error) => return crate::process::testing::skip(format_args!("writing {KMSG_PATH}: {error}")),
    };
    let mark = format!("<7>plimsoll test {}", std::process::id());
    // Without a line end it would wait for what continues it, unseen.
    writer.write_all(format!("{mark}\n").as_bytes()).unwrap();
    let seen = |log: &mut KernelLog| {
        let mut seen = 0;
        let counts = log
            .read(|record| {
                if record.text.ends_with(mark.as_bytes().strip_prefix(b"<7>").unwrap()) {
                    assert!(!record.by_kernel, "what a program writes has another facility");
                    seen += 1;
                }
            })
            .unwrap();
        assert!(counts.records >= seen);
        seen
    };
    assert_eq!(seen(&mut log), 1);
    assert_eq!(seen(&mut log), 0);
    log.rewind().unwrap();
    assert_eq!(seen(&mut log), 1);
}

#[test]
fn a_log_that_is_not_there_is_an_error_and_no_panic() {
    assert_eq!(KernelLog::open_at(Path::new("/nonexistent")).unwrap_err().kind(), io::ErrorKind::NotFound);
}
