//! Devices: opening one, what it is, and what is made of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hcq::{DeviceOptions, GpuCache, GpuVa, Images, Preemption, Selector};
use pyo3::exceptions::{PyOSError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyByteArray, PyBytes, PyDict, PyInt, PyList, PyTuple};

use crate::away::{apart, away, seconds};
use crate::buffer;
use crate::dtype::{self, DType};
use crate::failure::{Failure, fact, kind_of, leave, shown};
use crate::foreign::Foreign;
use crate::gpu::{Gpu, Queue};
use crate::graph::GraphBuilder;
use crate::lane::Lane;
use crate::memory::Buffer;
use crate::program::Program;

/// Opens a device: "auto" (a Jetson's GPU, else a desktop GPU, else the software GPU), "nvgpu", "rm" or "sim"; None for
/// what HCQ_DEVICE says, and "auto" if it says nothing. A `with` block closes it at its end.
///
/// Options, None for the default; times are in seconds:
///
/// - patience: how long calls without a timeout wait for the GPU (60)
/// - spin: how long waits spin before they sleep (2 ms on a GPU, 0 on the software GPU)
/// - keep_freed: bytes of closed buffers that are kept for later ones (a 64th of the memory, at most 1 GiB)
/// - kernel_copies_from: copies of a queue from so many bytes on are done by a kernel (what suits the device)
/// - chain_launches: whether dependent launches follow each other inside the GPU's scheduler (True)
/// - timeslice: on a Jetson, how long the device's work keeps the GPU when others wait, 0.001 to 0.05 (the driver's)
/// - interleave: on a Jetson, how often its turn comes: "low", "medium" or "high" (the driver's, "low")
/// - switch_limit: on a Jetson, context-switch time after which the driver stops a queue (10)
/// - gpu_cache: on a Jetson, whether the level-2 cache keeps buffers (what HCQ_GPU_CACHE says, else False)
/// - conservative: on a Jetson, queues as others have run them (what HCQ_CONSERVATIVE says, else False)
/// - profile: settings of queues and launches, lines NAME = VALUE (the file that HCQ_PROFILE names)
#[pyfunction]
#[pyo3(signature = (name = None, *, patience = None, spin = None, keep_freed = None, kernel_copies_from = None,
    switch_limit = None, timeslice = None, interleave = None, conservative = None, gpu_cache = None,
    chain_launches = None, profile = None))]
#[expect(clippy::too_many_arguments, reason = "the options of a device, each by its name")]
pub(crate) fn open(
    py: Python<'_>,
    name: Option<&str>,
    patience: Option<f64>,
    spin: Option<f64>,
    keep_freed: Option<u64>,
    kernel_copies_from: Option<u64>,
    switch_limit: Option<f64>,
    timeslice: Option<f64>,
    interleave: Option<&str>,
    conservative: Option<bool>,
    gpu_cache: Option<bool>,
    chain_launches: Option<bool>,
    profile: Option<&str>,
) -> Result<Device, Failure> {
    let selector = match name {
        Some(name) => name.parse()?,
        None => Selector::from_env()?,
    };
    let mut options = DeviceOptions::default();
    if let Some(patience) = patience {
        options.patience = seconds(patience, "patience")?;
    }
    options.spin = spin.map(|spin| seconds(spin, "spin")).transpose()?;
    options.keep_freed = keep_freed;
    options.kernel_copies_from = kernel_copies_from;
    if let Some(limit) = switch_limit {
        options.switch_limit = Some(seconds(limit, "switch_limit")?);
    }
    options.timeslice = timeslice.map(|slice| seconds(slice, "timeslice")).transpose()?;
    options.interleave = interleave.map(str::parse).transpose()?;
    options.conservative = conservative;
    options.gpu_cache = gpu_cache.map(|keep| if keep { GpuCache::Keep } else { GpuCache::Bypass });
    options.chain_launches = chain_launches.unwrap_or(options.chain_launches);
    if let Some(profile) = profile {
        options.profile =
            profile.parse().map_err(|bad: hcq::BadProfile| Failure::value(format!("profile: {bad}")))?;
    }
    let patience = options.patience;
    let device = away(py, || hcq::Device::open_with(selector, options))?;
    Ok(Device(Arc::new(Gpu::new(device, patience))))
}

/// A GPU with an address space. Of `hcq.open`.
#[pyclass(frozen, weakref, module = "hcq._hcq")]
#[derive(Debug)]
pub(crate) struct Device(Arc<Gpu>);

