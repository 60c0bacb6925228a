//! Types of elements: their names in numpy, their letters in the buffer protocol, their codes in DLPack.

use std::ffi::CStr;

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::failure::Failure;

/// A type of elements.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DType {
    /// As numpy names it.
    pub name: &'static str,
    /// As module `struct` writes it (source: Python, documentation of `struct`; numpy for complex numbers).
    pub format: &'static CStr,
    /// `DLDataTypeCode` (source: dmlc/dlpack, include/dlpack/dlpack.h).
    pub dlpack: u8,
    /// Bytes of an element.
    pub size: usize,
}

const INT: u8 = 0;
const UINT: u8 = 1;
const FLOAT: u8 = 2;
const COMPLEX: u8 = 5;
const BOOL: u8 = 6;

/// All types of elements.
pub(crate) static ALL: [DType; 14] = [
    DType { name: "uint8", format: c"B", dlpack: UINT, size: 1 },
    DType { name: "int8", format: c"b", dlpack: INT, size: 1 },
    DType { name: "bool", format: c"?", dlpack: BOOL, size: 1 },
    DType { name: "int16", format: c"h", dlpack: INT, size: 2 },
    DType { name: "uint16", format: c"H", dlpack: UINT, size: 2 },
    DType { name: "int32", format: c"i", dlpack: INT, size: 4 },
    DType { name: "uint32", format: c"I", dlpack: UINT, size: 4 },
    DType { name: "int64", format: c"q", dlpack: INT, size: 8 },
    DType { name: "uint64", format: c"Q", dlpack: UINT, size: 8 },
    DType { name: "float16", format: c"e", dlpack: FLOAT, size: 2 },
    DType { name: "float32", format: c"f", dlpack: FLOAT, size: 4 },
    DType { name: "float64", format: c"d", dlpack: FLOAT, size: 8 },
    DType { name: "complex64", format: c"Zf", dlpack: COMPLEX, size: 8 },
    DType { name: "complex128", format: c"Zd", dlpack: COMPLEX, size: 16 },
];

/// Bytes.
pub(crate) static BYTES: &DType = &ALL[0];

/// The type of a format of the buffer protocol, in the machine's order of bytes.
pub(crate) fn of_format(format: &CStr) -> Option<&'static DType> {
    let format = format.to_str().ok()?.trim_start_matches(['@', '=', '<']);
    let native = match format {
        // `long`, as numpy writes 64 bits; `char`, of Python's `bytes` in other hands.
        "l" => "q",
        "L" => "Q",
        "c" => "B",
        other => other,
    };
    ALL.iter().find(|dtype| dtype.format.to_str() == Ok(native))
}

/// The type that an argument `dtype` names: a name, or what numpy makes a dtype of.
pub(crate) fn of_argument(dtype: &Bound<'_, PyAny>) -> Result<&'static DType, Failure> {
    let known = |name: &str| ALL.iter().find(|dtype| dtype.name == name);
    let named = dtype.cast::<PyString>().ok().map(|name| name.to_string());
    if let Some(known) = named.as_deref().and_then(known) {
        return Ok(known);
    }
    // What else there is, such as "<f4" and numpy.float32, numpy knows.
    let numpy = dtype.py().import("numpy").and_then(|numpy| numpy.getattr("dtype")?.call1((dtype,)));
    let name = match (numpy, named) {
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
    let names: Vec<&str> = ALL.iter().map(|dtype| dtype.name).collect();
    Err(Failure::kind(format!("dtype {name} is not known here; there are {}", names.join(", "))))
}
