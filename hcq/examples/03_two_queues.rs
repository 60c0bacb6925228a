//! Overlaps copies with launches: a copy queue moves data while a compute queue works on other data.
//! Submissions of one queue follow each other; between queues nothing is ordered but by `wait_for`.

use std::error::Error;
use std::time::Duration;

use hcq::{Args, Device, LaunchConfig, Selector};

/// Parts that the data goes through the GPU in, and floats of each.
const PARTS: u32 = 8;
const COUNT: u32 = 1 << 14;
const BYTES: u64 = 4 * COUNT as u64;

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::open(Selector::from_env()?)?;
    let vecadd = device.load(hcq::images!("kernels/examples", sm_80, sm_87, sm_90))?.kernel("vecadd")?;

    // Memory of the CPU, which the copy engine reads and writes, and two parts' worth of the GPU's own.
    let all = BYTES * u64::from(PARTS);
    let (input, output) = (device.alloc_host(all)?, device.alloc_host(all)?);
    let parts = [device.alloc(BYTES)?, device.alloc(BYTES)?];
    let floats: Vec<f32> = (0..PARTS * COUNT).map(|i| i as f32).collect();
    input.write_slice(0, &floats)?;

    let (mut copies, mut launches) = (device.copy_queue()?, device.queue()?);
    let shape = LaunchConfig::new(COUNT.div_ceil(256), 256);
    let mut doubled = vec![];
    for part in 0..PARTS {
        let memory = &parts[part as usize % 2];
        // In: after the part that was here before has gone out, which the same queue did earlier.
        copies.copy(&input, u64::from(part) * BYTES, memory, 0, BYTES)?;
        launches.wait_for(&copies.submit()?)?;
        // SAFETY: the kernel doubles COUNT floats in place: each thread reads only what it writes.
        unsafe {
            let args = Args::new().buffer(memory).buffer(memory).buffer(memory).u32(COUNT);
            launches.launch(&vecadd, shape, &args)?;
        }
        doubled.push(launches.submit()?);
        // Out: one part late, so that the copy engine brings the next part in while this one is worked on.
        for part in part.saturating_sub(1)..if part + 1 == PARTS { PARTS } else { part } {
            copies.wait_for(&doubled[part as usize])?;
            copies.copy(&parts[part as usize % 2], 0, &output, u64::from(part) * BYTES, BYTES)?;
        }
    }
    copies.submit()?.wait(Duration::from_secs(10))?;

    let doubled = output.read_vec::<f32>(0, floats.len())?;
    if doubled.iter().zip(&floats).any(|(doubled, float)| *doubled != 2.0 * float) {
        return Err("a float is not twice what it was".into());
    }
    println!("{} floats doubled in {PARTS} parts", floats.len());
    Ok(())
}
