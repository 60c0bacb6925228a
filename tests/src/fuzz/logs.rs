//! Kernel logs.

use std::time::Duration;

use nvdiag::process_map::ProcessMap;
use nvdiag::session::Session;
use rand::Rng;
use rand::rngs::StdRng;

use crate::fuzz::decoders::print;
use crate::fuzz::mutate::{awkward, damage, pick};
use crate::fuzz::target::{Case, Target};

/// Logs.
pub(crate) const LOG: Target = Target {
    name: "log",
    about: "lines of kernel logs, mixed and damaged: read in pieces, grouped, explained, printed",
    bound: Duration::from_secs(10),
    start,
};

const SAMPLES: [&str; 2] = [
    include_str!("../../../diag/tests/data/kernel-log-samples.txt"),
    include_str!("../../../diag/tests/data/h200-xid.txt"),
];

fn start() -> Case {
    let lines: Vec<&str> = SAMPLES.iter().flat_map(|s| s.lines()).filter(|l| !l.starts_with('#')).collect();
    Box::new(move |rng: &mut StdRng| {
        let mut log = Vec::new();
        let mut at = rng.random_range(0..lines.len());
        for _ in 0..rng.random_range(1..40) {
            at = if rng.random_ratio(1, 4) {
                rng.random_range(0..lines.len())
            } else {
                (at + 1) % lines.len()
            };
            let mut line = lines[at].as_bytes().to_vec();
            if rng.random_ratio(1, 2) {
                let whole = line.len();
                damage(rng, &mut line, whole, 3);
            }
            if rng.random_ratio(1, 4)
                && let Some(digit) = line.iter().rposition(u8::is_ascii_hexdigit)
            {
                let number = awkward(rng);
                let text = if rng.random() { format!("{number:x}") } else { number.to_string() };
                line.splice(digit..=digit, text.into_bytes());
            }
            log.extend(line);
            log.extend(pick::<&[u8]>(rng, &[b"\n", b"\n", b"\n", b"\r\n", b"", b"\0"]).iter());
        }
        let mut session = Session::new(ProcessMap::default(), rng.random_range(0..20));
        let mut rest = &log[..];
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rng.random_range(1..=rest.len()));
            session.feed(piece);
            rest = after;
            if rng.random_ratio(1, 8) {
                print(&session.take_reports("a log"));
            }
        }
        print(&session.finish("a log"));
    })
}
