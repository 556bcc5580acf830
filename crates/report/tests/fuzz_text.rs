//! Every reader of text, of [`plimsoll_wire::text`] and of OOM reports, against hundreds of thousands of spoilt files, on any
//! toolchain and without a fuzzer. The libFuzzer targets in `fuzz/` run the same readers for as long as one lets them.
//!
//! The seed is printed with every failure; `PLIMSOLL_FUZZ_SEED` replays one, `PLIMSOLL_FUZZ_ROUNDS` goes on longer.

#[cfg(test)]
mod spoilt_files {
    use plimsoll_report::{import, oom::log, trace};
    use plimsoll_wire::text::{FUZZ_TARGETS, FuzzTarget, Printable};
    use std::{
        env, fs,
        panic::catch_unwind,
        path::{Path, PathBuf},
        time::{SystemTime, UNIX_EPOCH},
    };

    /// Inputs tried for each reader: with nineteen readers some eight seconds unoptimised.
    const ROUNDS: u64 = 60_000;

    /// Where inputs stop growing: longer than any of these files is in practice.
    const INPUT_BYTES_MAX: usize = 8192;

    /// Pieces that mean something to some reader, and numbers at the edges.
    const PIECES: &[&[u8]] = &[
        b"\n",
        b"\0",
        b" ",
        b"\t",
        b":",
        b"\n+",
        b"x:",
        b")",
        b"(",
        b"-",
        b",",
        b".",
        b"=",
        b"/",
        b"\\",
        b"\\040",
        b" - ",
        b" kB",
        b"0",
        b"4294967295",
        b"4294967296",
        b"18446744073709551615",
        b"18446744073709551616",
        b"-1",
        b"\xff",
        b"\xf0\x9f",
        b"\x1b[",
        b"MemTotal:",
        b"Uid:",
        b"RssAnon:",
        b"0::/",
        b"some ",
        b"total=",
        b"bpf",
        b"populated ",
        b"rw-p ",
        b" [heap]",
        b"  pagesets\n",
        b"count: ",
        b" invoked oom-killer: ",
        b"Killed process ",
        b"[ 1.5] ",
        b"\nNode 0 Normal free:",
        b"\n{\"look\":{\"at\":9,\"mem_available\":0,\"anon\":9}}\n",
        b"\n{\"decided\":{\"signal\":\"kill\",\"victim\":{\"pid\":7,\"start_ns\":1},\"reason\":\"machine-thrashing\"}}\n",
    ];

    /// `splitmix64`: small, and good enough to choose where to spoil.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.0;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        }

        fn below(&mut self, bound: usize) -> usize {
            let bound = u64::try_from(bound.max(1)).unwrap();
            usize::try_from(self.next() % bound).unwrap()
        }
    }

    fn readers() -> impl Iterator<Item = &'static FuzzTarget> {
        FUZZ_TARGETS.iter().chain([&log::FUZZ_TARGET, &trace::FUZZ_TARGET, &import::FUZZ_TARGET])
    }

    fn corpus(name: &str) -> Vec<Vec<u8>> {
        let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        // The order of a folder is not the same on every machine; a seed must be.
        paths.sort();
        assert!(
            !paths.is_empty(),
            "no inputs in {}: the reader would be tested with noise alone",
            folder.display()
        );
        paths.into_iter().map(|path| fs::read(path).unwrap()).collect()
    }

    fn spoil(input: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
        let at = random.below(input.len() + 1);
        match random.below(8) {
            0 => input.truncate(at),
            1 if at < input.len() => input[at] ^= 1 << random.below(8),
            2 if at < input.len() => input[at] = u8::try_from(random.below(256)).unwrap(),
            3 => drop(input.drain(at..(at + random.below(16)).min(input.len()))),
            4 => {
                let piece = PIECES[random.below(PIECES.len())];
                drop(input.splice(at..at, piece.iter().copied()));
            }
            5 => {
                let piece = PIECES[random.below(PIECES.len())];
                let end = (at + piece.len()).min(input.len());
                drop(input.splice(at..end, piece.iter().copied()));
            }
            6 => {
                let other = &corpus[random.below(corpus.len())];
                let tail = other[random.below(other.len() + 1)..].to_vec();
                input.truncate(at);
                input.extend(tail);
            }
            _ => {
                let end = (at + random.below(64)).min(input.len());
                let copy = input[at..end].to_vec();
                drop(input.splice(at..at, copy));
            }
        }
        input.truncate(INPUT_BYTES_MAX);
    }

    /// Whether the reader keeps its promises on `input`, as words.
    fn broken(target: &FuzzTarget, input: &[u8]) -> Option<String> {
        match catch_unwind(|| (target.check)(input)) {
            Ok(Ok(())) => None,
            Ok(Err(promise)) => Some(promise.to_owned()),
            Err(_panic) => Some("it panicked".to_owned()),
        }
    }

    fn number_from(variable: &str) -> Option<u64> {
        let text = env::var(variable).ok()?;
        Some(text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")))
    }

    #[test]
    fn no_file_however_spoilt_breaks_a_reader() {
        let seed = number_from("PLIMSOLL_FUZZ_SEED").unwrap_or_else(|| {
            u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() & 0xffff_ffff)
                .unwrap()
        });
        let rounds = number_from("PLIMSOLL_FUZZ_ROUNDS").unwrap_or(ROUNDS);
        println!("PLIMSOLL_FUZZ_SEED={seed}, {rounds} rounds for each of {} readers", readers().count());
        for target in readers() {
            let corpus = corpus(target.name);
            // Whole logs take longer than small files: the same time rather than the same number.
            let bytes = corpus.iter().map(Vec::len).sum::<usize>() / corpus.len();
            let rounds = rounds * 512 / u64::try_from(bytes.max(512)).unwrap();
            let mut random = Random(seed);
            let mut input = Vec::new();
            for round in 0..rounds {
                if input.is_empty() || random.below(8) == 0 {
                    input.clone_from(&corpus[random.below(corpus.len())]);
                }
                if let Some(promise) = broken(target, &input) {
                    panic!(
                        "{}: {promise}\ninput {}\nreplay with PLIMSOLL_FUZZ_SEED={seed} (round {round})",
                        target.name,
                        Printable(&input)
                    );
                }
                spoil(&mut input, &corpus, &mut random);
            }
        }
    }

    #[test]
    fn every_reader_has_a_libfuzzer_target_of_its_name() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
        for target in readers() {
            let path = folder.join(format!("{}.rs", target.name));
            assert!(path.is_file(), "no libFuzzer target {}", path.display());
        }
    }
}
