//! `hcq` for Python: the native half of the package `hcq`, whose other half is in `python/hcq`.
//!
//! Objects of Python hold objects of [`hcq`], which keep each other alive. Calls that copy, submit or wait release
//! the interpreter; a lock that is held meanwhile is a `Lane`'s (`lane.rs`), which says what a fork does. All other locks
//! are taken and given back while the interpreter is held, so that no fork of a program comes between.
//!
//! # Safety
//! Launching a kernel is safe for the process: the GPU reaches its own address space alone. What a kernel does with
//! its arguments there is the program's to know, as in the Rust library.
//!
//! # Layers
//!
//! ```text
//! module    device                # opening, which makes all others
//! work      graph queue program   # launches and what they are recorded in
//! parts     args buffer           # what work is made of
//! views     export                # memory of buffers as others see it
//! objects   gpu lane memory point       # devices, queues, memory, points of work
//! facts     away dtype foreign forks held source  # waits, types, memory of others, forks, what closes, compilation
//! border    failure explain       # errors as exceptions
//! ```

mod args;
mod away;
mod buffer;
mod device;
mod dtype;
mod explain;
mod export;
mod failure;
mod foreign;
mod forks;
mod gpu;
mod graph;
mod held;
mod lane;
mod memory;
mod point;
mod program;
mod queue;
mod source;

/// The native half of the package `hcq`.
#[pyo3::pymodule]
mod _hcq {
    #[pymodule_export]
    use crate::away::end;
    #[pymodule_export]
    use crate::buffer::BufferAt;
    #[pymodule_export]
    use crate::device::{Device, open};
    #[pymodule_export]
    use crate::gpu::Queue;
    #[pymodule_export]
    use crate::graph::{Graph, GraphBuilder, Node};
    #[pymodule_export]
    use crate::memory::Buffer;
    #[pymodule_export]
    use crate::point::{SyncPoint, Timestamp};
    #[pymodule_export]
    use crate::program::{Kernel, Launcher, Program};
    #[pymodule_export]
    use crate::source::{compile, ptxas};
    use pyo3::exceptions::PyImportError;
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Before Python 3.12 a thread of another interpreter would take the main one's lock, and wait for itself
        // (PyO3 issue 576); from 3.13 on Python refuses the module where interpreters have locks of their own.
        // SAFETY: a thread that has an interpreter asks for its number, which of the main one is 0.
        if unsafe { pyo3::ffi::PyInterpreterState_GetID(pyo3::ffi::PyInterpreterState_Get()) } != 0 {
            let text = "hcq works in the main interpreter alone, and this is a subinterpreter";
            return Err(PyImportError::new_err(text));
        }
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("HostBuffer", crate::export::host_type(module.py())?)
    }
}
