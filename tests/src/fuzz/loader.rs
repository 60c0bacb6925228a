//! The loader of cubins.

use std::time::Duration;

use hcq::cubin::File;
use hcq::{Device, Selector};
use nvdiag::disassembly::Disassembly;
use rand::Rng;
use rand::rngs::StdRng;

use crate::fuzz::corpus::CUBINS;
use crate::fuzz::decoders::print;
use crate::fuzz::mutate::{awkward, damage, pick};
use crate::fuzz::target::{Case, Target};

/// Cubins.
pub(crate) const CUBIN: Target = Target {
    name: "cubin",
    about: "damaged cubins: read, loaded on the software ga10b, disassembled",
    bound: Duration::from_secs(20),
    start,
};

/// Bytes of a header of a section.
const SECTION_HEADER: usize = 64;

fn start() -> Case {
    let device = Device::open(Selector::Sim).expect("the software ga10b opens");
    Box::new(move |rng: &mut StdRng| {
        let mut bytes = pick(rng, CUBINS).to_vec();
        if rng.random_ratio(1, 2) {
            // The table of sections is a small part of the file, and decides most.
            let table = bytes[0x28..].first_chunk().map_or(0, |at| u64::from_le_bytes(*at)) as usize;
            for _ in 0..rng.random_range(1..4) {
                let headers = (bytes.len() - table) / SECTION_HEADER;
                let at = table + rng.random_range(0..headers) * SECTION_HEADER + rng.random_range(0..8) * 8;
                bytes[at..at + 8].copy_from_slice(&awkward(rng).to_le_bytes());
            }
        }
        let head = if rng.random_ratio(1, 2) { 0x80 } else { bytes.len() };
        damage(rng, &mut bytes, head, 8);
        if let Ok(file) = File::parse(&bytes) {
            for section in file.sections() {
                let _ = file.content(&section);
            }
            for kernel in file.kernels() {
                let _ = file.resources(&kernel);
            }
            if let Ok(program) = device.load(&bytes) {
                for kernel in file.kernels() {
                    if let Ok(kernel) = program.kernel(kernel.name) {
                        let _ = (kernel.occupancy(256, 0), kernel.param_bytes(), kernel.code_bytes());
                    }
                }
            }
        }
        if let Ok(report) = Disassembly::read(&bytes, None, &mut |_| None)
            && rng.random_ratio(1, 8)
        {
            print(&report);
        }
    })
}
