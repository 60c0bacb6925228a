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

    // Machine code for several SM versions: the device takes what runs on it. A Jetson needs code for sm_87,
    // desktop GPUs run that of earlier ones of the same major version.
    let kernel = device.load(hcq::images!("kernels/examples", sm_80, sm_87, sm_90))?.kernel("vecadd")?;

    // Three buffers of floats. The content of a new buffer is not specified.
    let bytes = u64::from(4 * COUNT);
    let (a, b, c) = (device.alloc(bytes)?, device.alloc(bytes)?, device.alloc(bytes)?);
    let values: Vec<f32> = (0..COUNT).map(|i| i as f32).collect();
    a.write_slice(0, &values)?;
    b.write_slice(0, &values)?;

    // One thread for each element, in blocks of 256. Arguments are passed in order, each with its own width.
    let shape = LaunchConfig::new(COUNT.div_ceil(256), 256);
    let args = Args::new().buffer(&a).buffer(&b).buffer(&c).u32(COUNT);
    let mut queue = device.queue()?;
    // SAFETY: the kernel reads COUNT floats of `a` and `b` and writes COUNT floats of `c`, as many as they
    // hold.
    unsafe { queue.launch(&kernel, shape, &args)? };
    // Nothing has run so far: `submit` hands the work over, and returns a point to wait for.
    queue.submit()?.wait(Duration::from_secs(10))?;

    let sums = c.read_vec::<f32>(0, COUNT as usize)?;
    match sums.iter().zip(&values).position(|(sum, value)| *sum != 2.0 * value) {
        None => println!("{COUNT} sums are right"),
        Some(i) => return Err(format!("{i} + {i} = {}", sums[i]).into()),
    }
    Ok(())
}
