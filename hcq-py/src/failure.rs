//! Errors of the library as exceptions, whose classes are those of `hcq/errors.py`.

use std::fmt::Debug;

use hcq::{Error, FaultKind, FaultReport, LaunchError, ProgramError, QueueError};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyInt, PyTuple};

use crate::explain::explain;

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    Hcq(Error),
    Python(PyErr),
}

impl Failure {
    /// A value that the call does not take.
    pub fn value(text: impl Into<String>) -> Self {
        Self::Python(PyValueError::new_err(text.into()))
    }

    /// An object that the call does not take.
    pub fn kind(text: impl Into<String>) -> Self {
        Self::Python(PyTypeError::new_err(text.into()))
    }

    /// An error that is this package's own: a class of `hcq/errors.py`, a code, a text.
    pub fn own(py: Python<'_>, class: &str, code: &str, text: &str) -> Self {
        Self::Python(exception(py, class, code, text, None, None).unwrap_or_else(|error| error))
    }
}

/// The end of a `with` block whose object was closed: where an exception ends the block, that is the one that is seen.
pub(crate) fn leave(ended: &Bound<'_, PyTuple>, closed: Result<(), Failure>) -> Result<(), Failure> {
    match ended.get_item(0).is_ok_and(|kind| !kind.is_none()) {
        true => Ok(()),
        false => closed,
    }
}

/// The name of an object's type, with its article.
pub(crate) fn kind_of(object: &Bound<'_, PyAny>) -> PyResult<String> {
    let name = object.get_type().name()?.to_string();
    let article =
        if name.starts_with(['a', 'e', 'i', 'o', 'u', 'A', 'E', 'I', 'O', 'U']) { "an" } else { "a" };
    Ok(format!("{article} {name}"))
}

/// An object as errors show it: of integers that no parameter takes, however long, the bits. Python prints no more than
/// some thousand digits.
pub(crate) fn shown(object: &Bound<'_, PyAny>) -> String {
    let bits = object.cast::<PyInt>().ok().and_then(|number| number.call_method0("bit_length").ok());
    match bits.and_then(|bits| bits.extract::<u64>().ok()) {
        Some(bits) if bits > 128 => format!("an integer of {bits} bits"),
        _ => object.to_string(),
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Hcq(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Python(error) => error,
            Failure::Hcq(error) => {
                Python::attach(|py| of_library(py, &error).unwrap_or_else(|mistake| mistake))
            }
        }
    }
}

/// The name of a variant, as a derived `Debug` begins: `OutOfMemory` becomes `OUT_OF_MEMORY`, as `hcq.h` writes it.
fn code(group: &str, error: &impl Debug) -> String {
    let text = format!("{error:?}");
    let mut code = group.to_owned();
    for letter in text.chars().take_while(char::is_ascii_alphanumeric) {
        if letter.is_ascii_uppercase() {
            code.push('_');
        }
        code.push(letter.to_ascii_uppercase());
    }
    code
}

/// The class and the code of an error.
fn class(error: &Error) -> (&'static str, String) {
    use hcq::MemoryError::{OutOfAddresses, OutOfMemory, ProcessLimit};
    match error {
        Error::Open(e) => ("OpenError", code("OPEN", e)),
        Error::Driver(e) => ("DriverError", code("DRIVER", e)),
        Error::Memory(e @ (OutOfMemory { .. } | OutOfAddresses { .. } | ProcessLimit { .. })) => {
            ("OutOfMemory", code("MEMORY", e))
        }
        Error::Memory(e) => ("RangeError", code("MEMORY", e)),
        Error::Program(ProgramError::Cubin(e)) => ("ProgramError", code("CUBIN", e)),
        Error::Program(e @ ProgramError::NoKernel { .. }) => ("NoKernel", code("PROGRAM", e)),
        Error::Program(e) => ("ProgramError", code("PROGRAM", e)),
        Error::Launch(
            e @ (LaunchError::Arguments { .. }
            | LaunchError::ArgumentCount { .. }
            | LaunchError::ArgumentWidth { .. }
            | LaunchError::ArgumentPlace { .. }
            | LaunchError::NoArgument { .. }),
        ) => ("ArgumentError", code("LAUNCH", e)),
        Error::Launch(e) => ("LaunchError", code("LAUNCH", e)),
        Error::Queue(e @ QueueError::Timeout { .. }) => ("Timeout", code("QUEUE", e)),
        Error::Queue(e) => ("QueueError", code("QUEUE", e)),
        Error::ForeignDevice { .. } => ("ForeignDevice", "FOREIGN_DEVICE".to_owned()),
        Error::Forked { .. } => ("Forked", "FORKED".to_owned()),
        Error::Fault(_) => ("GpuFault", "FAULT".to_owned()),
        Error::Lost(_) => ("DeviceLost", "LOST".to_owned()),
        _ => ("Error", "OTHER".to_owned()),
    }
}

