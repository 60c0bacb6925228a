//! The memory of a buffer: who holds it, who views it.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi::Py_ssize_t;
use pyo3::prelude::*;

use crate::dtype::DType;
use crate::failure::Failure;
use crate::forks;

/// GPU memory, an array of elements of one type. Of `Device.buffer` and `Device.host_buffer`.
#[pyclass(frozen, subclass, weakref, module = "hcq._hcq")]
#[derive(Debug)]
pub(crate) struct Buffer {
    /// None once it was freed. Locked while the interpreter is held, and not longer.
    memory: Mutex<Option<hcq::Buffer>>,
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
    pub fn new(memory: hcq::Buffer, dtype: &'static DType, shape: &[usize]) -> Self {
        let mut strides = vec![dtype.size as Py_ssize_t; shape.len()];
        for i in (1..shape.len()).rev() {
            strides[i - 1] = strides[i] * shape[i] as Py_ssize_t;
        }
        Self {
            address: memory.va().raw(),
            bytes: memory.len(),
            memory: Mutex::new(Some(memory)),
            dtype,
            shape: shape.iter().map(|side| *side as Py_ssize_t).collect(),
            strides: strides.into(),
            exports: AtomicUsize::new(0),
        }
    }

    /// The buffer of the library.
    pub fn get(&self) -> Result<hcq::Buffer, Failure> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner).clone();
        memory.ok_or_else(|| {
            Python::attach(|py| Failure::own(py, "Freed", "HANDLE_FREED", "the buffer was freed before"))
        })
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
        forks::view(pointer, self.bytes as usize);
        Ok(pointer)
    }

    /// One view less.
    pub fn release(&self) {
        self.exports.fetch_sub(1, Ordering::Relaxed);
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
        self.get()?;
        let views = self.exports.load(Ordering::Relaxed);
        if views > 0 {
            let text = format!("the buffer has {views} views (memoryview, numpy, torch): drop them first");
            return Err(PyBufferError::new_err(text).into());
        }
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(memory);
        Ok(())
    }
}
