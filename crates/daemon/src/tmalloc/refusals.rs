//! Which refusals are recorded: the first of a user at once, then one a second at most, with how many it stands for.

use plimsoll_policy::{
    account::Counted,
    units::{Nanos, PageSize, Pages, Pid, Uid},
};

/// From one that is recorded to the next.
const PAUSE: Nanos = Nanos(1_000_000_000);

/// What refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// The coordinator, as libtmalloc asked.
    Grants,
    /// The programs of strict jobs, as the kernel asked: more memory, ...
    Strict,
    /// ... or a child.
    StrictFork,
}

/// One refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Whose request.
    pub(crate) user: Uid,
    /// Whose line it does not fit below.
    pub(crate) whose: Counted,
    /// Who asked.
    pub(crate) pid: Pid,
    /// The real uid of that process.
    pub(crate) uid: Uid,
    /// When it started, in nanoseconds since boot.
    pub(crate) start_ns: u64,
    /// What was asked for.
    pub(crate) requested: Pages,
    /// What was used and reserved.
    pub(crate) usage: Pages,
    /// The line.
    pub(crate) hard: Pages,
    /// How far grants may go.
    pub(crate) line: Pages,
    /// How many before it were not recorded: of the same user, whichever line they did not fit below.
    pub(crate) suppressed: u64,
    pub(crate) by: By,
}

impl Refused {
    /// Its numbers, what was used, asked for and allowed: `4086+11>4096 KiB`, in MiB where all three are whole ones.
    pub(crate) fn numbers(&self, page_size: PageSize) -> String {
        let bytes = [self.usage, self.requested, self.line].map(|pages| page_size.to_bytes(pages).0);
        let whole = bytes.iter().all(|bytes| bytes.trailing_zeros() >= 20);
        let (shift, unit) = if whole { (20_u32, "MiB") } else { (10, "KiB") };
        let [usage, requested, line] = bytes.map(|bytes| bytes >> shift);
        let fork = if self.by == By::StrictFork { " by a fork" } else { "" };
        let numbers = format!("{usage}+{requested}>{line} {unit}{fork}");
        if self.suppressed == 0 {
            return numbers;
        }
        format!("{numbers}, and {} more refused since the last one recorded", self.suppressed)
    }
}

/// The pace of one user.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace {
    recorded: Option<Nanos>,
    /// The last one that was not recorded; those before it are in its count.
    held: Option<Refused>,
}

impl Pace {
    /// Takes a refusal in; it comes back when it is to be recorded now.
    pub(crate) fn take(&mut self, refused: Refused, now: Nanos) -> Option<Refused> {
        let before = self.held.take().map_or(0, |held| held.suppressed.saturating_add(1));
        let refused = Refused { suppressed: refused.suppressed.saturating_add(before), ..refused };
        if self.free_at().is_some_and(|free| now < free) {
            self.held = Some(refused);
            return None;
        }
        self.recorded = Some(now);
        Some(refused)
    }

    /// The one that was held back, when its time has come.
    pub(crate) fn due(&mut self, now: Nanos) -> Option<Refused> {
        if self.free_at().is_some_and(|free| now < free) {
            return None;
        }
        self.recorded = None;
        let held = self.held.take()?;
        self.recorded = Some(now);
        Some(held)
    }

    /// There was no room for one: it is told with the next, or a second later.
    pub(super) fn put_back(&mut self, refused: Refused, now: Nanos) {
        self.recorded = Some(now);
        let held = self.held.take();
        let more = held.map_or(0, |held| held.suppressed.saturating_add(1));
        self.held = Some(Refused { suppressed: refused.suppressed.saturating_add(more), ..refused });
    }

    /// When there is something to do; `None`: nothing is held, and a refusal is recorded at once.
    pub(crate) fn free_at(&self) -> Option<Nanos> {
        self.recorded.map(|recorded| recorded.saturating_add(PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    fn page_size() -> PageSize {
        PageSize::from_bytes(PAGE).unwrap()
    }

    fn refused(usage: u64, requested: u64, line: u64) -> Refused {
        Refused {
            user: Uid(1000),
            whose: Counted::User(Uid(1000)),
            pid: Pid(7),
            uid: Uid(1000),
            start_ns: 1,
            requested: Pages(requested),
            usage: Pages(usage),
            hard: Pages(line),
            line: Pages(line),
            suppressed: 0,
            by: By::Grants,
        }
    }

    #[test]
    fn numbers_have_the_form_of_an_addition_that_does_not_fit() {
        assert_eq!(refused(1021, 4, 1024).numbers(page_size()), "4084+16>4096 KiB");
        assert_eq!(refused(256, 512, 512).numbers(page_size()), "1+2>2 MiB");
        let fork = Refused { by: By::StrictFork, ..refused(256, 512, 512) };
        assert_eq!(fork.numbers(page_size()), "1+2>2 MiB by a fork");
        let many = Refused { suppressed: 12, ..refused(256, 512, 512) };
        assert_eq!(many.numbers(page_size()), "1+2>2 MiB, and 12 more refused since the last one recorded");
    }

    #[test]
    fn every_refusal_is_recorded_or_counted_once() {
        let mut pace = Pace::default();
        let (mut recorded, mut stood_for) = (0_u64, 0_u64);
        let mut tell = |told: Option<Refused>| {
            if let Some(told) = told {
                recorded += 1;
                stood_for += 1 + told.suppressed;
            }
        };
        for step in 0..10_000_u64 {
            tell(pace.take(refused(1, 1, 1), Nanos(step * 1_000_000)));
        }
        tell(pace.due(Nanos(9_999_000_000)));
        tell(pace.due(Nanos(20_000_000_000)));
        tell(pace.due(Nanos(21_000_000_000)));
        assert_eq!((recorded, stood_for), (11, 10_000));
        assert_eq!(pace.free_at(), None);
    }

    #[test]
    fn after_a_quiet_second_nothing_is_left_to_do() {
        let mut pace = Pace::default();
        assert!(pace.take(refused(1, 1, 1), Nanos(0)).is_some());
        assert_eq!(pace.due(Nanos(1_000_000_000)), None);
        assert_eq!(pace.free_at(), None);
    }

    #[test]
    fn one_that_found_no_room_is_counted_with_the_next() {
        let mut pace = Pace::default();
        let told = pace.take(refused(1, 1, 1), Nanos(0)).unwrap();
        pace.put_back(told, Nanos(0));
        assert_eq!(pace.take(refused(2, 1, 1), Nanos(1)), None);
        let later = pace.due(Nanos(1_000_000_000)).unwrap();
        assert_eq!((later.usage, later.suppressed), (Pages(2), 1));
    }
}
