//! Submits launches to two queues and prints what each is, for the tests of `nvdiag trace --submissions`.
//!
//! `submits COUNT [STATUS]` submits COUNT launches to a first queue, one by one, and two at once to a second, which
//! waits for the first, and ends with STATUS. A line of JSON for each launch: `queue`, `grid`, `block`, `registers`, `program`.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use hcq::{Args, Device, LaunchConfig, Selector};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let numbers: Vec<u32> = std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let (Some(count), status) = (numbers.first(), numbers.get(1).copied().unwrap_or(0)) else {
        return Err("usage: submits COUNT [STATUS]".into());
    };
    let device = Device::open(Selector::from_env()?)?;
    let kernel =
        device.load(include_bytes!("../../hcq/tests/data/01_vecadd.sm_87.cubin"))?.kernel("vadd_f32")?;
    let buffer = device.alloc(1 << 16)?;
    let (mut first, mut second) = (device.queue()?, device.queue()?);
    let args = || Args::new().buffer(&buffer).buffer(&buffer).buffer(&buffer).u32(1);
    let tell = |queue: u32, grid: u32, block: u32| {
        let (registers, program) = (kernel.registers(), kernel.address().raw());
        println!(
            "{{\"queue\":{queue},\"grid\":[{grid},1,1],\"block\":[{block},1,1],\"registers\":{registers},\"program\":\"{program:#x}\"}}"
        );
    };
    let mut last = None;
    for i in 0..*count {
        let (grid, block) = (i % 7 + 1, (i % 4 + 1) * 32);
        tell(1, grid, block);
        // SAFETY: the kernel adds one element of the buffer to itself.
        unsafe { first.launch(&kernel, LaunchConfig::new(grid, block), &args())? };
        last = Some(first.submit()?);
    }
    if let Some(last) = &last {
        second.wait_for(last)?;
    }
    for grid in [11, 12] {
        tell(2, grid, 64);
        // SAFETY: as above; nobody reads the result.
        unsafe { second.launch(&kernel, LaunchConfig::new(grid, 64), &args())? };
    }
    let last_of_second = second.submit()?;
    for point in last.iter().chain([&last_of_second]) {
        point.wait(Duration::from_secs(60))?;
    }
    Ok(ExitCode::from(u8::try_from(status)?))
}
