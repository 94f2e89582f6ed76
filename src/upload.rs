//! How a launch's tables get to the device.

#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::access::Access;
use crate::backend::command::Work;
use crate::backend::{Backend, Command, Job};
use crate::capture::recorder::Recorder;
use crate::capture::window::WindowGuard;
use crate::error::Result;
use crate::kernel::args::{UseOf, UsesOf};
use crate::memory::AllocationMode;
use crate::memory::allocation::Allocation;
use crate::memory::tables::Keep;
use crate::stream::StreamCore;
use crate::submit::Sender;

/// The tables of one launch, once they have memory.
pub(crate) struct Brought<B: Backend>(SmallVec<[Table<B>; 4]>);

struct Table<B: Backend> {
    /// Its place among the launch's buffers, tables included.
    place: usize,
    alloc: Arc<Allocation<B>>,
    range: Range<usize>,
}

impl<B: Backend> Brought<B> {
    /// What the launch uses, its tables in their places among it.
    pub(crate) fn among<'u>(&'u self, uses: &[UseOf<'u, B>]) -> UsesOf<'u, B> {
        let mut all = UsesOf::from_slice(uses);
        for Table { place, alloc, range } in &self.0 {
            all.insert(*place, UseOf { alloc, start: range.start, end: range.end, access: Access::Read });
        }
        all
    }

    fn push(&mut self, place: usize, alloc: Arc<Allocation<B>>, range: Range<usize>) {
        self.0.push(Table { place, alloc, range });
    }
}

/// Finds the tables of a launch that executes: in the cache, or uploaded before it.
///
/// # Errors
/// What reserving and uploading say. The cache is as it was; what was uploaded before stays.
pub(crate) fn bring<B: Backend>(
    core: &mut StreamCore<B>,
    warm_up: Option<&WindowGuard<B>>,
) -> Result<Brought<B>> {
    let StreamCore { device, slot, by, last, tables, .. } = core;
    let mut brought = Brought(SmallVec::new());
    let keep = if warm_up.is_some() { Keep::Window } else { Keep::Usual };
    for (place, table) in tables.iter() {
        let known = device.slot(*slot).tables.lock().find(table);
        let alloc = match known {
            Some(alloc) => alloc,
            None => {
                let contents: Arc<[u8]> = table.into();
                let alloc = Allocation::table(device, *slot, table.len())?;
                write(Sender { device, slot: *slot, by, last }, "launch", &alloc, &contents)?;
                if keep.admits(table.len()) {
                    let leaving = device.slot(*slot).tables.lock().insert(contents, alloc.clone());
                    drop(leaving);
                }
                alloc
            }
        };
        if let Some(guard) = warm_up {
            guard.window.pin(&alloc);
        }
        brought.push(place, alloc, 0..table.len());
    }
    Ok(brought)
}

/// Finds the tables of a launch that is recorded: in the cache, or as constants of the recording. Asks nothing of the driver.
pub(crate) fn record<B: Backend>(core: &StreamCore<B>, recorder: &mut Recorder<B>) -> Brought<B> {
    let StreamCore { device, slot, tables, .. } = core;
    let mut brought = Brought(SmallVec::new());
    let mut cache = device.slot(*slot).tables.lock();
    for (place, table) in tables.iter() {
        let (alloc, range) = match cache.find(table) {
            Some(alloc) => (alloc, 0..table.len()),
            None => recorder.constant(device, *slot, table),
        };
        brought.push(place, alloc, range);
    }
    brought
}

/// Uploads the constants of a recording that ends, all at once, and gives their uses the memory. Outside the graph, whose
/// replays wait for it by the ordinary rules; without waiting for room in the queue.
///
/// # Errors
/// What reserving and uploading say; nothing is held that was not before.
pub(crate) fn constants<B: Backend>(core: &mut StreamCore<B>, recorder: &mut Recorder<B>) -> Result<()> {
    let contents = recorder.constants();
    if contents.is_empty() {
        return Ok(());
    }
    let StreamCore { device, slot, by, last, .. } = core;
    let alloc = Allocation::placed(device, *slot, contents.len(), AllocationMode::Pooled, None)?;
    write(Sender { device, slot: *slot, by, last }, "end", &alloc, contents)?;
    recorder.place_constants(alloc);
    Ok(())
}

/// Enqueues the one write of `contents` to all of `alloc`.
fn write<B: Backend>(
    sender: Sender<'_, B>,
    operation: &'static str,
    alloc: &Arc<Allocation<B>>,
    contents: &[u8],
) -> Result<()> {
    if contents.is_empty() {
        return Ok(());
    }
    let device = sender.device;
    let staged = device.staging.copy(contents, |bytes| device.backend.pin(bytes));
    let bytes = staged.map_err(|fault| device.poison.absorb(fault))?;
    let target = UseOf { alloc, start: 0, end: contents.len(), access: Access::Write };
    let job = Job(Work::Write { bytes, pitch: None });
    let spares = &device.slot(sender.slot).spares;
    let mut command = Command { job, args: spares.take() };
    let sent = sender.send(operation, &mut command, std::slice::from_ref(&target), None);
    spares.give(command.args);
    sent.map(drop)
}
