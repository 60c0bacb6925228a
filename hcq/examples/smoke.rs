//! Brings a device up step by step and says what works: the first thing to run on a machine that is new to this crate.
//!
//! ```text
//! HCQ_DEVICE=rm RUST_LOG=hcq=debug cargo run -p hcq --example smoke -- hcq/tests/data/01_vecadd.sm_90.cubin
//! ```
//!
//! The cubin has to hold `vadd_f32(a, b, c, n)`, compiled for the device's SM. With `RUST_LOG=hcq=debug` every object that
//! is created in the driver is named as it comes and goes. Exits with 1 at the first step that fails.

use std::error::Error;
use std::fmt::Display;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use hcq::{Args, Device, LaunchConfig, Selector};

/// How long anything may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// Elements to add.
const COUNT: usize = 1 << 20;
/// Launches to time.
const LAUNCHES: usize = 2000;

/// Runs one step, says how it went and how long it took.
fn step<T, E: Into<Box<dyn Error>>>(
    name: &str,
    f: impl FnOnce() -> Result<T, E>,
) -> Result<T, Box<dyn Error>> {
    let start = Instant::now();
    match f() {
        Ok(value) => {
            println!("ok    {name} ({:.3} ms)", start.elapsed().as_secs_f64() * 1e3);
            Ok(value)
        }
        Err(error) => {
            println!("FAIL  {name}");
            Err(error.into())
        }
    }
}

fn note(text: impl Display) {
    println!("      {text}");
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

fn run(cubin: Option<&str>) -> Result<(), Box<dyn Error>> {
    let device = step("open the device", || Device::open(Selector::from_env()?))?;
    note(format_args!("{:#?}", device.info()));

    let pattern: Vec<u8> = (0..COUNT as u32).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let len = pattern.len() as u64;
    let (a, b, c) = step("allocate three buffers", || {
        Ok::<_, hcq::Error>((device.alloc(len)?, device.alloc(len)?, device.alloc(len)?))
    })?;
    note(format_args!("at {}, {}, {}", a.va(), b.va(), c.va()));
    step("write a buffer", || a.write(0, &pattern))?;
    let mut back = vec![0; pattern.len()];
    step("read it back", || a.read(0, &mut back))?;
    step("compare", || if back == pattern { Ok(()) } else { Err("the buffer holds something else") })?;

    let mut queue = step("create a compute queue", || device.queue())?;
    step("an empty submission", || queue.submit()?.wait(DEADLINE))?;
    let time = step("a timestamp", || -> Result<u64, Box<dyn Error>> {
        let time = queue.timestamp()?;
        queue.submit()?.wait(DEADLINE)?;
        time.ns().ok_or("no time after the work is done").map_err(Into::into)
    })?;
    note(format_args!("{time} ns"));
    step("copy between buffers", || {
        queue.copy(&a, 0, &b, 0, len)?;
        queue.submit()?.wait(DEADLINE)?;
        b.read(0, &mut back)
    })?;
    step("compare", || if back == pattern { Ok(()) } else { Err("the copy holds something else") })?;
    let mut copies = step("create a copy queue", || device.copy_queue())?;
    step("copy by it", || {
        copies.copy(&a, 0, &c, 0, len)?;
        copies.submit()?.wait(DEADLINE)?;
        c.read(0, &mut back)
    })?;
    step("compare", || if back == pattern { Ok(()) } else { Err("the copy holds something else") })?;

    let Some(path) = cubin else {
        note("no cubin given: nothing is launched");
        return Ok(());
    };
    let cubin = step("read the cubin", || std::fs::read(path))?;
    let program = step("load the cubin", || device.load(&cubin))?;
    let kernel = step("find vadd_f32", || program.kernel("vadd_f32"))?;
    let config = LaunchConfig::new(COUNT.div_ceil(256) as u32, 256);
    let args = Args::new().buffer(&a).buffer(&b).buffer(&c).u32(COUNT as u32);
    step("launch it and wait", || {
        // SAFETY: the kernel reads `a` and `b` and writes `c`, each `COUNT` floats long.
        unsafe { queue.launch(&kernel, config, &args) }?;
        queue.submit()?.wait(DEADLINE)
    })?;
    step("read the result", || c.read(0, &mut back))?;
    let wrong = floats(&back).enumerate().filter(|&(i, sum)| sum != 2.0 * i as f32).count();
    step("compare", || if wrong == 0 { Ok(()) } else { Err(format!("{wrong} of {COUNT} sums are wrong")) })?;

    let small = LaunchConfig::new(1, 32);
    let mut times = Vec::with_capacity(LAUNCHES);
    step("many small launches, each waited for", || {
        for _ in 0..LAUNCHES {
            let start = Instant::now();
            // SAFETY: as above, with fewer threads.
            unsafe { queue.launch(&kernel, small, &args) }?;
            queue.submit()?.wait(DEADLINE)?;
            times.push(start.elapsed());
        }
        Ok::<_, hcq::Error>(())
    })?;
    times.sort();
    let micros = |d: Duration| d.as_secs_f64() * 1e6;
    note(format_args!(
        "launch and wait: p50 {:.2} us, p99 {:.2} us, max {:.2} us",
        micros(times[LAUNCHES / 2]),
        micros(times[LAUNCHES * 99 / 100]),
        micros(times[LAUNCHES - 1])
    ));
    drop((queue, copies, program, kernel, args, a, b, c));
    drop(device);
    step("open and close it 10 times more", || {
        (0..10).try_for_each(|_| Device::open(Selector::from_env()?).map(drop))
    })
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let path = std::env::args().nth(1);
    match run(path.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut cause: Option<&dyn Error> = Some(&*error);
            while let Some(error) = cause {
                println!("      {error}");
                cause = error.source();
            }
            if let Some(hint) = error.downcast_ref::<hcq::Error>().and_then(hcq::Error::hint) {
                println!("      {hint}");
            }
            ExitCode::from(1)
        }
    }
}
