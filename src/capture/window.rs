//! A window: from `prepare` until the capture ends, however it ends.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::backend::Backend;
use crate::callback;
use crate::capture::gate::{Gate, GateState};
use crate::capture::options::CaptureOptions;
use crate::capture::recorder::{Birth, IdHasher, Recorder, Touched};
use crate::capture::status::WindowId;
use crate::device::DeviceCore;
use crate::error::{Abandonment, Error, Result};
use crate::memory::allocation::Allocation;
use crate::memory::compaction;
use crate::stream::StreamCore;

/// What a window's owner shares with whoever may evict it.
pub(crate) struct Window<B: Backend> {
    pub(crate) id: WindowId,
    /// The slot of its stream, whose cache has its tables.
    slot: u32,
    pub(crate) gate: Gate,
    pub(crate) state: Mutex<Progress<B>>,
    /// Whoever ends the window takes them: they may hold a graph, whose arena is to be shared.
    pub(crate) options: Mutex<CaptureOptions<B>>,
    /// The tables that its warm-up uses, which stay in the cache until it ends; `None` from then on.
    tables: Mutex<Option<Pins<B>>>,
    /// Set before the recorder leaves, so that the owner finds one or the other.
    pub(crate) evicted: OnceLock<Error>,
}

/// Allocations by their id.
type Pins<B> = HashMap<u64, Touched<B>, BuildHasherDefault<IdHasher>>;

/// How far a window has come.
pub(crate) enum Progress<B: Backend> {
    Prepared,
    Recording(Box<Recorder<B>>),
    Closed,
}

/// The owner's hold on its window: dropping it closes the window and discards what was recorded.
pub struct WindowGuard<B: Backend> {
    pub(crate) device: Arc<DeviceCore<B>>,
    pub(crate) window: Arc<Window<B>>,
    /// Whether the window began to record: the owner's own knowledge, for which no lock need be taken.
    begun: AtomicBool,
}

impl<B: Backend> Window<B> {
    /// Holds a table until the window ends.
    pub(crate) fn pin(&self, table: &Arc<Allocation<B>>) {
        if let Some(pins) = &mut *self.tables.lock() {
            pins.entry(table.id()).or_insert_with(|| Touched::new(table, Birth::Outside));
        }
    }
}

impl<B: Backend> WindowGuard<B> {
    /// Opens a window for `core`: the stream is prepared.
    pub(crate) fn open(core: &StreamCore<B>, options: CaptureOptions<B>) -> Result<Self> {
        callback::refuse("prepare")?;
        let device = &core.device;
        device.poison.check()?;
        if let Some(shared) = &options.share_arena
            && shared.device.id != device.id
        {
            let (expected, found) = (device.id, shared.device.id);
            return Err(Error::WrongDevice { operation: "prepare", object: "graph", expected, found });
        }
        compaction::before_capture(device, core.slot);
        let window = Arc::new(Window {
            id: device.captures.open(core.id),
            slot: core.slot,
            gate: Gate::new(),
            state: Mutex::new(Progress::Prepared),
            options: Mutex::new(options),
            tables: Mutex::new(Some(Pins::default())),
            evicted: OnceLock::new(),
        });
        device.windows.lock().push(window.clone());
        Ok(WindowGuard { device: device.clone(), window, begun: AtomicBool::new(false) })
    }

    /// Starts to record. On an error the caller drops the guard, which closes the window.
    pub(crate) fn begin(&self, core: &mut StreamCore<B>) -> Result<()> {
        callback::refuse("begin")?;
        self.device.poison.check()?;
        self.check()?;
        self.device.backend.begin(core.id).map_err(|fault| self.device.poison.absorb(fault))?;
        let mut state = self.window.state.lock();
        if matches!(*state, Progress::Closed) {
            drop(state);
            self.device.backend.abandon(core.id);
            return Err(self.closed_error());
        }
        *state = Progress::Recording(core.spare.take().unwrap_or_default());
        // Relaxed: written and read by the owner alone.
        self.begun.store(true, Ordering::Relaxed);
        // Under the lock, so that an eviction in between cannot be published before this.
        self.device.captures.begin(self.window.id);
        Ok(())
    }

    /// `Evicted`, once somebody evicted the window.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        match self.window.evicted.get() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Whether the window began to record. One that was evicted since says so too: it executes nothing.
    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Runs `f` with the recorder.
    pub(crate) fn record<T>(&self, f: impl FnOnce(&mut Recorder<B>) -> Result<T>) -> Result<T> {
        match &mut *self.window.state.lock() {
            Progress::Recording(recorder) => f(recorder),
            Progress::Prepared | Progress::Closed => Err(self.closed_error()),
        }
    }

    /// Takes the recorder out, if the window was recording, and leaves it closed.
    pub(crate) fn take(&self) -> Option<Box<Recorder<B>>> {
        match std::mem::replace(&mut *self.window.state.lock(), Progress::Closed) {
            Progress::Recording(recorder) => Some(recorder),
            Progress::Prepared | Progress::Closed => None,
        }
    }

    /// Closes the window without a graph. The room of the recording stays with the stream, for the next one.
    pub(crate) fn abort(&self, core: &mut StreamCore<B>) {
        if let Some(recorder) = self.abandon(Abandonment::Aborted) {
            core.spare = Some(recorder);
        }
    }

    /// Closes the window without a graph; returns the recorder, emptied, if there was one.
    fn abandon(&self, how: Abandonment) -> Option<Box<Recorder<B>>> {
        if !matches!(self.window.gate.close(), GateState::Open | GateState::Sealing) {
            // Whoever evicted the window holds this until the backend knows: the stream's next window must not begin first.
            drop(self.window.state.lock());
            return None;
        }
        let mut recorder = self.take();
        if let Some(recorder) = &mut recorder {
            let doom = recorder.doom.take();
            let ended = || Arc::new(Error::Abandoned { window: self.window.id, how });
            recorder.condemn(&doom.unwrap_or_else(ended));
            self.device.backend.abandon(self.window.id.stream());
        }
        retire(&self.device, &self.window);
        // Last: with the recording go the user's callbacks, whose drops may panic, and the window is closed all the same.
        recorder.iter_mut().for_each(|recorder| recorder.clear());
        recorder
    }

    pub(crate) fn closed_error(&self) -> Error {
        let dropped = Error::Abandoned { window: self.window.id, how: Abandonment::Dropped };
        self.window.evicted.get().cloned().unwrap_or(dropped)
    }
}

impl<B: Backend> Drop for WindowGuard<B> {
    fn drop(&mut self) {
        self.abandon(Abandonment::Dropped);
    }
}

/// Takes a window off the records.
pub(crate) fn retire<B: Backend>(device: &DeviceCore<B>, window: &Window<B>) {
    device.windows.lock().retain(|open| open.id != window.id);
    let pins = window.tables.lock().take();
    unpin(device, window.slot, pins.unwrap_or_default());
    device.captures.close(window.id);
}

/// Lets go of the tables of a warm-up, and of those that the cache then has no room for.
fn unpin<B: Backend>(device: &DeviceCore<B>, slot: u32, pins: Pins<B>) {
    if pins.is_empty() {
        return;
    }
    let (entries, bytes) = (pins.len(), pins.values().map(|table| table.alloc.bytes).sum());
    drop(pins);
    let leaving = device.slot(slot).tables.lock().unpinned(entries, bytes);
    drop(leaving);
}
