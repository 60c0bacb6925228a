//! Programs, their kernels, and launches of these.

use std::sync::Arc;

use hcq::LaunchConfig;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyTuple};

use crate::args::Signature;
use crate::away::away;
use crate::failure::{Failure, fact, shown};
use crate::gpu::{Gpu, Queue};
use crate::held::Held;
use crate::point::SyncPoint;

/// Code in GPU memory. Of `Device.load`.
#[pyclass(frozen, mapping, weakref, module = "hcq._hcq")]
#[derive(Debug)]
pub(crate) struct Program {
    gpu: Arc<Gpu>,
    program: Held<hcq::Program>,
}

impl Program {
    pub fn load(py: Python<'_>, gpu: &Arc<Gpu>, cubin: &[u8]) -> Result<Self, Failure> {
        let device = gpu.device()?;
        let program = gpu.hold("program", away(py, || device.load(cubin))?)?;
        Ok(Self { gpu: gpu.clone(), program })
    }
}

#[pymethods]
impl Program {
    /// The kernel of that name, mangled where the compiler mangled it.
    fn __getitem__(&self, name: &str) -> Result<Kernel, Failure> {
        let kernel = self.program.get()?.kernel(name)?;
        let signature = Arc::new(Signature::new(&kernel));
        let kernel = self.gpu.hold("kernel", kernel)?;
        Ok(Kernel(Arc::new(Parts { gpu: self.gpu.clone(), kernel, signature })))
    }

    fn __contains__(&self, name: &str) -> Result<bool, Failure> {
        Ok(self.program.get()?.kernels().any(|kernel| kernel.name() == name))
    }

    fn __len__(&self) -> Result<usize, Failure> {
        Ok(self.program.get()?.kernels().count())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.keys()?.into_pyobject(py)?.try_iter()?.into_any())
    }

    /// Names of the kernels.
    fn keys(&self) -> Result<Vec<String>, Failure> {
        Ok(self.program.get()?.kernels().map(|kernel| kernel.name().to_owned()).collect())
    }

    /// Gives the memory back, once its kernels are gone and have ended; later uses are errors. Closing twice is no error.
    fn close(&self, py: Python<'_>) {
        let program = self.program.take();
        away(py, || drop(program));
    }

    /// Whether it, or its device, is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.program.is_closed()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Closes it.
    #[pyo3(signature = (*_ended))]
    fn __exit__(&self, py: Python<'_>, _ended: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        self.keys().map_or("<hcq program, closed>".to_owned(), |keys| {
            format!("<hcq program of {}>", keys.join(", "))
        })
    }
}

/// A kernel of the library, and what its launches need.
#[derive(Debug)]
pub(crate) struct Parts {
    pub gpu: Arc<Gpu>,
    pub kernel: Held<hcq::Kernel>,
    pub signature: Arc<Signature>,
}

/// A kernel: `kernel[grid, block](arguments)` launches it.
#[pyclass(frozen, weakref, module = "hcq._hcq")]
#[derive(Debug)]
pub(crate) struct Kernel(pub(crate) Arc<Parts>);

#[pymethods]
impl Kernel {
    /// A launch of that many blocks, of that many threads: numbers, or tuples of up to three.
    fn __getitem__(&self, shape: &Bound<'_, PyAny>) -> Result<Launcher, Failure> {
        let both = shape.cast::<PyTuple>().ok().filter(|both| both.len() == 2);
        let both =
            both.ok_or_else(|| Failure::kind("a launch has two numbers or tuples: kernel[grid, block]"))?;
        Ok(Launcher { parts: self.0.clone(), shape: config(&both.get_item(0)?, &both.get_item(1)?, 0, 0)? })
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.0.signature.kernel
    }

    /// Registers of a thread.
    #[getter]
    fn registers(&self) -> Result<u32, Failure> {
        Ok(self.0.kernel.get()?.registers())
    }

    /// Bytes of static shared memory of a block.
    #[getter]
    fn static_shared(&self) -> Result<u32, Failure> {
        Ok(self.0.kernel.get()?.static_shared())
    }

    /// Bytes of stack of a thread.
    #[getter]
    fn local_bytes(&self) -> Result<u32, Failure> {
        Ok(self.0.kernel.get()?.local_bytes())
    }

    /// Most threads of a block.
    #[getter]
    fn max_threads(&self) -> Result<u32, Failure> {
        Ok(self.0.kernel.get()?.max_threads())
    }

    /// GPU address of the code.
    #[getter]
    fn address(&self) -> Result<u64, Failure> {
        Ok(self.0.kernel.get()?.address().raw())
    }

