use super::answer;
use proptest::prelude::{any, prop_assert, proptest};
use std::{fs, path::Path};

/// The corpus of the libFuzzer target of the same purpose.
fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/varlink_call");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 8, "too few inputs: {paths:?}");
    paths.into_iter().map(|path| fs::read(path).unwrap()).collect()
}

/// One JSON object, or nothing where nothing is wanted.
fn is_well_formed(answer: &[u8]) -> bool {
    answer.is_empty() || serde_json::from_slice::<serde_json::Map<_, _>>(answer).is_ok()
}

#[test]
fn each_call_of_the_corpus_is_understood_as_far_as_it_can_be() {
    for call in corpus() {
        let answer = answer(&call);
        assert!(is_well_formed(&answer), "{}", String::from_utf8_lossy(&call));
    }
}

proptest! {
    #[test]
    fn a_spoilt_call_gets_one_well_formed_answer(
        which in any::<usize>(),
        other in any::<usize>(),
        cuts in proptest::collection::vec((any::<usize>(), any::<u8>(), 0_u8..5), 0..6),
    ) {
        let corpus = corpus();
        let mut call = corpus[which % corpus.len()].clone();
        for (at, byte, how) in cuts {
            let at = at % (call.len() + 1);
            match how {
                0 => call.truncate(at),
                1 => call.insert(at, byte),
                2 if at < call.len() => call[at] = byte,
                3 if at < call.len() => drop(call.remove(at)),
                _ => {
                    let tail = &corpus[other % corpus.len()];
                    call.truncate(at);
                    call.extend_from_slice(&tail[at.min(tail.len())..]);
                }
            }
        }
        let answer = answer(&call);
        prop_assert!(is_well_formed(&answer), "{:?}", String::from_utf8_lossy(&call));
    }
}
