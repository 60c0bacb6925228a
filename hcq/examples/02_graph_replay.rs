//! Records launches once as a graph, and replays them with one doorbell each, with a patched argument.
//!
//! A graph is encoded into GPU memory when it is built. A replay costs the CPU about as much as one launch,
//! however many launches the graph has; dependent launches are linked to each other and follow without the
//! CPU.

use std::error::Error;
use std::time::Duration;

use hcq::{Args, Device, LaunchConfig, Selector};

const COUNT: u32 = 256;
/// Number of `factor` among the arguments of `axpy(y, x, factor, n)`.
const FACTOR: usize = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::open(Selector::from_env()?)?;
    let axpy = device.load(hcq::images!("kernels/examples", sm_80, sm_87, sm_90))?.kernel("axpy")?;
    let (x, y) = (device.alloc(4 * u64::from(COUNT))?, device.alloc(4 * u64::from(COUNT))?);
    x.write_slice(0, &[1_f32; COUNT as usize])?;
    y.write_slice(0, &[0_f32; COUNT as usize])?;

    // y += 1 * x, then y += 10 * x. The barrier lets the second launch see what the first one wrote.
    let shape = LaunchConfig::new(COUNT.div_ceil(128), 128);
    let args = |factor| Args::new().buffer(&y).buffer(&x).f32(factor).u32(COUNT);
    let mut graph = device.graph();
    // SAFETY: the kernel reads COUNT floats of `x` and changes COUNT floats of `y`; a patch of the factor
    // keeps that.
    let first = unsafe { graph.launch(&axpy, shape, &args(1.0))? };
    graph.barrier();
    // SAFETY: as above.
    unsafe { graph.launch(&axpy, shape, &args(10.0))? };
    let graph = graph.build()?;

    // Ten replays add 11 each. Replays of one graph follow each other: no wait is needed between them.
    let mut queue = device.queue()?;
    for _ in 0..10 {
        queue.replay(&graph)?;
    }
    // From here on the first launch adds 2 * x. Replays that are still running keep the old factor.
    // SAFETY: the kernel reaches the same elements with any factor.
    unsafe { graph.patch_args(first, FACTOR, &Args::new().f32(2.0))? };
    queue.replay(&graph)?.wait(Duration::from_secs(10))?;

    let expected = 10.0 * 11.0 + 12.0;
    match y.read_vec::<f32>(0, COUNT as usize)?.into_iter().find(|sum| *sum != expected) {
        None => println!("11 replays of {} launches: every element is {expected}", graph.launches()),
        Some(sum) => return Err(format!("an element is {sum}, not {expected}").into()),
    }
    Ok(())
}
