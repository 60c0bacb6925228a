//! Writes the physical memory of a software ga10b on which a program has a few buffers, for `nvdiag vamap --dump`.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;

use ga10b_sim::{Sim, SimConfig};
use hcq::DeviceOptions;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: software_dump FILE")?;
    let sim = Sim::new(SimConfig::default());
    let device = hcq::sim::open(Arc::clone(&sim), DeviceOptions::default())?;
    let _large = device.alloc(9 << 20)?;
    let _small = device.alloc(5000)?;
    let _queue = device.queue()?;
    let mut out = BufWriter::new(File::create(path)?);
    sim.dump_memory(&mut out)?;
    out.flush()?;
    for (number, root) in sim.page_tables() {
        println!("address space {number}: tables at {root:#x}");
    }
    Ok(())
}
