//! Buffers: memory that a program fills, names in launches, and reads back.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::away::{away, seconds};
use crate::dtype::DType;
use crate::export;
use crate::failure::{Failure, leave};
use crate::foreign::Foreign;
use crate::gpu::Gpu;
use crate::memory::Buffer;

/// The parts of a buffer that is to be made. No program has one, so buffers come from devices alone.
#[pyclass(frozen, module = "hcq._hcq")]
#[derive(Debug)]
pub(crate) struct Made(Mutex<Option<Buffer>>);

/// A buffer of Python around one of the library: a `HostBuffer` where the memory is the CPU's.
pub(crate) fn wrap<'py>(
    py: Python<'py>,
    gpu: &Arc<Gpu>,
    memory: hcq::Buffer,
    dtype: &'static DType,
    shape: &[usize],
) -> Result<Bound<'py, Buffer>, Failure> {
    let is_host = memory.host_pointer().is_some();
    let buffer = Buffer::new(gpu, memory, dtype, shape)?;
    if !is_host {
        return Ok(Bound::new(py, buffer)?);
    }
    let made = Bound::new(py, Made(Mutex::new(Some(buffer))))?;
    Ok(export::host_type(py)?.call1((made,))?.cast_into::<Buffer>().map_err(PyErr::from)?)
}

#[pymethods]
impl Buffer {
    #[new]
    fn py_new(made: &Bound<'_, Made>) -> Result<Self, Failure> {
        let made = made.get().0.lock().unwrap_or_else(PoisonError::into_inner).take();
        made.ok_or_else(|| Failure::kind("buffers are made by Device.buffer and Device.host_buffer"))
    }

