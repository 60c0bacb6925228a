//! Holds the software ga10b to a real GPU: the same programs with the same inputs on both, every output word compared.
//!
//! [`Case`]s are [`random`] programs, for which the CPU also says what is right, and the kernels of the [`corpus`] that the
//! disassembler is tested with, and the approximations of the special-function unit ([`mufu`]): only where these are used may
//! results differ, by a stated bound. `hcq-conform` runs them.

pub mod built_in;
mod case;
pub mod convergence;
pub mod corpus;
pub mod edges;
pub mod matrix;
mod model_kernels;
pub mod mufu;
mod noise;
pub mod random;
mod report;
mod runner;
pub mod sweep;
mod tolerance;

pub use case::{Arg, Case, Place};
pub use noise::Noise;
pub use report::{Comparison, Difference, Totals};
pub use runner::Runner;
pub use tolerance::{Tolerance, Verdict};

use std::path::Path;

use anyhow::Result;
use ptxgen::{Manifest, Mismatch, Named, Ptxas, Target};

/// The cubins of a committed module, for the ga10b and for Hopper.
macro_rules! cubins {
    ($path:expr) => {
        [
            include_bytes!(concat!($path, ".sm_87.cubin")).as_slice(),
            include_bytes!(concat!($path, ".sm_90.cubin")).as_slice(),
        ]
    };
}
use cubins;

/// All modules that are generated here and committed, for all targets.
fn modules() -> Vec<Named> {
    Target::ALL
        .into_iter()
        .flat_map(|target| {
            let mut modules = random::modules(target);
            modules.push(mufu::module(target));
            modules.push(edges::module(target));
            modules
        })
        .collect()
}

/// Compiles the generated programs into `dir`, beside their PTX (that for sm_87; the other differs in the target alone) and a
/// manifest.
///
/// # Errors
/// Without `ptxas`, if it refuses a program, and if a file cannot be written.
pub fn regenerate(dir: &Path) -> Result<Manifest> {
    let modules = modules();
    let manifest = Manifest::generate(dir, &modules, &Ptxas::find()?)?;
    for Named { name, module } in modules.iter().filter(|m| m.module.target() == Target::Sm87) {
        std::fs::write(dir.join(format!("{name}.ptx")), module.text())?;
    }
    Ok(manifest)
}

/// How the cubins in `dir` differ from what the generator writes now; recompiles them where the same `ptxas` is at hand.
///
/// # Errors
/// If a file cannot be read or the programs no longer compile.
pub fn check(dir: &Path) -> Result<Vec<Mismatch>> {
    Ok(Manifest::check(dir, &modules(), Ptxas::find().ok().as_ref())?)
}

/// Every case there is.
pub fn cases() -> Vec<Case> {
    let mut cases = random::cases();
    cases.extend(edges::cases());
    cases.extend(corpus::cases());
    cases.extend(matrix::cases());
    cases.extend(built_in::cases());
    cases.extend(convergence::cases());
    cases.extend(mufu::cases());
    cases
}
