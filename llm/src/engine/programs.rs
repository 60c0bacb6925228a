//! The committed kernels of the device's generation, loaded as they are needed.

use std::collections::HashMap;
use std::sync::Arc;

use hcq::{Device, Kernel, Program};

use crate::error::{Error, Result};
use crate::kernels::step::{self, Variant};
use crate::kernels::{Epilogue, Format, matvec};
use crate::tuning::Kernels;

/// The cubin of each module, for one target.
macro_rules! cubins {
    ($target:literal: $($module:literal),*) => {
        &[$(($module, include_bytes!(concat!("../../kernels/", $module, ".", $target, ".cubin")) as &[u8])),*]
    };
}
const SM87: &[(&str, &[u8])] = cubins!("sm_87": 
    "attention", "bf16", "dequantize", "f16", "f32", "gemm", "prompt", "q4_0", "q4_k", "q5_k", "q6_k", "q8_0", "step_bf16", "step_f16", "step_f32", "step_q4_0", "step_q4_k", "step_q5_k", "step_q6_k", "step_q8_0", "vector");
const SM90: &[(&str, &[u8])] = cubins!("sm_90": 
    "attention", "bf16", "dequantize", "f16", "f32", "gemm", "prompt", "q4_0", "q4_k", "q5_k", "q6_k", "q8_0", "step_bf16", "step_f16", "step_f32", "step_q4_0", "step_q4_k", "step_q5_k", "step_q6_k", "step_q8_0", "vector");

/// Loads modules on first use and hands out their kernels.
#[derive(Debug)]
pub struct Programs {
    device: Device,
    cubins: &'static [(&'static str, &'static [u8])],
    loaded: HashMap<&'static str, Program>,
    /// Kernels that are not among the committed ones, each alone in its cubin, by name.
    others: Kernels,
    loaded_others: HashMap<Arc<str>, Program>,
}

impl Programs {
    /// # Errors
    /// [`Error::NoKernels`] if there are none for the device's generation.
    pub fn new(device: &Device, others: Kernels) -> Result<Self> {
        let cubins = match device.info().sm_number() {
            87 => SM87,
            90 => SM90,
            sm => return Err(Error::NoKernels { sm }),
        };
        let (loaded, loaded_others) = (HashMap::new(), HashMap::new());
        Ok(Self { device: device.clone(), cubins, loaded, others, loaded_others })
    }

    /// Adds a kernel that is alone in `cubin`.
    pub fn add(&mut self, name: &str, cubin: Arc<[u8]>) {
        self.others.insert(name.into(), cubin);
    }

    /// The kernel `name`: of `module`, unless it is one of those added.
    ///
    /// # Errors
    /// What loading it reports.
    pub fn kernel(&mut self, module: &'static str, name: &str) -> Result<Kernel> {
        if let Some((name, cubin)) = self.others.get_key_value(name) {
            if !self.loaded_others.contains_key(name) {
                self.loaded_others.insert(name.clone(), self.device.load(cubin)?);
            }
            return Ok(self.loaded_others[name].kernel(name)?);
        }
        if !self.loaded.contains_key(module) {
            let cubin =
                self.cubins.iter().find(|(name, _)| *name == module).map_or(&[][..], |(_, bytes)| bytes);
            self.loaded.insert(module, self.device.load(cubin)?);
        }
        Ok(self.loaded[module].kernel(name)?)
    }

    /// The step kernel of `variant`.
    pub fn step(&mut self, variant: &Variant, shape: step::Shape) -> Result<Kernel> {
        self.kernel(variant.module, &variant.kernel_name(shape))
    }

    /// A kernel that multiplies with a matrix of `format`.
    pub fn matvec(&mut self, format: Format, epilogue: Epilogue, shape: matvec::Shape) -> Result<Kernel> {
        self.kernel(format.suffix(), &shape.kernel_name(format, epilogue))
    }

    /// The kernel that reads a row of an embedding of `format`.
    pub fn embed(&mut self, format: Format) -> Result<Kernel> {
        self.kernel(format.suffix(), &format!("embed_{}", format.suffix()))
    }

    /// A kernel of the `vector` module.
    pub fn vector(&mut self, name: &str) -> Result<Kernel> {
        self.kernel("vector", name)
    }

    /// A kernel of the `attention` module.
    pub fn attention(&mut self, name: &str) -> Result<Kernel> {
        self.kernel("attention", name)
    }
}