impl Device {
    /// A new buffer: of a number of elements, a shape, or as an object with memory.
    fn make<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        dtype: Option<&Bound<'py, PyAny>>,
        alloc: impl FnOnce(&hcq::Device, u64) -> Result<hcq::Buffer, hcq::Error> + Send,
    ) -> Result<Bound<'py, Buffer>, Failure> {
        let device = self.0.device()?;
        let dtype = dtype.map(dtype::of_argument).transpose()?;
        if let Some(sides) = sides(data)? {
            let dtype = dtype.unwrap_or(dtype::BYTES);
            let buffer = away(py, || alloc(&device, bytes_of(&sides, dtype)))?;
            return buffer::wrap(py, &self.0, buffer, dtype, &sides);
        }
        let memory = Foreign::read(data)?;
        let (dtype, shape) = elements(data, &memory, dtype)?;
        let len = memory.len() as u64;
        let buffer = away(py, || alloc(&device, len))?;
        memory.bytes(py, |bytes| away(py, || buffer.write(0, bytes)))?.map_err(Failure::from)?;
        buffer::wrap(py, &self.0, buffer, dtype, &shape)
    }
}

/// Whether an object with memory is an array, which may have no sides, and no number with memory of its own.
fn is_array(data: &Bound<'_, PyAny>) -> bool {
    data.hasattr("__len__").unwrap_or(false)
}

/// The sides of a new array: a count, of numpy too, whose numbers have memory of their own, or a shape. `None` for
/// an object to copy.
fn sides(data: &Bound<'_, PyAny>) -> Result<Option<Vec<usize>>, Failure> {
    let is_number = || {
        let has_index = data.hasattr("__index__").unwrap_or(false) && !is_array(data);
        has_index && Foreign::of_value(data).is_some_and(|memory| memory.is_scalar())
    };
    if data.is_instance_of::<PyInt>() || is_number() {
        let count = data.extract::<usize>();
        return match count {
            Ok(count) => Ok(Some(vec![count])),
            Err(_) => {
                let text = format!("data: {} is no number of elements: there are 1 to 2^64 - 1", shown(data));
                Err(PyOverflowError::new_err(text).into())
            }
        };
    }
    if data.is_instance_of::<PyList>() {
        return Err(Failure::kind(
            "data: a list has no memory to copy from, and is no shape: pass numpy.array(list) for its values, a tuple \
             for a shape",
        ));
    }
    if data.is_instance_of::<PyTuple>() {
        let shape = data.extract().map(Some);
        return shape
            .map_err(|_| Failure::kind(format!("data: {data} is no shape; pass values as a numpy array")));
    }
    Ok(None)
}

/// The type and the sides of a copy of `memory`, as elements of `dtype` where that is given.
fn elements(
    data: &Bound<'_, PyAny>,
    memory: &Foreign,
    dtype: Option<&'static DType>,
) -> Result<(&'static DType, Vec<usize>), Failure> {
    let own = dtype::of_memory(data, memory);
    let (dtype, shape) = match (dtype, own) {
        (None, own) => (own?, Some(memory.shape())),
        (Some(dtype), Ok(own)) if own == dtype => (dtype, Some(memory.shape())),
        (Some(dtype), Ok(own)) if own != dtype::BYTES => {
            return Err(Failure::kind(format!(
                "data: the elements are {}, not {}; pass data.astype(..), or data.view(\"uint8\") for the same bytes",
                own.name, dtype.name
            )));
        }
        // Bytes as elements of that type.
        (Some(dtype), _) if memory.len().is_multiple_of(dtype.size) => (dtype, None),
        (Some(dtype), _) => {
            let (len, size) = (memory.len(), dtype.size);
            return Err(Failure::value(format!(
                "data: {len} bytes are no elements of {size} bytes ({})",
                dtype.name
            )));
        }
    };
    // A scalar is an array of one.
    let shape = shape.filter(|sides| !sides.is_empty() || is_array(data));
    Ok((dtype, shape.unwrap_or_else(|| vec![memory.len() / dtype.size])))
}

/// The bytes of an array; more than there can be where they are not to be counted.
fn bytes_of(sides: &[usize], dtype: &DType) -> u64 {
    sides.iter().fold(dtype.size as u64, |bytes, side| bytes.saturating_mul(*side as u64))
}

