//! Runs many dependent steps in one launch: a kernel that stays on the GPU, whose blocks wait for each other.
//!
//! Between the steps of a launch like this one nothing goes through the host or the GPU's scheduler. The
//! price: all blocks have to run at the same time, or those that run wait for ever for those that do not.

use std::error::Error;
use std::time::Duration;

use hcq::{Args, Device, LaunchConfig, Selector};

/// Cells of the automaton "rule 90", a power of two, and its generations.
const CELLS: u32 = 1 << 12;
const STEPS: u32 = 100;
const THREADS: u32 = 128;

/// One generation on the CPU: each cell becomes the exclusive or of its neighbours, in a ring.
fn step(cells: &[u32]) -> Vec<u32> {
    let n = cells.len();
    (0..n).map(|i| cells[(i + n - 1) % n] ^ cells[(i + 1) % n]).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::open(Selector::from_env()?)?;
    let kernel = device.load(hcq::images!("kernels/examples", sm_80, sm_87, sm_90))?.kernel("rule90")?;

    // As many blocks as there is work for, but never more than the GPU holds at once.
    let blocks_per_sm = kernel.blocks_per_sm(THREADS, 0);
    let blocks = (CELLS / THREADS).min(blocks_per_sm * device.info().sm_count);
    let shape = LaunchConfig::new(blocks, THREADS).with_blocks_per_sm(blocks_per_sm);
    println!("{blocks} blocks on {} SMs", device.info().sm_count);

    let mut cells: Vec<u32> = (0..CELLS).map(|i| u32::from(i == CELLS / 2)).collect();
    let (even, odd) = (device.alloc(4 * u64::from(CELLS))?, device.alloc(4 * u64::from(CELLS))?);
    even.write_slice(0, &cells)?;
    // The counter that blocks meet at.
    let arrived = device.alloc(4)?;
    arrived.write_slice(0, &[0_u32])?;

    let mut queue = device.queue()?;
    let args = Args::new().buffer(&even).buffer(&odd).buffer(&arrived).u32(CELLS).u32(STEPS);
    // SAFETY: the kernel reads and writes CELLS words of both buffers and counts in `arrived`, which starts
    // at 0; its blocks all run at once.
    unsafe { queue.launch(&kernel, shape, &args)? };
    queue.submit()?.wait(Duration::from_secs(10))?;

    (0..STEPS).for_each(|_| cells = step(&cells));
    // An even number of steps.
    if even.read_vec::<u32>(0, cells.len())? != cells {
        return Err("the cells differ from the CPU's".into());
    }
    println!("{STEPS} generations of {CELLS} cells in one launch");
    Ok(())
}
