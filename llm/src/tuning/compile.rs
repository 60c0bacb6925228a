//! Compiles kernels that are not committed.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use ptxgen::{KernelCache, Ptxas, Target};
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::kernels::recipe::Recipe;

/// Compiles for one target, through the user's cache of compiled kernels.
#[derive(Clone, Debug)]
pub struct Compiler {
    ptxas: Ptxas,
    cache: Option<KernelCache>,
    target: Target,
}

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {}", self.ptxas, self.target)
    }
}

/// The target with the number `sm`.
///
/// # Errors
/// [`Error::NoKernels`] if there is no such target.
pub fn target(sm: u32) -> Result<Target> {
    let found = Target::ALL.into_iter().find(|t| t.name().strip_prefix("sm_") == Some(&sm.to_string()));
    found.ok_or(Error::NoKernels { sm })
}

impl Compiler {
    /// Finds a `ptxas` for the GPU generation `sm`.
    ///
    /// # Errors
    /// [`Error::Ptx`] if there is no ptxas, with the places that were searched; [`Error::NoKernels`].
    pub fn find(sm: u32) -> Result<Self> {
        Ok(Self { target: target(sm)?, ptxas: Ptxas::find()?, cache: KernelCache::of_user() })
    }

    /// The target.
    pub fn target(&self) -> Target {
        self.target
    }

    /// Version of the ptxas.
    pub fn version(&self) -> &str {
        self.ptxas.version()
    }

    /// The cubin with the kernel of `recipe`.
    ///
    /// # Errors
    /// [`Error::Ptx`] if ptxas refuses it.
    pub fn compile(&self, recipe: &Recipe) -> Result<Arc<[u8]>> {
        let ptx = recipe.ptx(self.target);
        let cubin = match &self.cache {
            Some(cache) => cache.compile(&self.ptxas, &ptx, self.target),
            None => self.ptxas.compile(&ptx, self.target),
        };
        Ok(cubin?.into())
    }

    /// The cubins of several recipes, compiled on all cores; `None` for those that were not started before
    /// `deadline`.
    pub fn compile_all(&self, recipes: &[Recipe], deadline: Instant) -> Vec<Option<Result<Arc<[u8]>>>> {
        let one = |recipe: &Recipe| (Instant::now() < deadline).then(|| self.compile(recipe));
        recipes.par_iter().map(one).collect()
    }
}