impl Device {
    /// A queue of Python around one of the library.
    fn lane(&self, queue: hcq::Queue) -> Result<Queue, Failure> {
        let lane = Arc::new(Lane::new(queue, self.0.patience, &self.0.unseen));
        Ok(Queue { lane: self.0.hold("queue", lane)?, gpu: self.0.clone() })
    }
}

#[pymethods]
impl Device {
    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Closes the device, as `close` does. Where an exception ends the block, that is the one that is seen.
    #[pyo3(signature = (*ended))]
    fn __exit__(&self, py: Python<'_>, ended: &Bound<'_, PyTuple>) -> Result<(), Failure> {
        leave(ended, self.0.close(py))
    }

    /// Closes the device and everything that was made of it: later uses are errors, and the memory goes back. Waits for
    /// the work of its queues, at most the device's patience, and raises the fault or the time-out of work that no call
    /// has waited for; it is closed then too. Refused while another object views a buffer. Closing twice is no error.
    fn close(&self, py: Python<'_>) -> Result<(), Failure> {
        self.0.close(py)
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.0.is_closed()
    }

    /// A description of the device.
    #[getter]
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let device = self.0.device()?;
        let info = device.info();
        let fields = [
            ("name", info.name.as_str().into_pyobject(py)?.into_any()),
            ("backend", info.backend.to_string().into_pyobject(py)?.into_any()),
            ("sm", info.sm_number().into_pyobject(py)?.into_any()),
            ("sm_count", info.sm_count.into_pyobject(py)?.into_any()),
            ("max_warps_per_sm", info.max_warps_per_sm.into_pyobject(py)?.into_any()),
            ("max_shared_per_block", info.max_shared_per_block.into_pyobject(py)?.into_any()),
            ("memory", info.memory.into_pyobject(py)?.into_any()),
            ("unified_memory", info.unified_memory.into_pyobject(py)?.to_owned().into_any()),
            ("driver_version", info.driver_version.as_str().into_pyobject(py)?.into_any()),
            ("max_clock_hz", info.max_clock_hz.into_pyobject(py)?),
            ("gpu_cache", info.gpu_cache.map(|cache| cache == GpuCache::Keep).into_pyobject(py)?.into_any()),
            ("compute_class", info.classes.compute.into_pyobject(py)?.into_any()),
            ("copy_class", info.classes.copy.into_pyobject(py)?.into_any()),
            ("channel_class", info.classes.channel.into_pyobject(py)?.into_any()),
        ];
        fact(py, "Info", &fields.into_py_dict(py)?)
    }

    /// Allocates GPU memory: a number of elements, a shape, or a copy of an object with memory (a numpy array, bytes).
    /// Elements are bytes, unless `dtype` says otherwise. `address` is a GPU address to lie at, a multiple of 4 KiB.
    #[pyo3(signature = (data, dtype = None, *, address = None))]
    fn buffer<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        dtype: Option<&Bound<'py, PyAny>>,
        address: Option<u64>,
    ) -> Result<Bound<'py, Buffer>, Failure> {
        let Some(address) = address else { return self.make(py, data, dtype, hcq::Device::alloc) };
        let va = GpuVa::new(address);
        let va = va.ok_or_else(|| Failure::value(format!("address: {address:#x} is none of a GPU")))?;
        self.make(py, data, dtype, |device, len| device.alloc_at(va, len))
    }

    /// Allocates memory of the CPU that the GPU reaches over its bus, as `buffer` does. Other objects see it without a
    /// copy.
    #[pyo3(signature = (data, dtype = None))]
    fn host_buffer<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        dtype: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, Buffer>, Failure> {
        self.make(py, data, dtype, hcq::Device::alloc_host)
    }

    /// Loads a cubin: its bytes, its path, a `Source` to compile, or a list of these, of which the device takes the one
    /// that it runs.
    fn load(&self, py: Python<'_>, code: &Bound<'_, PyAny>) -> Result<Program, Failure> {
        let sm = self.0.device()?.info().sm_number();
        let images = match code.cast::<PyList>() {
            Ok(several) => several.iter().map(|one| image(&one, sm)).collect::<Result<_, _>>()?,
            Err(_) => match code.cast::<PyTuple>() {
                Ok(several) => several.iter().map(|one| image(&one, sm)).collect::<Result<_, _>>()?,
                Err(_) => vec![image(code, sm)?],
            },
        };
        let images: Vec<&[u8]> = images.iter().map(Vec::as_slice).collect();
        let cubin = match images[..] {
            // The device's refusal of a single one says which SM it is for.
            [one] => one,
            _ => Images::new(&images).for_sm(sm).map_err(hcq::Error::from)?,
        };
        Program::load(py, &self.0, cubin)
    }

    /// Opens a queue for launches and copies.
    fn queue(&self, py: Python<'_>) -> Result<Queue, Failure> {
        let device = self.0.device()?;
        self.lane(apart(py, move || device.queue())?)
    }

    /// Opens a queue for copies, which run beside the launches of other queues.
    fn copy_queue(&self, py: Python<'_>) -> Result<Queue, Failure> {
        let device = self.0.device()?;
        self.lane(apart(py, move || device.copy_queue())?)
    }

    /// Starts to record a graph.
    fn graph(&self) -> Result<GraphBuilder, Failure> {
        GraphBuilder::new(&self.0)
    }

    /// Bytes of memory that can be allocated now.
    #[getter]
    fn free_memory(&self) -> Result<u64, Failure> {
        Ok(self.0.device()?.free_memory()?)
    }

    /// Whether kernels are interrupted between two instructions for another program, or else at their end.
    #[getter]
    fn gives_way(&self) -> Result<bool, Failure> {
        Ok(self.0.device()?.preemption() == Preemption::Instructions)
    }

    /// The GPU's clock in ns.
    #[getter]
    fn gpu_time(&self) -> Result<u64, Failure> {
        Ok(self.0.device()?.gpu_time()?)
    }

    /// The clocks of GPU and CPU at one moment; that of the CPU is `time.monotonic_ns`.
    fn clock_pair<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Failure> {
        let found = self.0.device()?.clock_pair()?;
        let before = Instant::now();
        let now: u64 = py.import("time")?.getattr("monotonic_ns")?.call0()?.extract()?;
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let fields = [
            ("gpu_ns", found.gpu_ns),
            ("cpu_ns", now.saturating_sub(ns(before.duration_since(found.cpu)))),
            ("error_ns", ns(found.error + before.elapsed())),
        ];
        Ok(fact(py, "ClockPair", &fields.into_py_dict(py)?)?)
    }

    /// All that is mapped in the address space, by address.
    fn memory_map<'py>(&self, py: Python<'py>) -> Result<Vec<Bound<'py, PyAny>>, Failure> {
        let mappings = self.0.device()?.memory_map();
        let fields = mappings.iter().map(|mapping| {
            let fields = PyDict::new(py);
            fields.set_item("address", mapping.va.raw())?;
            fields.set_item("size", mapping.len)?;
            fields.set_item("what", mapping.what)?;
            fact(py, "Mapping", &fields)
        });
        Ok(fields.collect::<PyResult<_>>()?)
    }

    /// Gives back the memory of freed buffers that is kept for later ones.
    fn trim(&self, py: Python<'_>) -> Result<(), Failure> {
        let device = self.0.device()?;
        Ok(away(py, || device.trim())?)
    }

    /// Allocates the memory for stacks of `stack` bytes per thread now.
    fn reserve_stacks(&self, py: Python<'_>, stack: u32) -> Result<(), Failure> {
        let device = self.0.device()?;
        Ok(away(py, || device.reserve_stacks(stack))?)
    }

    fn __repr__(&self) -> String {
        let Ok(device) = self.0.device() else { return "<hcq device, closed>".to_owned() };
        let info = device.info();
        format!("<hcq device {} ({}, sm_{})>", info.name, info.backend, info.sm_number())
    }
}

/// The bytes of one cubin.
fn image(code: &Bound<'_, PyAny>, sm: u32) -> Result<Vec<u8>, Failure> {
    if code.is_instance_of::<PyBytes>() || code.is_instance_of::<PyByteArray>() {
        return Ok(code.extract()?);
    }
    if code.extract::<String>().is_ok_and(|text| text.contains('\n')) {
        return Err(Failure::value("code: this is a text, and no path; hcq.Source(text) compiles PTX"));
    }
    if let Ok(path) = code.extract::<PathBuf>() {
        return std::fs::read(&path).map_err(|error| {
            let number = error.raw_os_error().unwrap_or(0);
            PyOSError::new_err((number, error.to_string(), path.display().to_string())).into()
        });
    }
    if code.hasattr("compile")? {
        return Ok(code.call_method1("compile", (format!("sm_{sm}"),))?.extract()?);
    }
    let kind = kind_of(code)?;
    Err(Failure::kind(format!("code: {kind} is no cubin; pass its bytes, its path or a hcq.Source")))
}
