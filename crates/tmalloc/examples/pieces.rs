//! Takes memory in pieces until it is told no, with this library as the program's allocator.
//!
//! `cargo run -p plimsoll-tmalloc --example pieces`
#![expect(clippy::print_stdout, reason = "an example tells what it does")]

#[global_allocator]
static MEMORY: tmalloc::Tmalloc = tmalloc::Tmalloc;

const PIECE_BYTES: usize = 11 << 12;
const WANTED_BYTES: usize = 1_000_000_000;

fn main() {
    // What this program allocates before it could be refused is had in any case.
    if std::env::args().any(|argument| argument == "--pass") {
        tmalloc::without_daemon(tmalloc::WithoutDaemon::Pass);
    }
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    while pieces.len() * PIECE_BYTES < WANTED_BYTES {
        let mut piece = Vec::new();
        if pieces.try_reserve(1).is_err() || piece.try_reserve_exact(PIECE_BYTES).is_err() {
            println!("refused after {} pieces", pieces.len());
            break;
        }
        piece.resize(PIECE_BYTES, 1);
        pieces.push(piece);
    }
    drop(pieces);
    let waited = tmalloc::wait(1 << 20, Some(std::time::Duration::from_secs(1)));
    println!("then {} MiB: {}", 1, if waited.is_some() { "granted" } else { "refused" });
}