    /// Bytes of code.
    #[getter]
    fn code_bytes(&self) -> Result<u64, Failure> {
        Ok(self.0.kernel.get()?.code_bytes())
    }

    /// Bytes of all parameters.
    #[getter]
    fn parameter_bytes(&self) -> u32 {
        self.0.signature.bytes
    }

    /// Offset and size in bytes of each parameter; empty where the cubin does not list them.
    #[getter]
    fn parameters(&self) -> Vec<(u16, u32)> {
        self.0.signature.parameters.iter().map(|p| (p.offset, p.size_bytes)).collect()
    }

    /// Blocks of `threads` threads with `shared` bytes of dynamic shared memory that an SM holds at once.
    #[pyo3(signature = (threads, shared = 0))]
    fn blocks_per_sm(&self, threads: u32, shared: u32) -> Result<u32, Failure> {
        Ok(self.0.kernel.get()?.blocks_per_sm(threads, shared))
    }

    /// The occupancy of an SM by such blocks; None for an SM whose limits are not known.
    #[pyo3(signature = (threads, shared = 0))]
    fn occupancy<'py>(
        &self,
        py: Python<'py>,
        threads: u32,
        shared: u32,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(found) = self.0.kernel.get()?.occupancy(threads, shared) else { return Ok(None) };
        let fields = [
            ("blocks_per_sm", found.blocks_per_sm.into_pyobject(py)?.into_any()),
            ("warps_per_sm", found.warps_per_sm.into_pyobject(py)?.into_any()),
            ("max_warps_per_sm", found.max_warps_per_sm.into_pyobject(py)?.into_any()),
            ("limit", found.limit.name().into_pyobject(py)?.into_any()),
        ];
        fact(py, "Occupancy", &fields.into_py_dict(py)?).map(Some)
    }

    fn __repr__(&self) -> String {
        let sizes: Vec<String> =
            self.0.signature.parameters.iter().map(|p| p.size_bytes.to_string()).collect();
        format!("<hcq kernel {} with parameters of {} bytes>", self.name(), sizes.join(", "))
    }
}

/// Sides of a grid or a block.
fn sides(value: &Bound<'_, PyAny>, what: &str) -> Result<[u32; 3], Failure> {
    let bad = || {
        let value = shown(value);
        Failure::kind(format!(
            "{what}: {value} is no number from 0 to 2^32 - 1, and no tuple of one to three"
        ))
    };
    let given: Vec<u32> = match value.cast::<PyTuple>() {
        Ok(tuple) => tuple.extract().map_err(|_| bad())?,
        Err(_) => vec![value.extract().map_err(|_| bad())?],
    };
    match given[..] {
        [x] => Ok([x, 1, 1]),
        [x, y] => Ok([x, y, 1]),
        [x, y, z] => Ok([x, y, z]),
        _ => Err(bad()),
    }
}

/// The shape of a launch.
pub(crate) fn config(
    grid: &Bound<'_, PyAny>,
    block: &Bound<'_, PyAny>,
    shared: u32,
    blocks_per_sm: u32,
) -> Result<LaunchConfig, Failure> {
    let shape = LaunchConfig::new(sides(grid, "grid")?, sides(block, "block")?);
    Ok(shape.with_dynamic_shared(shared).with_blocks_per_sm(blocks_per_sm))
}

/// A kernel with a shape, which a call launches. Of `kernel[grid, block]`.
#[pyclass(frozen, module = "hcq._hcq")]
#[derive(Debug)]
pub(crate) struct Launcher {
    parts: Arc<Parts>,
    shape: LaunchConfig,
}

#[pymethods]
impl Launcher {
    /// Launches the kernel: after everything submitted before on the queue. Returns a point to wait for.
    #[pyo3(signature = (*args, shared = 0, blocks_per_sm = 0, queue = None))]
    fn __call__(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        shared: u32,
        blocks_per_sm: u32,
        queue: Option<&Bound<'_, Queue>>,
    ) -> Result<SyncPoint, Failure> {
        let Parts { gpu, kernel, signature } = &*self.parts;
        let (lane, kernel) = (gpu.lane(py, queue)?, kernel.get()?);
        let args = signature.args(args)?;
        let shape = self.shape.with_dynamic_shared(shared).with_blocks_per_sm(blocks_per_sm);
        let mut is_recorded = false;
        let point = lane.with(py, |queue| {
            if !is_recorded {
                // SAFETY: as the crate's documentation says.
                unsafe { queue.launch(&kernel, shape, &args) }?;
                is_recorded = true;
            }
            queue.submit()
        })?;
        Ok(SyncPoint(gpu.hold("point", point)?))
    }
}
