//! Traces of page-cache use as text, one line per fact; the format is told in `traces/README.md`.

use crate::cache::PART_PAGES;
use plimsoll_policy::{
    units::PageSize,
    workingset::{Barred, Blocks, CHUNK_PAGES, ChunkId, FileId, Use, chunk_pages},
};
use std::fmt::Write;

const FIRST_LINE: &str = "plimsoll page-cache trace 2";

/// How a chunk was used: its pages were read, or mapped.
const HOW: [&str; 2] = ["read", "mapped"];

pub(crate) fn page_size() -> PageSize {
    PageSize::from_bytes(4096).unwrap()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) id: FileId,
    pub(crate) name: String,
    pub(crate) bytes: u64,
}

impl File {
    pub(crate) fn pages(&self) -> u64 {
        self.bytes.div_ceil(page_size().bytes().0)
    }

    /// Pages of one of its parts.
    pub(crate) fn part_pages(&self, part: u32) -> u64 {
        self.pages().saturating_sub(u64::from(part) * PART_PAGES).min(PART_PAGES)
    }
}

/// The same for each of some neighbouring chunks; `file` is a place in [`Trace::files`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) file: usize,
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) accessed: u64,
    pub(crate) added: u64,
    pub(crate) evicted: u64,
    pub(crate) blocks: Blocks,
    pub(crate) mapped: bool,
    pub(crate) barred: Option<Barred>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Drain {
    pub(crate) at_ms: u64,
    /// Pages that the page cache could have had.
    pub(crate) cache: u64,
    /// Files mapped executable by running processes.
    pub(crate) running: Vec<usize>,
    pub(crate) runs: Vec<Run>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Trace {
    pub(crate) memory: u64,
    pub(crate) files: Vec<File>,
    pub(crate) drains: Vec<Drain>,
}

impl Trace {
    pub(crate) fn file(&self, name: &str) -> usize {
        self.files.iter().position(|file| file.name == name).unwrap()
    }

    /// As the daemon gets it.
    pub(crate) fn uses(&self, drain: &Drain) -> Vec<Use> {
        let each = |run: &Run| {
            let (file, run) = (&self.files[run.file], *run);
            (run.first..=run.last).map(move |chunk| Use {
                chunk: ChunkId { file: file.id, chunk },
                accessed: run.accessed,
                blocks: run.blocks,
                mapped: run.mapped,
                added: run.added,
                evicted: run.evicted,
                file_bytes: file.bytes,
                barred: run.barred,
            })
        };
        drain.runs.iter().flat_map(each).collect()
    }

    pub(crate) fn executables(&self, drain: &Drain) -> Vec<FileId> {
        drain.running.iter().map(|&file| self.files[file].id).collect()
    }

    pub(crate) fn write(&self) -> String {
        let mut text = format!("{FIRST_LINE}\nmemory {}\n", self.memory);
        for (index, File { id, name, bytes }) in self.files.iter().enumerate() {
            let (major, minor) = id.device_numbers();
            writeln!(text, "file {index} {major}:{minor} {} {} {bytes} {name}", id.inode, id.generation)
                .unwrap();
        }
        for drain in &self.drains {
            writeln!(text, "at {}\ncache {}", drain.at_ms, drain.cache).unwrap();
            if !drain.running.is_empty() {
                let running: Vec<String> = drain.running.iter().map(ToString::to_string).collect();
                writeln!(text, "run {}", running.join(" ")).unwrap();
            }
            for run in &drain.runs {
                write!(
                    text,
                    "{} {}-{} {} {} {} {:08x} {}",
                    run.file,
                    run.first,
                    run.last,
                    run.accessed,
                    run.added,
                    run.evicted,
                    run.blocks.0,
                    HOW[usize::from(run.mapped)]
                )
                .unwrap();
                run.barred.iter().for_each(|barred| write!(text, " {}", barred.text()).unwrap());
                text.push('\n');
            }
        }
        text
    }

    pub(crate) fn read(text: &str) -> Self {
        let mut trace = Self::default();
        let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        assert_eq!(lines.next(), Some(FIRST_LINE));
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |index: usize| words[index].parse::<u64>().expect(line);
            match words[0] {
                "memory" => trace.memory = number(1),
                "file" => {
                    let (major, minor) = words[2].split_once(':').expect(line);
                    let device = major.parse::<u32>().unwrap() << 20 | minor.parse::<u32>().unwrap();
                    let id = FileId { device, inode: number(3), generation: words[4].parse().unwrap() };
                    trace.files.push(File { id, bytes: number(5), name: words[6..].join(" ") });
                }
                "at" => trace.drains.push(Drain { at_ms: number(1), ..Drain::default() }),
                "cache" => trace.drains.last_mut().expect(line).cache = number(1),
                "run" => {
                    let running = words[1..].iter().map(|word| word.parse().expect(line)).collect();
                    trace.drains.last_mut().expect(line).running = running;
                }
                _ => {
                    let (first, last) = words[1].split_once('-').expect(line);
                    let barred = words
                        .get(7)
                        .map(|word| *Barred::ALL.iter().find(|barred| barred.text() == *word).expect(line));
                    trace.drains.last_mut().expect(line).runs.push(Run {
                        file: words[0].parse().expect(line),
                        first: first.parse().expect(line),
                        last: last.parse().expect(line),
                        accessed: number(2),
                        added: number(3),
                        evicted: number(4),
                        blocks: Blocks(u32::from_str_radix(words[5], 16).expect(line)),
                        mapped: HOW.iter().position(|how| *how == words[6]).expect(line) == 1,
                        barred,
                    });
                }
            }
        }
        trace
    }
}

/// Counts of single chunks, put together to runs.
#[derive(Debug, Default)]
pub(crate) struct Counts(std::collections::BTreeMap<(usize, u32), (u64, u64, u64)>);

impl Counts {
    pub(crate) fn at(&mut self, file: usize, part: u32) -> &mut (u64, u64, u64) {
        self.0.entry((file, part / crate::cache::PARTS)).or_default()
    }

    pub(crate) fn take(&mut self, files: &[File]) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for ((file, chunk), (accessed, added, evicted)) in std::mem::take(&mut self.0) {
            assert!(chunk_pages(files[file].bytes, chunk, page_size()).0 <= CHUNK_PAGES);
            let run = Run {
                file,
                first: chunk,
                last: chunk,
                accessed,
                added,
                evicted,
                blocks: if accessed > 0 { Blocks::ALL } else { Blocks::default() },
                mapped: false,
                barred: None,
            };
            match runs.last_mut() {
                Some(last)
                    if *last == (Run { first: last.first, last: last.last, ..run })
                        && last.last + 1 == chunk =>
                {
                    last.last = chunk;
                }
                _ => runs.push(run),
            }
        }
        runs
    }
}
