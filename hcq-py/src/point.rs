//! Points of a queue's work, and times that the GPU takes.

use std::time::{Duration, Instant};

use hcq::{Error, QueueError};
use pyo3::prelude::*;

use crate::away::away;
use crate::failure::Failure;

/// Longest time for which a wait does not look for signals, Ctrl-C among them.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A point in a queue's work.
#[pyclass(frozen, module = "hcq._hcq")]
#[derive(Debug)]
pub(crate) struct SyncPoint(pub(crate) hcq::SyncPoint);

#[pymethods]
impl SyncPoint {
    /// Waits for everything submitted up to the point, at most `timeout` seconds. Ctrl-C ends the wait.
    #[pyo3(signature = (timeout = 60.0))]
    fn wait(&self, py: Python<'_>, timeout: f64) -> Result<(), Failure> {
        let limit = Duration::try_from_secs_f64(timeout);
        let limit = limit.map_err(|_| {
            Failure::value(format!("the timeout is {timeout} s: every wait has one that is not negative"))
        })?;
        let began = Instant::now();
        loop {
            let rest = limit.saturating_sub(began.elapsed());
            match away(py, || self.0.wait(rest.min(LOOK_EVERY))) {
                Err(Error::Queue(QueueError::Timeout { wanted, reached, explanation, .. })) => {
                    py.check_signals()?;
                    if began.elapsed() >= limit {
                        let error = QueueError::Timeout { limit, wanted, reached, explanation };
                        return Err(Error::Queue(error).into());
                    }
                }
                ended => return Ok(ended?),
            }
        }
    }

    /// Whether everything submitted up to the point is done.
    #[getter]
    fn done(&self) -> Result<bool, Failure> {
        Ok(self.0.is_done()?)
    }
}

/// A time that the GPU takes.
#[pyclass(frozen, module = "hcq._hcq")]
#[derive(Debug)]
pub(crate) struct Timestamp(pub(crate) hcq::Timestamp);

#[pymethods]
impl Timestamp {
    /// The GPU's clock in ns when the work before had ended; None before. Of a timestamp in a graph: of the last
    /// replay that came so far.
    #[getter]
    fn ns(&self) -> Option<u64> {
        self.0.ns()
    }
}
