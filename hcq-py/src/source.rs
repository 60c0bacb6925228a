//! PTX to machine code, by NVIDIA's assembler where there is one.

use std::path::PathBuf;

use ptxgen::{Error, KernelCache, Ptxas, Target};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::away::away;
use crate::failure::Failure;

fn failure(py: Python<'_>, error: &Error) -> Failure {
    let (class, code) = match error {
        Error::NoPtxas { .. } => ("NoCompiler", "COMPILE_NO_PTXAS"),
        Error::NotPtxas { .. } => ("NoCompiler", "COMPILE_NOT_PTXAS"),
        _ => ("CompileError", "COMPILE_REFUSED"),
    };
    Failure::own(py, class, code, &error.to_string())
}

/// The assembler: that of `PTXAS`, else that of this Python, else one of the system.
fn find(own: Option<PathBuf>) -> Result<Ptxas, Error> {
    match own {
        Some(own) if std::env::var_os("PTXAS").is_none_or(|path| path.is_empty()) => Ptxas::at(own),
        _ => Ptxas::find(),
    }
}

/// The path and the version of the assembler that is found; `own` is that of this Python.
#[pyfunction]
#[pyo3(signature = (own = None))]
pub(crate) fn ptxas(py: Python<'_>, own: Option<PathBuf>) -> Result<(String, String), Failure> {
    let found = away(py, || find(own)).map_err(|error| failure(py, &error))?;
    Ok((found.path().display().to_string(), found.version().to_owned()))
}

/// Compiles PTX for an SM such as 87; what was compiled before comes from the user's cache.
#[pyfunction]
#[pyo3(signature = (ptx, sm, own = None))]
pub(crate) fn compile<'py>(
    py: Python<'py>,
    ptx: &str,
    sm: u32,
    own: Option<PathBuf>,
) -> Result<Bound<'py, PyBytes>, Failure> {
    let target = Target::from_sm(sm).ok_or_else(|| {
        Failure::value(format!("sm_{sm} is none that code can be made for here: 80, 86, 87, 89 or 90"))
    })?;
    let compile = || {
        let ptxas = find(own)?;
        match KernelCache::of_user() {
            Some(cache) => cache.compile(&ptxas, ptx, target),
            None => ptxas.compile(ptx, target),
        }
    };
    let cubin = away(py, compile).map_err(|error| failure(py, &error))?;
    Ok(PyBytes::new(py, &cubin))
}
