//! Ending somebody else's window.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::backend::Backend;
use crate::capture::status::WindowId;
use crate::capture::window::{Progress, retire};
use crate::device::DeviceCore;
use crate::error::{Error, Result};

/// The report of an eviction.
#[derive(Clone, Debug)]
pub struct Eviction {
    window: WindowId,
    by: Arc<str>,
    doomed_by: Option<Arc<Error>>,
}

impl Eviction {
    /// The window, and with it the stream that owned it.
    pub fn window(&self) -> WindowId {
        self.window
    }

    /// The thread that evicted it, by name or number.
    pub fn by(&self) -> &str {
        &self.by
    }

    /// What had already doomed the recording, if anything.
    pub fn doomed_by(&self) -> Option<&Error> {
        self.doomed_by.as_deref()
    }
}

impl std::fmt::Display for Eviction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error().fmt(f)
    }
}

impl Eviction {
    fn error(&self) -> Error {
        Error::Evicted { window: self.window, by: self.by.clone(), doomed_by: self.doomed_by.clone() }
    }
}

pub(crate) fn evict<B: Backend>(device: &DeviceCore<B>, id: WindowId) -> Result<Eviction> {
    let open = device.windows.lock().iter().find(|window| window.id == id).cloned();
    let Some(window) = open else { return Err(Error::NotOpen { window: id }) };
    // From before the gate shuts until all is said: an owner who finds it shut takes this lock to learn why.
    let mut state = window.state.lock();
    if !window.gate.try_evict() {
        return Err(Error::NotOpen { window: id });
    }
    let doomed_by = match &*state {
        Progress::Recording(recorder) => recorder.doom.clone(),
        Progress::Prepared | Progress::Closed => None,
    };
    let thread = std::thread::current();
    let by = thread.name().map_or_else(|| format!("{:?}", thread.id()), |name| format!("thread `{name}`"));
    let report = Eviction { window: id, by: by.into(), doomed_by };
    // Before the recorder leaves: the owner must find either it or this.
    let _ = window.evicted.set(report.error());
    let progress = std::mem::replace(&mut *state, Progress::Closed);
    if let Progress::Recording(recorder) = &progress {
        recorder.condemn(&Arc::new(report.error()));
        device.backend.abandon(id.stream());
    }
    // An owner who learns of the eviction finds no trace of the window in the records.
    retire(device, &window);
    drop(state);
    let options = std::mem::take(&mut *window.options.lock());
    // Last, and under no lock: with the recording go the user's callbacks, whose drops may do anything, and perhaps
    // the last hold on a graph.
    drop((progress, options));
    Ok(report)
}