fn of_library(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let (class, code) = class(error);
    // The message and its causes; the hint is a line of its own, which the exception has apart.
    let text = format!("{error:?}");
    let text = text.rsplit_once("\n  hint: ").map_or(&*text, |(text, _)| text);
    let fault = match error {
        Error::Fault(report) | Error::Lost(report) => Some(fault(py, report)?),
        _ => None,
    };
    exception(py, class, &code, text, error.hint(), fault)
}

fn exception(
    py: Python<'_>,
    class: &str,
    code: &str,
    text: &str,
    hint: Option<&str>,
    fault: Option<Bound<'_, PyAny>>,
) -> PyResult<PyErr> {
    let class = py.import("hcq.errors")?.getattr(class)?;
    let exception = class.call1((text,))?;
    exception.setattr("code", code)?;
    exception.setattr("hint", hint)?;
    if let Some(fault) = fault {
        exception.setattr("fault", fault)?;
    }
    Ok(PyErr::from_value(exception))
}

/// An instance of a data class of `hcq/facts.py`.
pub(crate) fn fact<'py>(
    py: Python<'py>,
    class: &str,
    fields: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import("hcq.facts")?.getattr(class)?.call((), Some(fields))
}

/// The name of a kind of fault, and the code that goes with it.
fn kind(kind: FaultKind) -> (String, Option<u32>) {
    let code = match kind {
        FaultKind::Mmu { fault_type } => fault_type,
        FaultKind::SmException { code } | FaultKind::Other { code } => Some(code),
        _ => None,
    };
    (code_name(kind), code)
}

fn code_name(kind: FaultKind) -> String {
    code("", &kind).trim_start_matches('_').to_owned()
}

fn fault<'py>(py: Python<'py>, report: &FaultReport) -> PyResult<Bound<'py, PyAny>> {
    let (kind, code) = kind(report.kind);
    let nearest = report.nearest.as_ref();
    let core =
        report.core.as_ref().and_then(|core| core.as_ref().ok()).map(|core| core.display().to_string());
    let fields = [
        ("kind", kind.into_pyobject(py)?.into_any()),
        ("code", code.into_pyobject(py)?.into_any()),
        ("address", report.address.map(|address| address.raw()).into_pyobject(py)?),
        ("kernel", report.kernel.clone().into_pyobject(py)?.into_any()),
        ("in_flight", report.in_flight.clone().into_pyobject(py)?.into_any()),
        ("pc", report.pc.into_pyobject(py)?),
        ("offset", report.offset.into_pyobject(py)?),
        ("instruction", report.instruction.clone().into_pyobject(py)?.into_any()),
        ("nearest", nearest.map(|nearest| nearest.what).into_pyobject(py)?.into_any()),
        ("nearest_address", nearest.map(|nearest| nearest.va.raw()).into_pyobject(py)?),
        ("nearest_size", nearest.map(|nearest| nearest.len).into_pyobject(py)?),
        ("nearest_distance", nearest.map(|nearest| nearest.distance).into_pyobject(py)?),
        ("explanation", report.explanation.clone().into_pyobject(py)?.into_any()),
        ("account", explain(report).into_pyobject(py)?.into_any()),
        ("notifier", report.raw.notifier.into_pyobject(py)?.into_any()),
        ("log", report.raw.log.clone().into_pyobject(py)?.into_any()),
        ("core", core.into_pyobject(py)?.into_any()),
        ("report", report.to_string().into_pyobject(py)?.into_any()),
    ];
    fact(py, "Fault", &fields.into_py_dict(py)?)
}
