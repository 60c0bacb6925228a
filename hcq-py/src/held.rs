//! Objects of the library that Python's objects hold, until they or their device are closed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use crate::failure::Failure;

/// An object of the library; none once it is closed. Locked while the interpreter is held, and not longer.
#[derive(Debug)]
pub(crate) struct Held<T>(Arc<Slot<T>>);

#[derive(Debug)]
struct Slot<T> {
    /// Its name in errors.
    what: &'static str,
    object: Mutex<Option<T>>,
}

impl<T> Slot<T> {
    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.object.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An object that was made of a device, as the device closes it.
pub(crate) trait Close: Send + Sync {
    /// Takes what the object holds, to be dropped without the interpreter.
    fn take(&self) -> Box<dyn Send>;
}

impl<T: Send + 'static> Close for Slot<T> {
    fn take(&self) -> Box<dyn Send> {
        Box::new(self.lock().take())
    }
}

impl<T: Send + 'static> Held<T> {
    pub fn new(what: &'static str, object: T) -> Self {
        Self(Arc::new(Slot { what, object: Mutex::new(Some(object)) }))
    }

    /// As the device knows it.
    pub fn for_device(&self) -> Arc<dyn Close> {
        self.0.clone()
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.0.lock().is_none()
    }

    /// Closes it.
    pub fn take(&self) -> Option<T> {
        self.0.lock().take()
    }

    /// Shows the object to `look`.
    pub fn with<R>(&self, look: impl FnOnce(&mut T) -> Result<R, Failure>) -> Result<R, Failure> {
        match &mut *self.0.lock() {
            Some(object) => look(object),
            None => Err(closed(self.0.what)),
        }
    }

    /// The object.
    pub fn get(&self) -> Result<T, Failure>
    where
        T: Clone,
    {
        self.with(|object| Ok(object.clone()))
    }
}

/// The refusal of what is closed.
pub(crate) fn closed(what: &str) -> Failure {
    let text = match what {
        "device" => "the device is closed".to_owned(),
        part => format!("the {part} is closed, or its device is"),
    };
    Python::attach(|py| Failure::own(py, "Closed", "HANDLE_FREED", &text))
}
