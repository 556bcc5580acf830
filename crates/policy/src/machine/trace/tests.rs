use super::{Begin, Decided, Line, Measured, Name, Recorded, Replay, TraceFault, VERSION};
use crate::{
    machine::{
        MachineAction, MachineConfig, MachineReading, MachineState, Permille, Shortage, Thresholds, decide,
        select,
    },
    reading::Reading,
    reason::Reason,
    selection::{
        Candidate, DECISIVE_MAX, Protection, Standing, decisive, select as select_victims, tests::candidate,
    },
    units::{Bytes, Nanos, PageSize, Pages, Pid},
    victim::{Signal, SignalFault, SignalOutcome, VictimId},
};
use alloc::{borrow::Cow, vec, vec::Vec};
use proptest::{prop_assert, prop_assert_eq, proptest};

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;

fn reading(available_mib: u64) -> MachineReading {
    let known = |mib: u64| Reading::Known(Bytes(mib * MIB));
    MachineReading {
        mem_available: known(available_mib),
        anon: known(10_000 - available_mib),
        swap_total: known(0),
        ..MachineReading::default()
    }
}

fn begin(config: Option<&MachineConfig>, state: Option<&MachineState>, at: u64) -> Line<'static> {
    Line::Begin(Begin {
        version: VERSION,
        at: Nanos(at),
        time: None,
        mem_total: None,
        page_size: 4096,
        cpus: 4,
        config: config.copied().map(Cow::Owned),
        state: state.cloned().map(Cow::Owned),
    })
}

fn look(ms: u64, available_mib: u64) -> Line<'static> {
    Line::Look { at: Nanos(ms * MS), reading: reading(available_mib) }
}

fn list(pids: &[u32]) -> Line<'static> {
    Line::List(pids.iter().map(|pid| candidate(*pid, 1000 * u64::from(*pid))).collect())
}

fn id(pid: u32) -> VictimId {
    candidate(pid, 1).id()
}

fn replayed(lines: Vec<Line<'static>>, asked: Option<MachineConfig>) -> Replay {
    let mut replay = Replay::new(asked);
    lines.into_iter().for_each(|line| replay.take(line).unwrap());
    replay.finish();
    replay
}

/// What was to be sent to whom, and what the trace has.
fn deeds(replay: &Replay) -> Vec<(Option<Signal>, Option<u32>, Recorded)> {
    let of = |decided: Decided| (decided.signal, decided.victim.map(|victim| victim.pid.0));
    replay
        .told()
        .0
        .iter()
        .map(|told| {
            let (signal, pid) = told.decided.map(of).unwrap_or_default();
            (signal, pid, told.recorded)
        })
        .collect()
}

fn at_once() -> MachineConfig {
    MachineConfig { spike: Nanos(0), notice: None, ..MachineConfig::default() }
}

/// A guard that is recorded line by line.
struct Recorder {
    config: MachineConfig,
    state: MachineState,
    lines: Vec<Line<'static>>,
}

impl Recorder {
    fn new(config: MachineConfig) -> Self {
        let state = MachineState::default();
        let lines = vec![begin(Some(&config), Some(&state), 0)];
        Self { config, state, lines }
    }

    fn learn(&mut self, line: Line<'static>) {
        self.lines.push(line.clone());
        self.state.learn(&line, &self.config);
    }

    /// Looks, and does what is decided: `taken` is what becomes of the signal.
    fn look(&mut self, at: u64, reading: MachineReading, people: &[Candidate], taken: u8) {
        let at = Nanos(at);
        self.lines.push(Line::Look { at, reading });
        let (state, action, _) = decide(&reading, &self.config, core::mem::take(&mut self.state), at);
        self.state = state;
        if taken == 9 {
            // As where the ring's other half is begun just then.
            self.lines.push(begin(Some(&self.config), Some(&self.state), at.0));
        }
        let (victim, signal, reason) = match action {
            MachineAction::Select(shortage) => {
                if taken == 0 {
                    self.lines.push(Line::Waited);
                    return;
                }
                let (victim, reason) = self.select(&shortage, people);
                let Some(victim) = victim else {
                    self.lines.push(Line::Decided(Decided { signal: None, victim, reason }));
                    self.learn(Line::Hold { at, signal: shortage.signal });
                    return;
                };
                (victim, shortage.signal, reason)
            }
            MachineAction::Escalate { victim, reason } => (victim, Signal::Kill, reason),
            MachineAction::Rest | MachineAction::Notice { .. } => return,
            MachineAction::Reclaim { .. } | MachineAction::Report(_) => return,
        };
        self.lines.push(Line::Decided(Decided { signal: Some(signal), victim: Some(victim), reason }));
        let outcome = match taken {
            1 => SignalOutcome::Failed(SignalFault::NotPermitted),
            2 => SignalOutcome::Vanished,
            _ => SignalOutcome::Sent(signal),
        };
        self.learn(Line::Outcome { at, victim, outcome });
        if taken >= 7 {
            self.learn(Line::Outcome { at: Nanos(at.0 + MS), victim, outcome: SignalOutcome::Freed });
        }
    }

