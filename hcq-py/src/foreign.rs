//! Memory of other Python objects, by the buffer protocol.
//!
//! `Py_buffer` and its functions became part of the stable ABI with Python 3.11, in the form that they have had since
//! 3.3 (source: CPython, Doc/data/stable_abi.dat; Include/object.h of 3.9, Include/cpython/object.h of 3.10,
//! Include/pybuffer.h of 3.11). PyO3 offers them from there on; this package serves 3.9.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi::{Py_ssize_t, PyObject};
use pyo3::prelude::*;

use crate::failure::Failure;

/// `Py_buffer`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RawBuffer {
    pub buf: *mut c_void,
    pub obj: *mut PyObject,
    pub len: Py_ssize_t,
    pub itemsize: Py_ssize_t,
    pub readonly: c_int,
    pub ndim: c_int,
    pub format: *mut c_char,
    pub shape: *mut Py_ssize_t,
    pub strides: *mut Py_ssize_t,
    pub suboffsets: *mut Py_ssize_t,
    pub internal: *mut c_void,
}

impl RawBuffer {
    const EMPTY: Self = Self {
        buf: ptr::null_mut(),
        obj: ptr::null_mut(),
        len: 0,
        itemsize: 0,
        readonly: 0,
        ndim: 0,
        format: ptr::null_mut(),
        shape: ptr::null_mut(),
        strides: ptr::null_mut(),
        suboffsets: ptr::null_mut(),
        internal: ptr::null_mut(),
    };
}

/// `PyBUF_WRITABLE`.
pub(crate) const WRITABLE: c_int = 0x1;
/// `PyBUF_FORMAT`.
pub(crate) const FORMAT: c_int = 0x4;
/// `PyBUF_ND`.
pub(crate) const ND: c_int = 0x8;
/// `PyBUF_STRIDES`.
pub(crate) const STRIDES: c_int = 0x10 | ND;

unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut PyObject, view: *mut RawBuffer, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut RawBuffer);
    fn PyBuffer_IsContiguous(view: *const RawBuffer, order: c_char) -> c_int;
    fn PyBuffer_ToContiguous(
        to: *mut c_void,
        view: *const RawBuffer,
        len: Py_ssize_t,
        order: c_char,
    ) -> c_int;
}

/// The memory of an object, which cannot go or move meanwhile.
#[derive(Debug)]
pub(crate) struct Foreign {
    // In a box: whoever fills it may keep its address.
    view: Box<RawBuffer>,
}

// SAFETY: the memory is the object's, which the view keeps; the view itself is touched with the interpreter alone.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

impl Drop for Foreign {
    fn drop(&mut self) {
        Python::attach(|_| {
            // SAFETY: filled by PyObject_GetBuffer, and released once.
            unsafe { PyBuffer_Release(&raw mut *self.view) }
        });
    }
}

/// Whether elements are, or have among their fields, objects of Python: the letter `O` outside the names of fields,
/// which stand between colons (source: PEP 3118).
fn has_objects(format: &CStr) -> bool {
    parts(format).any(|part| part.contains(&b'O'))
}

/// The letters of a format outside the names of fields, as parts between them.
fn parts(format: &CStr) -> impl Iterator<Item = &[u8]> {
    format.to_bytes().split(|byte| *byte == b':').step_by(2)
}

/// Whether an array or a scalar has the type that the package ml_dtypes adds to numpy, which has no letter in the buffer
/// protocol.
pub(crate) fn is_bfloat16(object: &Bound<'_, PyAny>) -> bool {
    let Ok(dtype) = object.getattr("dtype") else { return false };
    let is = |field: &str, wanted: &str| dtype.getattr(field).is_ok_and(|found| found.to_string() == wanted);
    is("name", "bfloat16") && is("itemsize", "2")
}

/// The same memory with another type, which has a letter.
fn with_letter<'py>(object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let array = || {
        object.py().import("numpy")?.getattr("asarray")?.call1((object,))?.call_method1("view", ("uint16",))
    };
    is_bfloat16(object).then(array)?.ok()
}

/// The array of numpy on the memory of an object that shows it by DLPack alone, such as a tensor of torch.
fn by_dlpack<'py>(object: &Bound<'py, PyAny>) -> Result<Option<Bound<'py, PyAny>>, Failure> {
    // numpy's own arrays have said before why they show no memory.
    match object.hasattr("__dlpack__")? && !object.hasattr("__array_interface__")? {
        true => Ok(Some(object.py().import("numpy")?.getattr("from_dlpack")?.call1((object,))?)),
        false => Ok(None),
    }
}