    /// Lengths of the sides.
    #[getter(shape)]
    fn py_shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.shape())
    }

    /// Type of the elements, as numpy names it; of a structure numpy's own type.
    #[getter(dtype)]
    fn py_dtype<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.dtype().shown(py)
    }

    /// Length in bytes.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.bytes()
    }

    /// GPU address.
    #[getter(address)]
    fn py_address(&self) -> u64 {
        self.address()
    }

    /// Whether it, or its device, is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.is_closed()
    }

    fn __len__(&self) -> Result<usize, Failure> {
        let first =
            self.shape().first().ok_or_else(|| Failure::kind("a buffer without sides has no len()"))?;
        Ok(first.unsigned_abs())
    }

    fn __repr__(&self) -> String {
        let closed = if self.is_closed() { ", closed" } else { "" };
        let shape: Vec<String> = self.shape().iter().map(ToString::to_string).collect();
        format!(
            "<hcq buffer of {} {} at {:#x}{closed}>",
            shape.join(" x "),
            self.dtype().name,
            self.address()
        )
    }

    /// The address `offset` bytes into the buffer, as an argument of a launch.
    fn at(slf: &Bound<'_, Self>, offset: u64) -> Result<BufferAt, Failure> {
        slf.get().get()?;
        Ok(BufferAt { buffer: slf.clone().unbind(), offset })
    }

    /// Copies the buffer into a new numpy array, after the submissions that name it have ended.
    fn read<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Failure> {
        let buffer = self.settled(py)?;
        let numpy = py.import("numpy")?;
        let fields = PyDict::new(py);
        fields.set_item("dtype", self.dtype().numpy(py)?)?;
        let array = numpy.getattr("empty")?.call((PyTuple::new(py, self.shape())?,), Some(&fields))?;
        let mut target = Foreign::write(&array)?;
        let bytes = target.bytes_mut();
        away(py, || buffer.read(0, bytes))?;
        Ok(array)
    }

    /// A copy for numpy, as `read` makes it. Memory of the CPU it sees without one.
    #[pyo3(signature = (dtype = None, copy = None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>, Failure> {
        if copy == Some(false) {
            return Err(Failure::value("the memory of a GPU cannot be seen without a copy"));
        }
        let array = self.read(py)?;
        match dtype {
            Some(dtype) => Ok(array.call_method1("astype", (dtype,))?),
            None => Ok(array),
        }
    }

    /// Copies `size` bytes from `offset` on.
    #[pyo3(signature = (offset = 0, size = None))]
    fn read_bytes<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        size: Option<u64>,
    ) -> Result<Bound<'py, PyBytes>, Failure> {
        let buffer = self.get()?;
        let size = size.unwrap_or_else(|| self.bytes().saturating_sub(offset));
        if offset.checked_add(size).is_none_or(|end| end > self.bytes()) {
            // Refused before so much is allocated.
            let error =
                hcq::MemoryError::OutOfBounds { what: "buffer", offset, len: size, size: self.bytes() };
            return Err(hcq::Error::from(error).into());
        }
        self.settled(py)?;
        Ok(PyBytes::new_with(py, size as usize, |bytes| {
            away(py, || buffer.read(offset, bytes)).map_err(|error| Failure::from(error).into())
        })?)
    }

    /// Waits for the submissions that name the buffer, at most `timeout` seconds, before a view of it is read or
    /// written. Ctrl-C ends the wait.
    #[pyo3(signature = (timeout = 60.0))]
    fn wait(&self, py: Python<'_>, timeout: f64) -> Result<(), Failure> {
        self.settle(py, seconds(timeout, "timeout")?)
    }

    /// Fills `target`, an object with writable memory, from `offset` bytes on.
    #[pyo3(signature = (target, offset = 0))]
    fn read_into(&self, py: Python<'_>, target: &Bound<'_, PyAny>, offset: u64) -> Result<(), Failure> {
        let mut target = Foreign::write(target)?;
        let (buffer, bytes) = (self.settled(py)?, target.bytes_mut());
        Ok(away(py, || buffer.read(offset, bytes))?)
    }

    /// Copies `data`, an object with memory, to `offset` bytes on.
    #[pyo3(signature = (data, offset = 0))]
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>, offset: u64) -> Result<(), Failure> {
        let source = Foreign::read(data)?;
        let buffer = self.settled(py)?;
        source.bytes(py, |bytes| away(py, || buffer.write(offset, bytes)))?.map_err(Failure::from)
    }

    /// Names the buffer in what the checks of the software GPU find.
    fn set_name(&self, name: &str) -> Result<(), Failure> {
        self.get()?.set_name(name);
        Ok(())
    }

    /// Gives the memory back, once the work that names it has ended; later uses are errors. Refused while another object
    /// views it. Closing twice is no error.
    fn close(&self) -> Result<(), Failure> {
        self.give_back()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Closes it, as `close` does. Where an exception ends the block, that is the one that is seen.
    #[pyo3(signature = (*ended))]
    fn __exit__(&self, ended: &Bound<'_, PyTuple>) -> Result<(), Failure> {
        leave(ended, self.close())
    }

    /// The memory as a DLPack capsule, for `numpy.from_dlpack` and `torch.from_dlpack`.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream.is_some() {
            return Err(PyBufferError::new_err("memory of the CPU has no stream"));
        }
        export::dlpack(slf, max_version, dl_device, copy)
    }

    /// The device of the memory, in DLPack's numbers.
    fn __dlpack_device__(&self) -> PyResult<(i32, i32)> {
        self.export()?;
        self.release();
        Ok((export::CPU, 0))
    }
}

/// A place in a buffer, as an argument of a launch. Of `Buffer.at`.
#[pyclass(frozen, module = "hcq._hcq")]
#[derive(Debug)]
pub(crate) struct BufferAt {
    buffer: Py<Buffer>,
    offset: u64,
}

impl BufferAt {
    /// The buffer of the library, and the bytes into it.
    pub fn place(&self) -> Result<(hcq::Buffer, u64), Failure> {
        Ok((self.buffer.get().get()?, self.offset))
    }
}

#[pymethods]
impl BufferAt {
    /// GPU address.
    #[getter]
    fn address(&self) -> u64 {
        self.buffer.get().address().wrapping_add(self.offset)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<{} bytes into {}>", self.offset, self.buffer.bind(py).get().__repr__())
    }
}
