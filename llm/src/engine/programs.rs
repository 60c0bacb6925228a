//! The kernels of a device's generation, loaded on first use.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use hcq::{Device, Kernel, Program};

use crate::error::{Error, Result};
use crate::kernels::choices::Kernels;
use crate::kernels::committed::{self, Cubins};
use crate::kernels::format::CODEBOOK;
use crate::kernels::prompt::{gemm, warpgroups};
use crate::kernels::{columns, layers, mixture};

/// The engine that launches a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Launched {
    /// An engine with the persistent step.
    ByEngine,
    /// Columns, with or without chunks of prompts.
    ByColumns {
        /// Whether there are chunks.
        chunks: bool,
    },
}

impl Launched {
    /// Whether kernels of `module` are launched.
    fn takes(self, module: &str) -> bool {
        let of_steps =
            [columns::NAME, "columns_product", "columns_experts", CODEBOOK, layers::NAME, mixture::NAME];
        let of_prompts = ["prompt", gemm::NAME, warpgroups::NAME, "dequantize"];
        match self {
            Launched::ByEngine => true,
            Launched::ByColumns { chunks } => {
                of_steps.contains(&module) || chunks && of_prompts.contains(&module)
            }
        }
    }
}

/// The largest stacks of committed kernels, by the generation that they are for and who launches them: they
/// are asked for before an engine is set up, and when it is.
static STACKS: Mutex<BTreeMap<(u32, Launched), u32>> = Mutex::new(BTreeMap::new());

/// Loads modules on first use and returns their kernels.
#[derive(Debug)]
pub struct Programs {
    device: Device,
    cubins: Cubins,
    loaded: HashMap<&'static str, Program>,
    /// Kernels that are not committed, each alone in its cubin, by name.
    others: Kernels,
    loaded_others: HashMap<Arc<str>, Program>,
}

impl Programs {
    /// # Errors
    /// [`Error::NoKernels`] if no kernels are committed for the device's generation.
    pub fn new(device: &Device, others: Kernels) -> Result<Self> {
        let sm = device.info().sm_number();
        let cubins = committed::cubins(sm).ok_or(Error::NoKernels { sm })?;
        let (loaded, loaded_others) = (HashMap::new(), HashMap::new());
        Ok(Self { device: device.clone(), cubins, loaded, others, loaded_others })
    }

    /// The largest stack per thread of the kernels that are `launched`: of those that are committed for the
    /// device's generation, and of `others`.
    ///
    /// # Errors
    /// [`Error::NoKernels`]; what is wrong with a cubin.
    pub fn largest_stack(device: &Device, launched: Launched, others: &Kernels) -> Result<u32> {
        let sm = device.info().sm_number();
        let committed = committed::cubins(sm).ok_or(Error::NoKernels { sm })?;
        let mut stacks = STACKS.lock().unwrap_or_else(PoisonError::into_inner);
        let of_committed = match stacks.get(&(sm, launched)) {
            Some(known) => *known,
            None => {
                let taken = committed.iter().filter(|(module, _)| launched.takes(module));
                let found = largest(taken.map(|(_, cubin)| *cubin))?;
                stacks.insert((sm, launched), found);
                found
            }
        };
        Ok(of_committed.max(largest(others.values().map(|cubin| &**cubin))?))
    }

    /// Adds a kernel that is alone in `cubin`.
    pub fn add(&mut self, name: &str, cubin: Arc<[u8]>) {
        self.others.insert(name.into(), cubin);
    }

    /// The kernel `name`: an added one, else that of `module`.
    pub fn kernel(&mut self, module: &'static str, name: &str) -> Result<Kernel> {
        if let Some((name, cubin)) = self.others.get_key_value(name) {
            if !self.loaded_others.contains_key(name) {
                self.loaded_others.insert(name.clone(), self.device.load(&**cubin)?);
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
}

/// The largest stack of the kernels in some cubins.
fn largest<'a>(cubins: impl Iterator<Item = &'a [u8]>) -> Result<u32> {
    let mut most = 0;
    for cubin in cubins {
        most = Program::largest_stack(cubin)?.max(most);
    }
    Ok(most)
}
