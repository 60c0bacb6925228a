//! Writes the physical memory of a software ga10b on which a program has a few buffers, for `nvdiag vamap --dump`.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;

use ga10b_sim::{Sim, SimConfig};
use hcq::{Device, DeviceOptions, Selector};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: software_dump FILE")?;
    let sim = Sim::new(SimConfig::default());
    let mut options = DeviceOptions::default();
    options.sim = Some(Arc::clone(&sim));
    let device = Device::open_with(Selector::Sim, options)?;
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