impl Foreign {
    fn with(object: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Self> {
        let mut view = Box::new(RawBuffer::EMPTY);
        // SAFETY: a live object, and a view to fill.
        match unsafe { PyObject_GetBuffer(object.as_ptr(), &raw mut *view, flags) } {
            0 => {
                let found = Self { view };
                match has_objects(found.format()) {
                    false => Ok(found),
                    true => {
                        Err(PyBufferError::new_err("the elements are Python objects, which are no bytes"))
                    }
                }
            }
            _ => Err(PyErr::fetch(object.py())),
        }
    }

    /// The memory of a value that has one of its own in the buffer protocol, for reading.
    pub fn of_value(object: &Bound<'_, PyAny>) -> Option<Self> {
        let flags = FORMAT | STRIDES;
        let by_letter = || Self::with(&with_letter(object)?, flags).ok();
        Self::with(object, flags).ok().or_else(by_letter)
    }

    /// The memory of an argument `data`, for reading.
    pub fn read(data: &Bound<'_, PyAny>) -> Result<Self, Failure> {
        if let Some(found) = Self::of_value(data) {
            return Ok(found);
        }
        let shown = by_dlpack(data)?.and_then(|array| Self::of_value(&array));
        shown.ok_or_else(|| {
            let kind = data.get_type().to_string();
            Failure::kind(format!("data: {kind} has no memory to copy from; pass a numpy array or bytes"))
        })
    }

    /// The memory of an argument `target` for writing, in one piece.
    pub fn write(target: &Bound<'_, PyAny>) -> Result<Self, Failure> {
        let flags = WRITABLE | FORMAT | STRIDES;
        let target = &with_letter(target).unwrap_or_else(|| target.clone());
        let found = match (Self::with(target, flags), by_dlpack(target)) {
            (Ok(found), _) => found,
            (_, Ok(Some(array))) => Self::with(&array, flags)?,
            (_, Err(error)) => return Err(error),
            (Err(error), Ok(None)) => {
                let (kind, text) = (error.get_type(target.py()), error.value(target.py()).to_string());
                return Err(PyErr::from_type(kind, format!("target: {text}")).into());
            }
        };
        match found.is_contiguous() {
            true => Ok(found),
            false => Err(PyBufferError::new_err("target: it is not contiguous; read into a copy").into()),
        }
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.view.len.unsigned_abs()
    }

    /// Its dimensions; none for a scalar.
    pub fn shape(&self) -> Vec<usize> {
        let count = self.view.ndim.unsigned_abs() as usize;
        if count == 0 || self.view.shape.is_null() {
            return if count == 0 { vec![] } else { vec![self.len()] };
        }
        // SAFETY: who filled the view has written so many.
        let shape = unsafe { std::slice::from_raw_parts(self.view.shape, count) };
        shape.iter().map(|side| side.unsigned_abs()).collect()
    }

    /// Whether it is one value, and no array.
    pub fn is_scalar(&self) -> bool {
        self.view.ndim == 0
    }

    /// The letters of its elements.
    pub fn format(&self) -> &CStr {
        match self.view.format.is_null() {
            true => c"B",
            // SAFETY: a text that ends, for as long as the view.
            false => unsafe { CStr::from_ptr(self.view.format) },
        }
    }

    /// The reason that keeps a value, whose memory it is, from being the bytes that a kernel takes for it.
    pub fn obstacle(&self, value: &Bound<'_, PyAny>) -> PyResult<Option<&'static str>> {
        let letters: Vec<u8> = parts(self.format()).flatten().copied().collect();
        let text = String::from_utf8_lossy(&letters);
        // Beside module `struct`'s letters: those of PEP 3118, and `z` and `Z` of ctypes (source: CPython,
        // Modules/_ctypes/_ctypes.c, c_char_p and c_wchar_p). numpy's complex numbers are a `Z` and a letter.
        let complex = text.replace("Zf", "").replace("Zd", "").replace("Zg", "");
        if complex.contains(['&', 'X', 'z', 'Z']) {
            return Ok(Some("an address of the CPU: pass device.buffer(array)"));
        }
        if text.contains(['>', '!']) || value.hasattr("_swappedbytes_")? {
            return Ok(Some("its bytes have the order of another machine: pass them in this one's"));
        }
        if text.contains(['w', 'u']) {
            return Ok(Some("a text: pass its bytes"));
        }
        if value.getattr("mask").is_ok_and(|mask| mask.is_truthy().unwrap_or(false)) {
            return Ok(Some("a masked value: pass one that is there"));
        }
        // Of unions and packed structures ctypes has no letters.
        if let ("B", Ok(fields)) = (&*text, value.getattr("_fields_")) {
            for field in fields.try_iter()? {
                let part = field?.get_item(1)?.call0()?;
                if let Some(found) =
                    Self::of_value(&part).map(|memory| memory.obstacle(&part)).transpose()?.flatten()
                {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    fn is_contiguous(&self) -> bool {
        // SAFETY: a filled view.
        unsafe { PyBuffer_IsContiguous(&raw const *self.view, b'C' as c_char) == 1 }
    }

    /// Shows its bytes to `look`, those of an array with gaps as a copy.
    pub fn bytes<R>(&self, py: Python<'_>, look: impl FnOnce(&[u8]) -> R) -> PyResult<R> {
        if self.len() == 0 {
            return Ok(look(&[]));
        }
        if !self.is_contiguous() {
            let mut copy = vec![0_u8; self.len()];
            // SAFETY: room for so many bytes, and a filled view.
            let done = unsafe {
                let len = self.view.len;
                PyBuffer_ToContiguous(copy.as_mut_ptr().cast(), &raw const *self.view, len, b'C' as c_char)
            };
            return if done == 0 { Ok(look(&copy)) } else { Err(PyErr::fetch(py)) };
        }
        // SAFETY: so many bytes are there as long as the view is. A thread of the program that changes them meanwhile
        // changes the copy's bytes, as everywhere in Python where the interpreter is released.
        Ok(look(unsafe { std::slice::from_raw_parts(self.view.buf.cast::<u8>(), self.len()) }))
    }

    /// Its bytes, to be written; of a view from [`write`](Self::write).
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if self.len() == 0 {
            return &mut [];
        }
        // SAFETY: as above; it was asked for as writable and in one piece.
        unsafe { std::slice::from_raw_parts_mut(self.view.buf.cast::<u8>(), self.len()) }
    }
}
