//! Points of a queue's work, and times that the GPU takes.

use pyo3::prelude::*;

use crate::away::{patiently, seconds};
use crate::failure::Failure;
use crate::held::Held;

/// A point in a queue's work.
#[pyclass(frozen, module = "hcq._hcq")]
#[derive(Debug)]
pub(crate) struct SyncPoint(pub(crate) Held<hcq::SyncPoint>);

#[pymethods]
impl SyncPoint {
    /// Waits for everything submitted up to the point, at most `timeout` seconds. Ctrl-C ends the wait.
    #[pyo3(signature = (timeout = 60.0))]
    fn wait(&self, py: Python<'_>, timeout: f64) -> Result<(), Failure> {
        let (limit, point) = (seconds(timeout, "timeout")?, self.0.get()?);
        patiently(py, limit, |part| point.wait(part).map(Some))
    }

    /// Whether everything submitted up to the point is done.
    #[getter]
    fn done(&self) -> Result<bool, Failure> {
        Ok(self.0.get()?.is_done()?)
    }
}

/// A time that the GPU takes.
#[pyclass(frozen, module = "hcq._hcq")]
#[derive(Debug)]
pub(crate) struct Timestamp(pub(crate) Held<hcq::Timestamp>);

#[pymethods]
impl Timestamp {
    /// The GPU's clock in ns when the work before had ended; None before. Of a timestamp in a graph: of the last
    /// replay that came so far.
    #[getter]
    fn ns(&self) -> Result<Option<u64>, Failure> {
        Ok(self.0.get()?.ns())
    }

    /// Nanoseconds from `begin`, a timestamp of the same device, to this one; None until both are taken.
    fn since(&self, begin: &Bound<'_, Self>) -> Result<Option<i64>, Failure> {
        Ok(self.0.get()?.since(&begin.get().0.get()?)?)
    }
}
