//! Types of elements: their names in numpy, their letters in the buffer protocol, their codes in DLPack.

use std::borrow::Cow;
use std::ffi::CStr;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::failure::Failure;
use crate::foreign::{Foreign, is_bfloat16};

/// A type of elements. There is one object of each: they are compared by their place.
#[derive(Debug)]
pub(crate) struct DType {
    /// As numpy names it.
    pub name: Cow<'static, str>,
    /// As module `struct` writes it (source: Python, documentation of `struct`; numpy for complex numbers, and for
    /// structures PEP 3118). None where there is no way to.
    pub format: Option<Cow<'static, CStr>>,
    /// `DLDataTypeCode` (source: dmlc/dlpack, include/dlpack/dlpack.h). None for structures.
    pub dlpack: Option<u8>,
    /// Bytes of an element.
    pub size: usize,
    /// Of a structure: the type as numpy has it.
    structure: Option<Py<PyAny>>,
}

impl PartialEq for DType {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl DType {
    const fn plain(name: &'static str, format: Option<&'static CStr>, dlpack: u8, size: usize) -> Self {
        let format = match format {
            Some(format) => Some(Cow::Borrowed(format)),
            None => None,
        };
        Self { name: Cow::Borrowed(name), format, dlpack: Some(dlpack), size, structure: None }
    }

    /// The type for a program: its name, or that of numpy for a structure.
    pub fn shown<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        match &self.structure {
            Some(structure) => structure.bind(py).clone(),
            None => PyString::new(py, &self.name).into_any(),
        }
    }

    /// The type for numpy, which has no bfloat16 of its own.
    pub fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if self != BFLOAT16 {
            return Ok(self.shown(py));
        }
        let types = py.import("ml_dtypes").map_err(|_| {
            PyImportError::new_err(
                "an array of bfloat16 needs the package ml_dtypes: install it, or read_into an array of uint16",
            )
        })?;
        types.getattr("bfloat16")
    }
}

const INT: u8 = 0;
const UINT: u8 = 1;
const FLOAT: u8 = 2;
const BFLOAT: u8 = 4;
const COMPLEX: u8 = 5;
const BOOL: u8 = 6;

/// All types of numbers.
pub(crate) static ALL: [DType; 15] = [
    DType::plain("uint8", Some(c"B"), UINT, 1),
    DType::plain("int8", Some(c"b"), INT, 1),
    DType::plain("bool", Some(c"?"), BOOL, 1),
    DType::plain("int16", Some(c"h"), INT, 2),
    DType::plain("uint16", Some(c"H"), UINT, 2),
    DType::plain("int32", Some(c"i"), INT, 4),
    DType::plain("uint32", Some(c"I"), UINT, 4),
    DType::plain("int64", Some(c"q"), INT, 8),
    DType::plain("uint64", Some(c"Q"), UINT, 8),
    DType::plain("float16", Some(c"e"), FLOAT, 2),
    DType::plain("bfloat16", None, BFLOAT, 2),
    DType::plain("float32", Some(c"f"), FLOAT, 4),
    DType::plain("float64", Some(c"d"), FLOAT, 8),
    DType::plain("complex64", Some(c"Zf"), COMPLEX, 8),
    DType::plain("complex128", Some(c"Zd"), COMPLEX, 16),
];

/// The structures that the program has used so far; they stay.
static STRUCTURES: Mutex<Vec<&'static DType>> = Mutex::new(Vec::new());

/// Bytes.
pub(crate) static BYTES: &DType = &ALL[0];

/// The type that numpy and the buffer protocol do not have.
static BFLOAT16: &DType = &ALL[10];

