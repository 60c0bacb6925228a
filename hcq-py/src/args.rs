//! Arguments of launches: Python's objects as the bytes that a kernel's parameters take.

use half::f16;
use hcq::Args;
use hcq::cubin::Parameter;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFloat, PyInt, PyTuple};

use crate::buffer::BufferAt;
use crate::failure::{Failure, kind_of, shown};
use crate::foreign::Foreign;
use crate::memory::Buffer;

/// The parameters of a kernel, and its name. The library compares sizes and counts; here they say how many bytes a
/// number takes.
#[derive(Debug)]
pub(crate) struct Signature {
    pub kernel: String,
    /// As the cubin lists them; none where it has no list.
    pub parameters: Vec<Parameter>,
    /// Bytes of all of them.
    pub bytes: u32,
}

impl Signature {
    pub fn new(kernel: &hcq::Kernel) -> Self {
        let parameters = kernel.parameters().to_vec();
        Self { kernel: kernel.name().to_owned(), parameters, bytes: kernel.param_bytes() }
    }

    /// The arguments of a launch.
    pub fn args(&self, values: &Bound<'_, PyTuple>) -> Result<Args, Failure> {
        self.list(None, values)
    }

    /// Arguments in place of those from number `index` on.
    pub fn patch(&self, index: usize, values: &Bound<'_, PyTuple>) -> Result<Args, Failure> {
        self.list(Some(index), values)
    }

    fn list(&self, first: Option<usize>, values: &Bound<'_, PyTuple>) -> Result<Args, Failure> {
        let mut args = Args::new();
        for (i, value) in values.iter().enumerate() {
            let index = first.unwrap_or(0).saturating_add(i);
            let place = self.parameters.get(index);
            // A launch places each parameter where the compiler did. A patch has no places before it.
            let align = |offset: u16| 1_usize << offset.trailing_zeros().min(12);
            args = match self.value(index, &value)? {
                Value::Address(buffer, offset) => args.buffer_at(&buffer, offset),
                Value::Bytes(bytes) => {
                    let align = match place {
                        Some(parameter) if first.is_none() => align(parameter.offset),
                        _ => bytes.len().next_power_of_two().clamp(1, 8),
                    };
                    args.bytes(&bytes, align)
                }
            };
        }
        Ok(args)
    }

    /// Bytes of the parameter of a number; none where there is no list. Past the end of the list those of the widest
    /// number: the library refuses one argument too many.
    fn size(&self, index: usize) -> Option<usize> {
        let has_list = !self.parameters.is_empty() || self.bytes == 0;
        has_list.then(|| self.parameters.get(index).map_or(8, |parameter| parameter.size_bytes as usize))
    }

    fn value(&self, index: usize, value: &Bound<'_, PyAny>) -> Result<Value, Failure> {
        let here = || format!("argument {index} of {}", self.kernel);
        if let Ok(buffer) = value.cast::<Buffer>() {
            return Ok(Value::Address(buffer.get().get()?, 0));
        }
        if let Ok(place) = value.cast::<BufferAt>() {
            let (buffer, offset) = place.get().place()?;
            return Ok(Value::Address(buffer, offset));
        }
        if value.is_none() {
            return Ok(Value::Bytes(vec![0; 8]));
        }
        if let Ok(bytes) = value.cast::<PyBytes>() {
            return Ok(Value::Bytes(bytes.as_bytes().to_vec()));
        }
        let size = || {
            self.size(index).ok_or_else(|| {
                Failure::kind(format!(
                    "{}: the cubin does not list its parameters: pass a number with a type, such as hcq.u32(7)",
                    here()
                ))
            })
        };
        if let Ok(number) = value.cast::<PyInt>() {
            return integer(number, size()?, &here);
        }
        if let Ok(number) = value.cast_exact::<PyFloat>() {
            return float(number.extract()?, size()?, &here);
        }
        // A scalar with a type: of numpy, of ctypes, or a structure of theirs.
        match Foreign::of_value(value) {
            Some(scalar) if scalar.is_scalar() => match scalar.obstacle(value)? {
                Some(obstacle) => Err(Failure::kind(format!("{}: {obstacle}", here()))),
                None => Ok(Value::Bytes(scalar.bytes(value.py(), <[u8]>::to_vec)?)),
            },
            Some(_) => {
                Err(Failure::kind(format!("{}: an array of the CPU: pass device.buffer(array)", here())))
            }
            None => Err(Failure::kind(format!(
                "{}: {} is no argument: pass a buffer, a number, or a scalar with a type",
                here(),
                kind_of(value)?
            ))),
        }
    }
}

enum Value {
    Address(hcq::Buffer, u64),
    Bytes(Vec<u8>),
}

/// An integer in a parameter of 1 to 8 bytes, signed or not.
fn integer(number: &Bound<'_, PyInt>, size: usize, here: &dyn Fn() -> String) -> Result<Value, Failure> {
    if !matches!(size, 1 | 2 | 4 | 8) {
        return Err(Failure::kind(format!("{}: the parameter has {size} bytes, no number has", here())));
    }
    let bits = 8 * size as u32;
    let word = match number.extract::<u64>() {
        Ok(word) if word.checked_shr(bits).unwrap_or(0) == 0 => Some(word),
        Ok(_) => None,
        Err(_) => number.extract::<i64>().ok().filter(|n| *n >> (bits - 1) == -1).map(i64::cast_unsigned),
    };
    match word {
        Some(word) => Ok(Value::Bytes(word.to_le_bytes()[..size].to_vec())),
        None => {
            let text = format!("{}: {} does not fit into {size} bytes", here(), shown(number));
            Err(PyOverflowError::new_err(text).into())
        }
    }
}

/// A float in a parameter of 2, 4 or 8 bytes: rounded to that type.
fn float(number: f64, size: usize, here: &dyn Fn() -> String) -> Result<Value, Failure> {
    let (rounded, bytes) = match size {
        2 => (f16::from_f64(number).to_f64(), f16::from_f64(number).to_le_bytes().to_vec()),
        4 => (f64::from(number as f32), (number as f32).to_le_bytes().to_vec()),
        8 => (number, number.to_le_bytes().to_vec()),
        _ => return Err(Failure::kind(format!("{}: the parameter has {size} bytes, no float has", here()))),
    };
    if number.is_finite() && !rounded.is_finite() {
        let text = format!("{}: {number:?} does not fit into a float of {size} bytes", here());
        return Err(PyOverflowError::new_err(text).into());
    }
    Ok(Value::Bytes(bytes))
}
