//! A device that no call can use any more, and why.

#![forbid(unsafe_code)]

use std::hint::cold_path;
use std::sync::{Arc, OnceLock};

use crate::backend::Fault;
use crate::error::{Error, Result};

/// Whether the device is lost, and to which fault.
///
/// One cell says both, so that no device can be lost to nothing.
#[derive(Debug, Default)]
pub struct Poison(OnceLock<Arc<Fault>>);

impl Poison {
    /// Poisons the device; only the first fault is kept.
    pub(crate) fn set(&self, fault: Fault) {
        let _ = self.0.set(Arc::new(fault));
    }

    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    /// `DeviceLost` with the first fault, once poisoned.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_set() {
            cold_path();
            return self.error().map_or(Ok(()), Err);
        }
        Ok(())
    }

    pub(crate) fn error(&self) -> Option<Error> {
        self.0.get().map(|first| Error::DeviceLost { first: first.clone() })
    }

    /// Turns a fault into the error of the call that met it, poisoning the device if the fault is sticky.
    pub(crate) fn absorb(&self, fault: Fault) -> Error {
        if fault.is_sticky() {
            self.set(fault.clone());
            return self.error().unwrap_or(Error::DeviceLost { first: Arc::new(fault) });
        }
        Error::Driver { call: fault.call(), message: fault.message().into() }
    }
}