/// The type of a format of the buffer protocol, in the machine's order of bytes.
fn of_format(format: &CStr) -> Option<&'static DType> {
    let format = format.to_str().ok()?.trim_start_matches(['@', '=', '<']);
    let native = match format {
        // `long`, as numpy writes 64 bits; `char`, of Python's `bytes` in other hands.
        "l" => "q",
        "L" => "Q",
        "c" => "B",
        other => other,
    };
    ALL.iter().find(|dtype| dtype.format.as_deref().and_then(|own| own.to_str().ok()) == Some(native))
}

/// The type of the elements of `data`, which has that memory.
pub(crate) fn of_memory(data: &Bound<'_, PyAny>, memory: &Foreign) -> Result<&'static DType, Failure> {
    if is_bfloat16(data) {
        return Ok(BFLOAT16);
    }
    if let Some(known) = of_format(memory.format()) {
        return Ok(known);
    }
    if memory.format().to_bytes().starts_with(b"T{") {
        let array = data.py().import("numpy")?.getattr("asarray")?.call1((data,))?;
        return structure(&array.getattr("dtype")?, memory);
    }
    let format = memory.format().to_string_lossy();
    Err(Failure::kind(format!(
        "data: elements of format {format:?} are not known here; pass them as bytes, such as array.view(\"uint8\")"
    )))
}

/// The type of a structure, which numpy has as `numpy` and `memory` is an array of.
fn structure(numpy: &Bound<'_, PyAny>, memory: &Foreign) -> Result<&'static DType, Failure> {
    let all = || STRUCTURES.lock().unwrap_or_else(PoisonError::into_inner);
    // Compared without the lock: what compares is Python's.
    let known = all().clone();
    for dtype in known {
        if dtype.structure.as_ref().is_some_and(|own| own.bind(numpy.py()).eq(numpy).unwrap_or(false)) {
            return Ok(dtype);
        }
    }
    let dtype: &DType = Box::leak(Box::new(DType {
        name: Cow::Owned(numpy.str()?.to_string()),
        format: Some(Cow::Owned(memory.format().to_owned())),
        dlpack: None,
        size: numpy.getattr("itemsize")?.extract()?,
        structure: Some(numpy.clone().unbind()),
    }));
    all().push(dtype);
    Ok(dtype)
}

/// The type that an argument `dtype` names: a name, or what numpy makes a dtype of.
pub(crate) fn of_argument(dtype: &Bound<'_, PyAny>) -> Result<&'static DType, Failure> {
    let known = |name: &str| ALL.iter().find(|dtype| dtype.name == name);
    // torch's types are known by their names, which begin with its own.
    let named = match dtype.cast::<PyString>() {
        Ok(name) => Some(name.to_string()),
        Err(_) => dtype.str()?.to_string().strip_prefix("torch.").map(str::to_owned),
    };
    if let Some(known) = named.as_deref().and_then(known) {
        return Ok(known);
    }
    // What else there is, such as "<f4" and numpy.float32, numpy knows.
    let numpy = dtype.py().import("numpy").and_then(|numpy| numpy.getattr("dtype")?.call1((dtype,)));
    let name = match (numpy, named) {
        (Ok(numpy), _) if !numpy.getattr("names")?.is_none() => {
            let array = dtype.py().import("numpy")?.getattr("empty")?.call1((1, &numpy))?;
            if let Ok(memory) = Foreign::read(&array) {
                return structure(&numpy, &memory);
            }
            numpy.str()?.to_string()
        }
        (Ok(numpy), _) if numpy.getattr("isnative")?.extract()? => {
            let name = numpy.getattr("name")?.to_string();
            if let Some(known) = known(&name) {
                return Ok(known);
            }
            name
        }
        (Ok(numpy), _) => numpy.str()?.to_string(),
        (Err(_), Some(name)) => name,
        (Err(error), None) => return Err(error.into()),
    };
    let names: Vec<&str> = ALL.iter().map(|dtype| &*dtype.name).collect();
    Err(Failure::kind(format!(
        "dtype: {name} is not known here; there are {}, and numpy's structures of these",
        names.join(", ")
    )))
}
