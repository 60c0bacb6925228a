//! Why generating or compiling PTX failed.

use std::path::PathBuf;

use crate::target::Target;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No `ptxas` in any of the searched places.
    #[error("no ptxas found in {}; set PTXAS, or install a CUDA toolkit or the Python wheel nvidia-cuda-nvcc-cu12", searched.join(", "))]
    NoPtxas {
        /// The places, in the order they were tried.
        searched: Vec<String>,
    },
    /// `ptxas` ran and refused the text.
    #[error("ptxas refused the PTX for {target}:\n{message}{excerpt}")]
    Refused {
        /// The target it was compiled for, as `sm_87`.
        target: String,
        /// Output of ptxas.
        message: String,
        /// The lines that the message names, numbered.
        excerpt: String,
    },
    /// A kernel uses an instruction that the module's target lacks.
    #[error("kernel {kernel} needs {needs} for {instruction}; the module is for {target}")]
    Lacking {
        /// The kernel.
        kernel: String,
        /// The instruction.
        instruction: &'static str,
        /// The oldest target that has it.
        needs: Target,
        /// The module's target.
        target: Target,
    },
    /// A program could not be started or gave no usable answer.
    #[error("{} did not answer as ptxas does: {what}", path.display())]
    NotPtxas {
        /// The program.
        path: PathBuf,
        /// The mistake.
        what: String,
    },
    /// A file could not be read or written.
    #[error("{} {}", action, path.display())]
    File {
        /// "cannot read" and the like.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// A manifest is not in this version's format.
    #[error("manifest {} is not valid", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// Position and reason.
        #[source]
        source: serde_json::Error,
    },
}
