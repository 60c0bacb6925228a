//! Adds two vectors: allocate, load a kernel, launch it, wait, read the result.
//!
//! ```sh
//! cargo run --release -p hcq --example 01_vecadd                    # the GPU that is here
//! HCQ_DEVICE=sim cargo run --release -p hcq --example 01_vecadd     # the software ga10b
//! ```

use std::error::Error;
use std::time::Duration;

use hcq::{Args, Device, LaunchConfig, Selector};

const COUNT: u32 = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    // The device: HCQ_DEVICE=nvgpu (Jetson), rm (desktop GPU), sim (software), or the first that works.
    let device = Device::open(Selector::from_env()?)?;
    println!("{} ({})", device.info().name, device.info().backend);

    // Machine code runs on its own SM version and on later ones of the same major version; that of desktop
    // GPUs does not run on a Jetson's (sm_87).
    let cubin: &[u8] = match device.info().sm_number() {
        90.. => include_bytes!("kernels/examples.sm_90.cubin"),
        87 => include_bytes!("kernels/examples.sm_87.cubin"),
        _ => include_bytes!("kernels/examples.sm_80.cubin"),
    };
    let kernel = device.load(cubin)?.kernel("vecadd")?;

    // Three buffers of floats. The content of a new buffer is not specified.
    let bytes = u64::from(4 * COUNT);
    let (a, b, c) = (device.alloc(bytes)?, device.alloc(bytes)?, device.alloc(bytes)?);
    let values = |f: fn(f32) -> f32| (0..COUNT).flat_map(|i| f(i as f32).to_le_bytes()).collect::<Vec<u8>>();
    a.write(0, &values(|i| i))?;
    b.write(0, &values(|i| 2.0 * i))?;

    // One thread for each element, in blocks of 256. Arguments are passed in order, each with its own width.
    let shape = LaunchConfig::new(COUNT.div_ceil(256), 256);
    let args = Args::new().buffer(&a).buffer(&b).buffer(&c).u32(COUNT);
    let mut queue = device.queue()?;
    // SAFETY: the kernel reads COUNT floats of `a` and `b` and writes COUNT floats of `c`, as many as they
    // hold.
    unsafe { queue.launch(&kernel, shape, &args)? };
    // Nothing has run so far: `submit` hands the work over, and returns a point to wait for.
    queue.submit()?.wait(Duration::from_secs(10))?;

    let mut sums = vec![0; bytes as usize];
    c.read(0, &mut sums)?;
    let sums = sums.as_chunks().0.iter().map(|sum| f32::from_le_bytes(*sum));
    match sums.enumerate().find(|(i, sum)| *sum != 3.0 * *i as f32) {
        None => println!("{COUNT} sums are right"),
        Some((i, sum)) => return Err(format!("{i} + 2 * {i} = {sum}").into()),
    }
    Ok(())
}
