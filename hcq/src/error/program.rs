//! Why a program could not be loaded.

use nv_hw::Shown;

use crate::cubin::error::CubinError;

/// Why a program could not be loaded, or has no such kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The cubin could not be loaded.
    #[error("cannot load the cubin")]
    Cubin(#[from] CubinError),
    /// The program has no kernel of that name.
    #[error("no kernel {name:?} in the program, which has: {}", Shown(available.join(", ")))]
    NoKernel {
        /// The name asked for.
        name: String,
        /// The names there are.
        available: Vec<String>,
    },
}
