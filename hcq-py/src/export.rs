//! Memory of buffers as other Python objects see it: the buffer protocol and DLPack.
//!
//! PyO3 offers the slots of the buffer protocol from Python 3.11 on, as `foreign` says; the interpreter has taken them
//! since 3.9 (source: CPython, Doc/c-api/type.rst, "Slots in PyBufferProcs"). So the class `HostBuffer`, a subclass of
//! `Buffer`, is made here.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::{self, NonNull};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi::{self, Py_ssize_t, PyObject};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

use crate::foreign::{FORMAT, ND, RawBuffer, STRIDES};
use crate::memory::Buffer;

/// The bit of `PyBUF_F_CONTIGUOUS` beside that of strides.
const F_CONTIGUOUS: c_int = 0x40;

/// `hcq.HostBuffer`.
pub(crate) fn host_type(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static TYPE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let made = TYPE.get_or_try_init(py, || {
        let mut slots = [
            ffi::PyType_Slot { slot: ffi::Py_bf_getbuffer, pfunc: get_buffer as *mut c_void },
            ffi::PyType_Slot { slot: ffi::Py_bf_releasebuffer, pfunc: release_buffer as *mut c_void },
            ffi::PyType_Slot { slot: ffi::Py_tp_doc, pfunc: DOC.as_ptr().cast_mut().cast() },
            ffi::PyType_Slot { slot: 0, pfunc: ptr::null_mut() },
        ];
        let mut spec = ffi::PyType_Spec {
            name: c"hcq._hcq.HostBuffer".as_ptr(),
            basicsize: 0,
            itemsize: 0,
            flags: ffi::Py_TPFLAGS_DEFAULT as c_uint,
            slots: slots.as_mut_ptr(),
        };
        let bases = PyTuple::new(py, [py.get_type::<Buffer>()])?;
        // SAFETY: the specification lives while the call runs, names and texts for ever; the base's layout is kept.
        let made = unsafe { ffi::PyType_FromSpecWithBases(&raw mut spec, bases.as_ptr()) };
        // SAFETY: a new reference, or none and an error.
        unsafe { Bound::from_owned_ptr_or_err(py, made) }.map(Bound::unbind)
    })?;
    Ok(made.bind(py))
}

const DOC: &std::ffi::CStr =
    c"A buffer in the CPU's memory, which the GPU reaches over its bus. memoryview, numpy and torch \
see it without a copy; while they do, close() refuses.";

/// # Safety
/// The interpreter calls it, with an instance of the type and a view to fill.
unsafe extern "C" fn get_buffer(object: *mut PyObject, view: *mut RawBuffer, flags: c_int) -> c_int {
    Python::attach(|py| {
        // SAFETY: the interpreter's promise.
        let object = unsafe { Bound::from_borrowed_ptr(py, object) };
        let shown = object.cast::<Buffer>().map_err(PyErr::from).and_then(|buffer| {
            if buffer.get().dtype().format.is_none() {
                let text =
                    "bfloat16 has no letter in the buffer protocol: from_dlpack of torch or jax shows it";
                return Err(PyBufferError::new_err(text));
            }
            if flags & (F_CONTIGUOUS | STRIDES) == F_CONTIGUOUS | STRIDES && buffer.get().shape().len() > 1 {
                return Err(PyBufferError::new_err("the buffer is stored row by row"));
            }
            let exported = buffer.get().export()?;
            let shape = buffer.get().shape_pointer();
            Ok((exported, shape, buffer.get()))
        });
        match shown {
            Ok((memory, (ndim, shape, strides), buffer)) => {
                let wants = |flag| flags & flag == flag;
                let dtype = buffer.dtype();
                // SAFETY: the interpreter's promise. The texts and numbers live as long as the buffer.
                unsafe {
                    view.write(RawBuffer {
                        buf: memory.as_ptr().cast(),
                        obj: object.clone().into_ptr(),
                        len: buffer.bytes() as Py_ssize_t,
                        itemsize: dtype.size as Py_ssize_t,
                        readonly: 0,
                        ndim: if wants(ND) { ndim } else { 1 },
                        format: match &dtype.format {
                            Some(format) if wants(FORMAT) => format.as_ptr().cast_mut(),
                            _ => ptr::null_mut::<c_char>(),
                        },
                        shape: if wants(ND) { shape } else { ptr::null_mut() },
                        strides: if wants(STRIDES) { strides } else { ptr::null_mut() },
                        suboffsets: ptr::null_mut(),
                        internal: ptr::null_mut(),
                    });
                }
                0
            }
            Err(error) => {
                // SAFETY: the interpreter's promise; who fails leaves no object.
                unsafe { (*view).obj = ptr::null_mut() };
                error.restore(py);
                -1
            }
        }
    })
}

