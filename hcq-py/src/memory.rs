//! The memory of a buffer: who holds it, who views it.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi::Py_ssize_t;
use pyo3::prelude::*;

use crate::away::patiently;
use crate::dtype::DType;
use crate::failure::Failure;
use crate::forks;
use crate::gpu::Gpu;
use crate::held::Held;

/// GPU memory, an array of elements of one type. Of `Device.buffer` and `Device.host_buffer`.
#[pyclass(frozen, subclass, weakref, module = "hcq._hcq")]
#[derive(Debug)]
pub(crate) struct Buffer {
    gpu: Arc<Gpu>,
    memory: Held<hcq::Buffer>,
    address: u64,
    bytes: u64,
    dtype: &'static DType,
    shape: Box<[Py_ssize_t]>,
    /// Bytes from one element to the next, along each side.
    strides: Box<[Py_ssize_t]>,
    /// Views of other objects.
    exports: AtomicUsize,
}

impl Buffer {
    /// A buffer of Python around one of the library; not yet an object of Python.
    pub fn new(
        gpu: &Arc<Gpu>,
        memory: hcq::Buffer,
        dtype: &'static DType,
        shape: &[usize],
    ) -> Result<Self, Failure> {
        let mut strides = vec![dtype.size as Py_ssize_t; shape.len()];
        for i in (1..shape.len()).rev() {
            strides[i - 1] = strides[i] * shape[i] as Py_ssize_t;
        }
        Ok(Self {
            address: memory.va().raw(),
            bytes: memory.len(),
            memory: gpu.hold("buffer", memory)?,
            gpu: gpu.clone(),
            dtype,
            shape: shape.iter().map(|side| *side as Py_ssize_t).collect(),
            strides: strides.into(),
            exports: AtomicUsize::new(0),
        })
    }

    /// The buffer of the library.
    pub fn get(&self) -> Result<hcq::Buffer, Failure> {
        self.memory.get()
    }

    /// Whether it, or its device, is closed.
    pub fn is_closed(&self) -> bool {
        self.memory.is_closed()
    }

    /// Waits for the submissions that name the buffer, at most `limit`.
    pub fn settle(&self, py: Python<'_>, limit: Duration) -> Result<(), Failure> {
        let memory = self.get()?;
        patiently(py, limit, |part| memory.wait(part).map(Some))
    }

    /// The buffer of the library, once the submissions that name it have ended, within the device's patience.
    pub fn settled(&self, py: Python<'_>) -> Result<hcq::Buffer, Failure> {
        self.settle(py, self.gpu.patience)?;
        self.get()
    }

    /// The CPU's address of its memory, which stays until it is given back by [`release`](Self::release).
    pub fn export(&self) -> PyResult<NonNull<u8>> {
        let pointer = self.get()?.host_pointer().ok_or_else(|| {
            PyBufferError::new_err(
                "the buffer is GPU memory, or its device belongs to the process that this one was forked from: \
                 read() copies it, and Device.host_buffer allocates what both sides see",
            )
        })?;
        self.exports.fetch_add(1, Ordering::Relaxed);
        self.gpu.view();
        forks::view(pointer, self.bytes as usize);
        Ok(pointer)
    }

    /// One view less.
    pub fn release(&self) {
        self.exports.fetch_sub(1, Ordering::Relaxed);
        self.gpu.end_view();
        // In a fork there is no such pointer, and no table to keep.
        if let Some(pointer) = self.get().ok().and_then(|buffer| buffer.host_pointer()) {
            forks::end_view(pointer);
        }
    }

    /// The number of sides, their lengths and their strides, for as long as the buffer lives.
    pub fn shape_pointer(&self) -> (i32, *mut Py_ssize_t, *mut Py_ssize_t) {
        (self.shape.len() as i32, self.shape.as_ptr().cast_mut(), self.strides.as_ptr().cast_mut())
    }

    /// The type of its elements.
    pub fn dtype(&self) -> &'static DType {
        self.dtype
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The lengths of its sides.
    pub fn shape(&self) -> &[Py_ssize_t] {
        &self.shape
    }

    /// The GPU address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Gives the memory back; refused while there are views.
    pub fn give_back(&self) -> Result<(), Failure> {
        let views = self.exports.load(Ordering::Relaxed);
        if views > 0 {
            let text = format!("the buffer has {views} views (memoryview, numpy, torch): drop them first");
            return Err(PyBufferError::new_err(text).into());
        }
        drop(self.memory.take());
        Ok(())
    }
}
