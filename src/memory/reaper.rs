//! Memory on its way back to the driver, and the thread that takes it there.
//!
//! A driver's free may wait for work that is nobody's business here, so no `drop` calls it: pages go to the
//! graveyard, and are freed once everything that was enqueued on them has passed.

#![forbid(unsafe_code)]

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::backend::{Backend, Page};
use crate::callback::{OnDevice, shielded};
use crate::device::DeviceCore;
use crate::error::Result;
use crate::graph::GraphCore;
use crate::memory::free_page;
use crate::order::Marks;

/// Pages that wait for work in flight, and graphs that were dropped where nothing may be done.
pub(crate) struct Graveyard<B: Backend> {
    state: Mutex<State<B>>,
    bell: Condvar,
    /// Held while pages are freed: whoever needs their room waits for a burial that is under way, instead of finding
    /// them neither here nor free.
    burial: Mutex<()>,
}

struct State<B: Backend> {
    pages: Vec<(Arc<Page<B>>, Marks)>,
    /// Graphs that were dropped inside a callback: dismantled on the reaper's thread.
    graphs: Vec<Arc<GraphCore<B>>>,
    closed: bool,
}

impl<B: Backend> Graveyard<B> {
    pub(crate) fn new() -> Arc<Self> {
        let state = State { pages: Vec::new(), graphs: Vec::new(), closed: false };
        Arc::new(Graveyard { state: Mutex::new(state), bell: Condvar::new(), burial: Mutex::new(()) })
    }

    pub(crate) fn condemn_all(&self, pages: impl IntoIterator<Item = (Arc<Page<B>>, Marks)>) {
        pages.into_iter().for_each(|(page, history)| self.condemn(page, history));
    }

    pub(crate) fn condemn(&self, page: Arc<Page<B>>, history: Marks) {
        self.state.lock().pages.push((page, history));
        self.bell.notify_one();
    }

    pub(crate) fn defer(&self, graph: Arc<GraphCore<B>>) {
        self.state.lock().graphs.push(graph);
        self.bell.notify_one();
    }

    pub(crate) fn pages(&self) -> usize {
        self.state.lock().pages.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.state.lock().pages.iter().map(|(page, _)| page.bytes).sum()
    }

    /// Everything that the pages here wait for.
    pub(crate) fn marks(&self) -> Marks {
        let mut marks = Marks::default();
        self.state.lock().pages.iter().for_each(|(_, history)| marks.extend(history));
        marks
    }

    /// Frees every page whose uses have passed.
    ///
    /// # Errors
    /// The first refusal of the driver. What it refused stays here, and is offered again.
    pub(crate) fn bury(&self, device: &DeviceCore<B>) -> Result<()> {
        let _burial = self.burial.lock();
        let state = self.state.lock();
        let passed = state.pages.iter().filter(|(_, history)| history.iter().all(|mark| device.passed(mark)));
        let passed: Vec<_> = passed.map(|(page, _)| page.clone()).collect();
        drop(state);
        let mut outcome = Ok(());
        for page in passed {
            match free_page(device, &page) {
                // Only now: what is still held must never be found nowhere.
                Ok(()) => self.state.lock().pages.retain(|(waiting, _)| !Arc::ptr_eq(waiting, &page)),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    /// Ends the reaper's thread, once the device is gone.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.bell.notify_all();
    }

    /// Blocks until there is something to do; `None` once the device is gone.
    fn wait(&self, patience: Duration) -> Option<Vec<Arc<GraphCore<B>>>> {
        let mut state = self.state.lock();
        if state.pages.is_empty() && state.graphs.is_empty() && !state.closed {
            self.bell.wait(&mut state);
        } else if state.graphs.is_empty() && !state.closed {
            self.bell.wait_for(&mut state, patience);
        }
        if state.closed { None } else { Some(std::mem::take(&mut state.graphs)) }
    }
}

/// Starts the thread that buries. It never keeps a device alive while it waits.
pub(crate) fn start<B: Backend>(device: &Arc<DeviceCore<B>>) -> std::io::Result<()> {
    let graveyard = device.memory.graveyard.clone();
    let device = Arc::downgrade(device);
    let name = "dacapo-reaper".to_owned();
    std::thread::Builder::new().name(name).spawn(move || run(&graveyard, &device)).map(drop)
}

fn run<B: Backend>(graveyard: &Graveyard<B>, device: &Weak<DeviceCore<B>>) {
    // What cannot be buried yet is looked at again soon, and then less and less often.
    const SOON: Duration = Duration::from_millis(1);
    const LATE: Duration = Duration::from_millis(32);
    let mut patience = SOON;
    while let Some(graphs) = graveyard.wait(patience) {
        patience = if graphs.is_empty() { (patience * 2).min(LATE) } else { SOON };
        // Their callbacks and kernels own values of the user's, whose drop must neither end this thread nor wait on it.
        let on_device = OnDevice::enter();
        graphs.into_iter().for_each(|graph| shielded(|| drop(graph)));
        drop(on_device);
        let Some(device) = device.upgrade() else { return };
        // A page that the driver refuses to take waits here for the next round.
        let _ = graveyard.bury(&device);
        if graveyard.bytes() == 0 {
            patience = SOON;
        }
    }
}