/// # Safety
/// The interpreter calls it, with the object that filled the view.
unsafe extern "C" fn release_buffer(object: *mut PyObject, _view: *mut RawBuffer) {
    Python::attach(|py| {
        // SAFETY: the interpreter's promise.
        let object = unsafe { Bound::from_borrowed_ptr(py, object) };
        if let Ok(buffer) = object.cast::<Buffer>() {
            buffer.get().release();
        }
    });
}

/// `DLTensor` (source: dmlc/dlpack, include/dlpack/dlpack.h, for this and the following).
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: [i32; 2],
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`, of consumers that name no version.
#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: Tensor,
}

/// `kDLCPU`.
pub(crate) const CPU: i32 = 1;

/// The buffer that a tensor shows, kept until its consumer gives it back.
struct Shown(Py<Buffer>);

impl Drop for Shown {
    fn drop(&mut self) {
        // A consumer that is left when the interpreter has ended keeps the memory.
        Python::try_attach(|py| self.0.bind(py).get().release());
    }
}

/// A tensor with whom it belongs to; `T` is what the consumer sees of it, and comes first.
#[repr(C)]
struct Parcel<T> {
    seen: T,
    _shown: Shown,
    _shape: Box<[i64]>,
}

trait Capsule: Sized {
    const NAME: &'static std::ffi::CStr;
    fn seen(tensor: Tensor) -> Self;
}

impl Capsule for Managed {
    const NAME: &'static std::ffi::CStr = c"dltensor";
    fn seen(tensor: Tensor) -> Self {
        Self { tensor, context: ptr::null_mut(), deleter: Some(delete::<Self>) }
    }
}

impl Capsule for Versioned {
    const NAME: &'static std::ffi::CStr = c"dltensor_versioned";
    fn seen(tensor: Tensor) -> Self {
        let deleter = Some(delete::<Self> as unsafe extern "C" fn(*mut Self));
        Self { version: [1, 0], context: ptr::null_mut(), deleter, flags: 0, tensor }
    }
}

/// # Safety
/// `seen` is the first field of a [`Parcel`] that [`capsule`] has made, and is not used any more.
unsafe extern "C" fn delete<T>(seen: *mut T) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(seen.cast::<Parcel<T>>()) });
}

/// # Safety
/// The interpreter calls it, with a capsule of [`capsule`].
unsafe extern "C" fn discard<T: Capsule>(capsule: *mut PyObject) {
    // A consumer that has taken the tensor has renamed the capsule.
    // SAFETY: the interpreter's promise.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, T::NAME.as_ptr()) == 1 {
            delete::<T>(ffi::PyCapsule_GetPointer(capsule, T::NAME.as_ptr()).cast());
        }
    }
}

fn capsule<'py, T: Capsule>(buffer: &Bound<'py, Buffer>) -> PyResult<Bound<'py, PyAny>> {
    let py = buffer.py();
    let of = buffer.get();
    let dtype = of.dtype();
    let Some(code) = dtype.dlpack else {
        return Err(PyBufferError::new_err("DLPack has no structures: numpy.asarray shows them"));
    };
    let memory: NonNull<u8> = of.export()?;
    let shown = Shown(buffer.clone().unbind());
    let mut shape: Box<[i64]> = of.shape().iter().map(|side| *side as i64).collect();
    let tensor = Tensor {
        data: memory.as_ptr().cast(),
        device: [CPU, 0],
        ndim: shape.len() as i32,
        code,
        bits: (8 * dtype.size) as u8,
        lanes: 1,
        shape: shape.as_mut_ptr(),
        // None: in one piece, row by row.
        strides: ptr::null_mut(),
        byte_offset: 0,
    };
    let parcel = Box::into_raw(Box::new(Parcel { seen: T::seen(tensor), _shown: shown, _shape: shape }));
    // SAFETY: a pointer that is not null, a name that stays.
    unsafe {
        let made = ffi::PyCapsule_New(parcel.cast(), T::NAME.as_ptr(), Some(discard::<T>));
        if made.is_null() {
            drop(Box::from_raw(parcel));
        }
        Bound::from_owned_ptr_or_err(py, made)
    }
}

/// The capsule that `__dlpack__` answers with.
pub(crate) fn dlpack<'py>(
    buffer: &Bound<'py, Buffer>,
    max_version: Option<(u32, u32)>,
    dl_device: Option<(i32, i32)>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    if dl_device.is_some_and(|device| device != (CPU, 0)) || copy == Some(true) {
        return Err(PyBufferError::new_err("the memory is shown where it is: on the CPU, without a copy"));
    }
    match max_version {
        Some((1.., _)) => capsule::<Versioned>(buffer),
        _ => capsule::<Managed>(buffer),
    }
}
