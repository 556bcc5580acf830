use super::*;
use std::{fs, path::PathBuf};
use tempfile::TempDir;

/// A kernel's settings in a folder, with a state folder beside.
struct Kernel {
    folder: TempDir,
}

impl Kernel {
    fn new(enabled: &str, min_ttl_ms: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["lru_gen", "tree/user.slice", "tree/system.slice", "state"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let kernel = Self { folder };
        kernel.set("lru_gen/enabled", enabled);
        kernel.set("lru_gen/min_ttl_ms", min_ttl_ms);
        kernel.set("tree/user.slice/memory.swap.max", "7");
        kernel.set("tree/system.slice/memory.swap.max", "8");
        kernel.set("swappiness", "60");
        // A plain file: what is written over it is as long.
        kernel.set("compaction_proactiveness", "020");
        kernel
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn set(&self, name: &str, value: &str) {
        fs::write(self.path(name), value).unwrap();
    }

    fn get(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap().trim().to_owned()
    }

    fn ttl(&self) -> u64 {
        self.get("lru_gen/min_ttl_ms").parse().unwrap()
    }

    fn swap(&self) -> [String; 2] {
        ["user", "system"].map(|slice| self.get(&format!("tree/{slice}.slice/memory.swap.max")))
    }

    fn knobs(&self) -> Knobs {
        let lru_gen = LruGen::at(&self.path("lru_gen"));
        let swap = SwapKnobs::at(Some(&self.path("tree")), &self.path("swappiness"));
        let proactiveness = self.path("compaction_proactiveness");
        Knobs::at(&self.path("state"), Places { lru_gen, swap, proactiveness }, Journal::mute())
    }

    fn is_recorded(&self) -> bool {
        self.path("state").join(record::NAME).exists()
    }
}

#[test]
fn what_was_used_last_is_kept_for_a_second_and_the_setting_put_back() {
    let kernel = Kernel::new("0x0007", "0");
    let mut knobs = kernel.knobs();
    knobs.keep_last_used();
    assert_eq!((kernel.ttl(), knobs.min_ttl_ms()), (1000, Some(1000)));
    knobs.put_all_back();
    assert_eq!((kernel.ttl(), knobs.min_ttl_ms(), kernel.is_recorded()), (0, None, false));
}

#[test]
fn a_time_that_somebody_has_set_stays_before_and_after() {
    let kernel = Kernel::new("0x0007", "300");
    let mut knobs = kernel.knobs();
    knobs.keep_last_used();
    assert_eq!((kernel.ttl(), knobs.min_ttl_ms()), (300, None));
    let kernel = Kernel::new("0x0007", "0");
    let mut knobs = kernel.knobs();
    knobs.keep_last_used();
    kernel.set("lru_gen/min_ttl_ms", "0");
    knobs.keep_last_used();
    assert_eq!(kernel.ttl(), 0, "who sets it to 0 meanwhile means it");
    kernel.set("lru_gen/min_ttl_ms", "5000");
    knobs.put_all_back();
    assert_eq!(kernel.ttl(), 5000);
}

#[test]
fn it_is_set_where_it_is_used_also_when_that_is_later() {
    let kernel = Kernel::new("0x0000", "0");
    let mut knobs = kernel.knobs();
    knobs.keep_last_used();
    assert_eq!(kernel.ttl(), 0);
    kernel.set("lru_gen/enabled", "0x0007");
    knobs.keep_last_used();
    assert_eq!(kernel.ttl(), 1000);
    // Swap goes, and comes again.
    knobs.forget_last_used();
    assert_eq!((kernel.ttl(), knobs.min_ttl_ms()), (0, None));
    knobs.keep_last_used();
    assert_eq!(kernel.ttl(), 1000);
}

#[test]
fn who_has_it_set_while_files_are_locked_is_told_once() {
    let kernel = Kernel::new("0x0007", "300");
    let (journal, said) = Journal::gather();
    let mut knobs = Knobs { notices: Notices::new(journal), ..kernel.knobs() };
    knobs.warn_of_last_used();
    knobs.warn_of_last_used();
    kernel.set("lru_gen/min_ttl_ms", "0");
    knobs.warn_of_last_used();
    kernel.set("lru_gen/min_ttl_ms", "500");
    kernel.set("lru_gen/enabled", "0x0000");
    knobs.warn_of_last_used();
    let said: Vec<String> = said.try_iter().collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("min_ttl_ms of the multi-generational LRU is 300"), "{said:?}");
}

#[test]
fn swapping_is_held_back_in_every_slice_also_in_one_that_comes_later() {
    let kernel = Kernel::new("0x0007", "0");
    let mut knobs = kernel.knobs();
    knobs.hold_swap();
    assert_eq!((kernel.swap(), knobs.means()), (["0", "0"].map(str::to_owned), Some(SwapHold::SwapMax)));
    fs::create_dir(kernel.path("tree/late.slice")).unwrap();
    kernel.set("tree/late.slice/memory.swap.max", "9");
    knobs.hold_swap();
    assert_eq!(kernel.get("tree/late.slice/memory.swap.max"), "0");
    assert_eq!(kernel.get("swappiness"), "60");
    knobs.keep_last_used();
    knobs.let_swap();
    assert_eq!((kernel.swap(), knobs.means()), (["7", "8"].map(str::to_owned), None));
    assert_eq!(kernel.get("tree/late.slice/memory.swap.max"), "9");
    assert_eq!(kernel.ttl(), 1000, "that is another matter");
}

#[test]
fn what_cannot_be_written_down_is_not_set_and_not_said_to_hold() {
    let kernel = Kernel::new("0x0007", "0");
    let mut knobs = kernel.knobs();
    // Nobody can make a file of it.
    fs::create_dir(kernel.path("state").join(record::NAME)).unwrap();
    knobs.hold_swap();
    assert_eq!((kernel.swap(), knobs.means()), (["7", "8"].map(str::to_owned), None));
    fs::remove_dir(kernel.path("state").join(record::NAME)).unwrap();
    knobs.hold_swap();
    assert_eq!((kernel.swap(), knobs.means()), (["0", "0"].map(str::to_owned), Some(SwapHold::SwapMax)));
}

#[test]
fn a_slice_that_was_given_another_bound_meanwhile_gets_that_back() {
    let kernel = Kernel::new("0x0007", "0");
    let mut knobs = kernel.knobs();
    knobs.hold_swap();
    kernel.set("tree/user.slice/memory.swap.max", "5");
    knobs.hold_swap();
    assert_eq!(kernel.swap(), ["0", "0"]);
    knobs.let_swap();
    assert_eq!(kernel.swap(), ["5", "8"]);
}

#[test]
fn the_next_daemon_puts_back_what_a_killed_one_left() {
    let kernel = Kernel::new("0x0007", "0");
    let mut killed = kernel.knobs();
    killed.keep_last_used();
    killed.hold_swap();
    drop(killed);
    assert!(kernel.is_recorded());
    let mut next = kernel.knobs();
    next.put_all_back();
    assert_eq!((kernel.ttl(), kernel.swap()), (0, ["7", "8"].map(str::to_owned)));
    assert!(!kernel.is_recorded());
}

#[test]
fn nothing_is_changed_that_could_not_be_written_down() {
    let kernel = Kernel::new("0x0007", "0");
    fs::remove_dir(kernel.path("state")).unwrap();
    let mut knobs = kernel.knobs();
    knobs.keep_last_used();
    knobs.hold_swap();
    assert_eq!((kernel.ttl(), kernel.swap()), (0, ["7", "8"].map(str::to_owned)));
    assert_eq!(knobs.min_ttl_ms(), None);
}

#[test]
fn a_record_of_another_boot_means_nothing_and_a_damaged_one_is_used_as_far_as_it_goes() {
    let kernel = Kernel::new("0x0007", "0");
    let mut knobs = kernel.knobs();
    knobs.keep_last_used();
    let path = kernel.path("state").join(record::NAME);
    let good = fs::read(&path).unwrap();
    let text = String::from_utf8(good.clone()).unwrap();
    let boot_id = text.lines().next().unwrap().rsplit(' ').next().unwrap().to_owned();
    fs::write(&path, text.replace(&boot_id, "another")).unwrap();
    assert_eq!(kernel.knobs().min_ttl_ms(), None);
    fs::write(&path, [&good, b"no setting\n".as_slice()].concat()).unwrap();
    let (record, read) = Record::load(&kernel.path("state"));
    assert_eq!(record.undos().len(), 1);
    assert!(read.unwrap_err().to_string().contains("no setting"));
}

#[test]
fn compaction_begins_and_ends_apart_from_protection_and_what_was_set_comes_back() {
    let kernel = Kernel::new("0x0007", "0");
    let set = || kernel.get("compaction_proactiveness");
    let mut knobs = kernel.knobs();
    knobs.hold_swap();
    knobs.compact().unwrap();
    knobs.let_swap();
    knobs.end_protection();
    assert_eq!((set().as_str(), kernel.is_recorded()), ("100", true));
    knobs.stop_compacting();
    assert_eq!((set().as_str(), kernel.is_recorded()), ("020", false));
    knobs.compact().unwrap();
    knobs.go_on_compacting();
    assert_eq!(set(), "100");
    kernel.set("compaction_proactiveness", "005");
    knobs.go_on_compacting();
    knobs.stop_compacting();
    assert_eq!((set().as_str(), kernel.is_recorded()), ("005", false), "somebody else's");
    knobs.compact().unwrap();
    drop(knobs);
    kernel.knobs().put_all_back();
    assert_eq!(set(), "005");
    fs::remove_file(kernel.path("compaction_proactiveness")).unwrap();
    kernel.knobs().compact().unwrap_err();
}