    fn select(&mut self, shortage: &Shortage, people: &[Candidate]) -> (Option<VictimId>, Reason) {
        let page_size = PageSize::from_bytes(4096).unwrap();
        let decision = select(people, shortage, &self.state, &self.config, page_size);
        let found = decision.victims.iter().chain(&decision.peers).copied();
        let list = decisive(people, found, |victim| self.state.skipped(victim));
        self.lines.push(Line::List(list.iter().copied().collect()));
        (decision.victims.first().map(Candidate::id), decision.reason)
    }
}

proptest! {
    #[test]
    fn whatever_a_guard_saw_its_trace_replays_to_what_it_did(
        steps in proptest::collection::vec((0..3000_u64, 0..2000_u64, 0..10_u8, 0..6_u8), 1..200),
        pages in proptest::collection::vec(0..4000_u64, 1..60),
        from in 0..200_usize,
    ) {
        let people: Vec<Candidate> = (2..).zip(&pages).map(|(pid, pages)| Candidate {
            mm: u64::from(pid / 3) << 40,
            standing: if pid % 7 == 0 { Standing::Protected(Protection::Unit) } else { Standing::Free },
            ..candidate(pid, *pages)
        }).collect();
        let config = MachineConfig { notice: None, ..MachineConfig::default() };
        let mut guard = Recorder::new(config);
        let mut at = 0;
        for (place, (ms, available_mib, taken, measured)) in steps.into_iter().enumerate() {
            at += ms * MS;
            if measured == 0 {
                guard.learn(Line::Measured(Measured::Select(Nanos(ms * MS))));
            }
            if place == from {
                // From there on alone, as where the beginning has been given up.
                guard.lines = vec![begin(Some(&guard.config), Some(&guard.state), at)];
            } else if place % 40 == 39 {
                guard.lines.push(begin(Some(&guard.config), Some(&guard.state), at));
            }
            guard.look(at, reading(available_mib), &people, taken);
        }
        let decided = guard.lines.iter().filter(|line| matches!(line, Line::Decided(_))).count();
        let text: Vec<_> = guard.lines.iter().map(|line| serde_json::to_string(line).unwrap()).collect();
        let read = text.iter().map(|line| serde_json::from_str::<Line<'static>>(line).unwrap()).collect::<Vec<_>>();
        prop_assert_eq!(&read, &guard.lines);
        let replay = replayed(read, None);
        prop_assert!(replay.is_exact());
        let same = replay.told().0.iter().filter(|told| told.recorded == Recorded::Same && told.decided.is_some());
        prop_assert_eq!(same.count(), decided);
    }

    #[test]
    fn a_few_of_many_decide_as_all(
        people in proptest::collection::vec((0..50_u64, 0..12_u64, 0..4_u8), 0..80),
        skipped in 0..20_u32,
    ) {
        let people: Vec<Candidate> = (2..).zip(people).map(|(pid, (pages, mm, kind))| Candidate {
            mm: mm << 33,
            standing: match kind {
                0 => Standing::Protected(Protection::Unit),
                1 => Standing::Dying,
                _ => Standing::Free,
            },
            ..candidate(pid, pages)
        }).collect();
        let skip = |victim: VictimId| victim.pid.0 % 20 < skipped / 4;
        let all = select_victims(&people, skip);
        let few = decisive(&people, all.victims.iter().chain(&all.peers).copied(), skip);
        prop_assert!(few.len() <= DECISIVE_MAX);
        let again = select_victims(&few, skip);
        let ids = |list: &[Candidate]| list.iter().map(Candidate::id).collect::<Vec<_>>();
        prop_assert_eq!(ids(&again.victims), ids(&all.victims));
    }
}

#[test]
fn another_configuration_kills_sooner_and_what_the_victim_had_is_there_then() {
    let lines = || {
        let falls = (0..40).flat_map(|step| [list(&[2, 3]), look(step * 100, 1500 - step * 20)]);
        let mut lines = vec![begin(Some(&at_once()), None, 0)];
        lines.extend(falls);
        lines
    };
    // 10 % of 10,000 MiB is reached after 25 steps; the record has nothing of it.
    let own = replayed(lines(), None);
    assert_eq!(deeds(&own), [(Some(Signal::Term), Some(3), Recorded::Nothing)]);
    assert_eq!(own.told().0[0].at, Nanos(2500 * MS));
    let both = |permille| Thresholds { memory: Permille(permille), swap: Permille(permille) };
    let sooner = MachineConfig { term: both(140), kill: both(140), ..at_once() };
    let other = replayed(lines(), Some(sooner));
    let told = other.told().0;
    assert_eq!((told[0].at, told[0].decided.unwrap().signal), (Nanos(500 * MS), Some(Signal::Kill)));
    // 3000 pages came back, which is not enough for long.
    assert_eq!(told[1].reading.mem_available, Reading::Known(Bytes(1380 * MIB + 3000 * 4096)));
    assert_eq!(told[1].decided.unwrap().victim, Some(id(2)));
    // Nobody is left, which is decided once in ten seconds.
    assert_eq!((told.len(), told[2].decided.unwrap().reason), (3, Reason::MachineOnlyProtectedLeft));
    assert!(!told[0].supposed && told[1].supposed);
}

#[test]
fn what_was_done_there_and_is_not_here_is_told() {
    let decided =
        Decided { signal: Some(Signal::Term), victim: Some(id(3)), reason: Reason::MachineLowMemoryTerm };
    let lines = || {
        let sent = SignalOutcome::Sent(Signal::Term);
        vec![
            begin(Some(&at_once()), None, 0),
            list(&[2, 3]),
            look(0, 900),
            Line::Decided(decided),
            Line::Outcome { at: Nanos(1), victim: id(3), outcome: sent },
            look(5000, 900),
            look(12_000, 900),
        ]
    };
    let own = replayed(lines(), None);
    let grace = (Some(Signal::Kill), Some(3), Recorded::Nothing);
    assert_eq!(deeds(&own), [(Some(Signal::Term), Some(3), Recorded::Same), grace]);
    let both = |permille| Thresholds { memory: Permille(permille), swap: Permille(permille) };
    let later = MachineConfig { term: both(50), ..at_once() };
    let other = replayed(lines(), Some(later));
    assert_eq!(deeds(&other), [(None, None, Recorded::Other(decided))]);
    assert!(!other.is_exact());
}

#[test]
fn a_trace_may_begin_between_a_look_and_what_came_of_it() {
    let decided =
        Decided { signal: Some(Signal::Term), victim: Some(id(3)), reason: Reason::MachineLowMemoryTerm };
    let sent = Line::Outcome { at: Nanos(1), victim: id(3), outcome: SignalOutcome::Sent(Signal::Term) };
    let replay = replayed(
        vec![begin(Some(&at_once()), None, 0), list(&[3]), Line::Decided(decided), sent, look(5000, 900)],
        None,
    );
    assert!(replay.is_exact() && replay.told().0.is_empty());
}

#[test]
fn what_is_no_trace_is_refused() {
    let fault = |lines: Vec<Line<'static>>| {
        let mut replay = Replay::new(None);
        lines.into_iter().find_map(|line| replay.take(line).err())
    };
    let start = || begin(None, None, 5 * MS);
    let wrong = |change: fn(&mut Begin<'static>)| {
        let Line::Begin(mut begin) = start() else { unreachable!() };
        change(&mut begin);
        vec![Line::Begin(begin)]
    };
    let upside_down = MachineConfig {
        term: Thresholds { memory: Permille(0), swap: Permille(0) },
        ..MachineConfig::default()
    };
    assert_eq!(fault(vec![look(1, 1)]), Some(TraceFault::NoBeginning));
    assert_eq!(fault(vec![start(), look(9, 1), look(8, 1)]), Some(TraceFault::Backwards));
    assert_eq!(fault(vec![start(), look(9, 1), start()]), Some(TraceFault::Backwards));
    assert_eq!(fault(wrong(|begin| begin.version = 2)), Some(TraceFault::Version(2)));
    assert_eq!(fault(wrong(|begin| begin.page_size = 5)), Some(TraceFault::PageSize(5)));
    assert!(matches!(fault(vec![begin(Some(&upside_down), None, 0)]), Some(TraceFault::Config(_))));
    let many = Line::List((0..=DECISIVE_MAX).map(|_| candidate(7, 1)).collect());
    assert_eq!(fault(vec![start(), many]), Some(TraceFault::List(DECISIVE_MAX + 1)));
}

#[test]
fn a_line_has_what_is_known_and_no_more() {
    let json = |line: &Line<'_>| serde_json::to_string(line).unwrap();
    assert_eq!(
        json(&look(7, 1)),
        r#"{"look":{"at":7000000,"mem_available":1048576,"anon":10484711424,"swap_total":0}}"#
    );
    let unreadable = Line::Look {
        at: Nanos(1),
        reading: MachineReading { anon: Reading::Unreadable, ..MachineReading::default() },
    };
    assert_eq!(json(&unreadable), r#"{"look":{"at":1,"anon":null}}"#);
    let plain = Candidate {
        usage: Reading::Known(Pages(9)),
        ..Candidate::of(VictimId { pid: Pid(7), start_ns: 8 }, crate::units::Uid(9))
    };
    assert_eq!(
        json(&Line::List(vec![plain].into())),
        r#"{"list":[{"pid":7,"start_ns":8,"uid":9,"usage":9}]}"#
    );
    let names = Line::Names(vec![Name { id: id(7), comm: "x".into() }]);
    assert_eq!(serde_json::from_str::<Line<'_>>(&json(&names)).unwrap(), names);
}
