//! Writes a kernel in Rust with `ptxgen`, compiles it with `ptxas`, and launches it.
//!
//! Without a `ptxas` on the machine it launches the code that was compiled before and committed.

use std::error::Error;
use std::time::Duration;

use hcq::{Args, Device, LaunchConfig, Selector};
use ptxgen::{Kernel, Module, Params, Ptr, Ptxas, Special, Target, kernel_params};

const COUNT: u32 = 1000;

kernel_params! {
    /// `scale`: multiplies `count` floats by `factor`.
    pub struct Scale { x: Ptr<f32, 16>, count: u32, factor: f32 }
}

/// The module with the kernel.
pub fn module(target: Target) -> Module {
    let k = Kernel::new("scale");
    let p = Scale::declare(&k);
    let i = k.mad(k.special(Special::CtaidX), k.special(Special::NtidX), k.special(Special::TidX));
    k.if_(k.lt(i, p.count), || {
        let at = k.at(p.x, i);
        k.store(at, k.mul(k.load(at), p.factor));
    });
    let mut module = Module::new(target);
    module.add(k);
    module
}

fn compile(module: &Module) -> Result<Vec<u8>, Box<dyn Error>> {
    if let Ok(ptxas) = Ptxas::find() {
        return Ok(ptxas.compile(&module.text(), module.target())?);
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/kernels/ptxgen");
    Ok(std::fs::read(format!("{folder}/scale.{}.cubin", module.target()))?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::open(Selector::from_env()?)?;
    let sm = device.info().sm_number();
    let module = module(Target::from_sm(sm).ok_or_else(|| format!("ptxgen has no target sm_{sm}"))?);
    let kernel = device.load(&compile(&module)?)?.kernel("scale")?;

    let x = device.alloc(4 * u64::from(COUNT))?;
    let floats: Vec<f32> = (0..COUNT).map(|i| i as f32).collect();
    x.write_slice(0, &floats)?;
    let mut queue = device.queue()?;
    let args: Args = Scale { x: &x, count: COUNT, factor: 0.5 }.args();
    // SAFETY: the kernel changes COUNT floats of `x`, as many as it holds; buffers are aligned to 256 bytes.
    unsafe { queue.launch(&kernel, LaunchConfig::new(COUNT.div_ceil(128), 128), &args)? };
    queue.submit()?.wait(Duration::from_secs(10))?;

    let halves = x.read_vec::<f32>(0, floats.len())?;
    if halves.iter().zip(&floats).any(|(half, float)| *half != 0.5 * float) {
        return Err("a float is not half of what it was".into());
    }
    println!("{COUNT} floats halved");
    Ok(())
}
