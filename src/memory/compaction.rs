//! Moving tenants together, so that pages become empty and can go back to the driver.
//!
//! A move is a copy in stream order, enqueued under the locks of every slot: it waits for every use that was enqueued
//! on the old bytes, and whatever is enqueued afterwards on the tenant finds the new ones and waits for the move. Nobody
//! else waits, and other threads get their turn between two batches of moves.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;

use crate::access::Access;
use crate::backend::command::Work as What;
use crate::backend::{Backend, Command, Contents, Job, Region, Submitter};
use crate::device::DeviceCore;
use crate::error::{Error, Result};
use crate::memory::allocation::{Allocation, Home};
use crate::memory::page::SharedPage;
use crate::memory::pool::{release, unstash_all};
use crate::memory::reserve::introduce;
use crate::memory::{Reserved, sizes};
use crate::order::{Everything, Mark, Marks, Uses, enter_all};
use crate::submit::wait_for;

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compaction {
    /// Buffers that were moved.
    pub buffers: usize,
    /// Bytes of those buffers.
    pub bytes: usize,
    /// Pages that became empty, and go back to the driver as soon as the moves have run.
    pub pages: usize,
}

/// How many moves are enqueued before other threads get their turn.
const BATCH: usize = 32;

/// Which pages are worth emptying.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Worth {
    /// All whose tenants fit elsewhere.
    Any,
    /// Only those of one slot that are hardly used, or smaller than the pool's pages are by now.
    Outdated { slot: u32 },
}

/// A shared page, by the slot of its pool and its number there.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PageId {
    slot: u32,
    index: usize,
}

/// How far a compaction has come.
struct Progress<'b> {
    /// Who is to hear of a move that fails when it runs.
    by: &'b Submitter,
    done: Compaction,
    /// The driver refused a move: it ends here, with that tenant where it was.
    refusal: Option<Error>,
}

/// Until it is dropped, nobody else moves tenants: pages that are being emptied take nobody, and would look full.
///
/// Others' moves may wait for the device for as long as it likes. Who has waited for them for a while goes on beside
/// them, and finds less room.
pub(crate) fn alone<B: Backend>(device: &DeviceCore<B>) -> Option<MutexGuard<'_, ()>> {
    const PATIENCE: Duration = Duration::from_secs(1);
    device.memory.moving.try_lock_for(PATIENCE)
}

/// Empties every shared page of the device whose tenants fit on others, on behalf of `by`.
///
/// # Errors
/// What the driver says of a move that it refuses; what was moved before stays moved.
pub(crate) fn compact<B: Backend>(device: &DeviceCore<B>, by: &Submitter) -> Result<Compaction> {
    let Progress { done, refusal, .. } = empty_pages(device, by, Worth::Any);
    refusal.map_or(Ok(done), Err)
}

/// Before a capture of a stream of `slot`: a graph would pin what is moved away now where it is.
pub(crate) fn before_capture<B: Backend>(device: &DeviceCore<B>, slot: u32) {
    // One lock and a look at a few numbers, where there is nothing to do.
    let pool = device.slot(slot).pool.lock();
    let next = sizes::next_shared(pool.shared_held());
    let shared = || pool.shared.iter().flatten();
    let worth = shared().count() > 1 && shared().any(|page| is_outdated(page, next));
    drop(pool);
    // Another thread's moves do as well, and a window waits for nobody.
    if worth && let Some(_alone) = device.memory.moving.try_lock() {
        // Where the driver refuses to move, the capture goes on with the pages that there are.
        empty_pages(device, &device.by, Worth::Outdated { slot });
    }
}

fn is_outdated<B: Backend>(page: &SharedPage<B>, next: usize) -> bool {
    page.used_bytes() <= page.page().bytes / 4 || page.page().bytes < next
}

fn empty_pages<'b, B: Backend>(device: &DeviceCore<B>, by: &'b Submitter, worth: Worth) -> Progress<'b> {
    let mut progress = Progress { by, done: Compaction::default(), refusal: None };
    let mut tried: Vec<PageId> = Vec::new();
    while progress.refusal.is_none()
        && let Some(source) = choose(device, worth, &tried)
    {
        tried.push(source);
        let is_stuck = is_stuck(device, source);
        while !is_stuck && batch(device, source, &mut progress) {}
        reopen(device, source);
        let emptied = device.slot(source.slot).pool.lock().remove_empty(source.index);
        if let Some((page, history)) = emptied {
            device.memory.graveyard.condemn(page, history);
            progress.done.pages += 1;
            // A number that is free may name another page from here on.
            tried.retain(|page| *page != source);
        }
    }
    progress
}

/// The page with the fewest bytes in use that was not tried yet, closed to new tenants.
fn choose<B: Backend>(device: &DeviceCore<B>, worth: Worth, tried: &[PageId]) -> Option<PageId> {
    let mut free = 0;
    let mut best: Option<(usize, PageId, usize)> = None;
    for (slot, core) in (0u32..).zip(&device.slots) {
        unstash_all(device, slot);
        let pool = core.pool.lock();
        let next = sizes::next_shared(pool.shared_held());
        for (index, page) in pool.shared.iter().enumerate() {
            let Some(page) = page else { continue };
            if page.closed {
                continue;
            }
            free += page.free_bytes();
            let id = PageId { slot, index };
            let wanted = match worth {
                // Of a page that is nearly full, many bytes would move for few.
                Worth::Any => page.used_bytes() <= page.page().bytes / 8 * 7,
                Worth::Outdated { slot: only } => only == slot && is_outdated(page, next),
            };
            let used = page.used_bytes();
            if wanted && used > 0 && !tried.contains(&id) && best.is_none_or(|(least, ..)| used < least) {
                best = Some((used, id, page.free_bytes()));
            }
        }
    }
    let (used, id, own) = best?;
    if used > free - own {
        return None;
    }
    let mut pool = device.slot(id.slot).pool.lock();
    let page = pool.shared.get_mut(id.index)?.as_mut()?;
    page.closed = true;
    Some(id)
}

fn reopen<B: Backend>(device: &DeviceCore<B>, id: PageId) {
    let mut pool = device.slot(id.slot).pool.lock();
    if let Some(Some(page)) = pool.shared.get_mut(id.index) {
        page.closed = false;
    }
}

/// Moves up to a batch of tenants off `source`, all in one step of the device's order. Returns whether more can go.
fn batch<B: Backend>(device: &DeviceCore<B>, source: PageId, progress: &mut Progress<'_>) -> bool {
    device.backend.throttle(&device.slot(source.slot).queue);
    let mut everything = enter_all(device);
    let tenants = tenants(device, source, BATCH + 1);
    let before = progress.done.buffers;
    let moved = !device.poison.is_set()
        && tenants
            .iter()
            .take(BATCH)
            .all(|tenant| relocate(device, &mut everything, source, tenant, progress));
    let more = moved && progress.done.buffers > before && tenants.len() > BATCH;
    // Locks first: these may be the last references to tenants, whose bytes then go back to their pool.
    drop(everything);
    drop(tenants);
    more
}

/// Whether a tenant of the page must stay, as far as nobody's lock is needed to tell: emptied in part, a page gives
/// nothing back, so that whoever is pinned keeps the others where they are.
fn is_stuck<B: Backend>(device: &DeviceCore<B>, source: PageId) -> bool {
    let tenants = tenants(device, source, usize::MAX);
    tenants.iter().any(|tenant| tenant.state.lock().is_pinned())
}

/// Up to `most` tenants of the page.
fn tenants<B: Backend>(device: &DeviceCore<B>, source: PageId, most: usize) -> Vec<Arc<Allocation<B>>> {
    let pool = device.slot(source.slot).pool.lock();
    match pool.shared.get(source.index) {
        Some(Some(page)) => page.tenants.alive().take(most).collect(),
        _ => Vec::new(),
    }
}

/// Moves one tenant. `false` if there is no room for it, or if the driver refuses, and then it stays where it is.
fn relocate<B: Backend>(
    device: &DeviceCore<B>,
    everything: &mut Everything<'_>,
    source: PageId,
    tenant: &Arc<Allocation<B>>,
    progress: &mut Progress<'_>,
) -> bool {
    let mut state = tenant.state.lock();
    let Home::Placed { contents: old, lease: old_lease } = &state.home else { return true };
    if state.is_stashed() {
        // It has just lost its tenant, and its pool counts its bytes as free.
        return true;
    }
    if state.is_pinned() {
        // Since the look at all of them: pins are set under the tenant's own lock, which is held from here on.
        return false;
    }
    let (old, old_lease) = (old.clone(), *old_lease);
    let Some(new) = room(device, source, old_lease.bytes()) else { return false };
    let mut waits = state.uses.history(&(0..tenant.bytes));
    waits.extend(&new.history);
    let contents = [&old, &new.contents];
    let on = (source.slot, progress.by);
    let mark = match enqueue(device, everything, on, &waits, contents, tenant.bytes) {
        Ok(mark) => mark,
        Err(error) => {
            progress.refusal = Some(error);
            release(device, new.contents, new.lease, new.history);
            return false;
        }
    };
    let mut moved = Marks::default();
    moved.add(mark);
    introduce(device, &new.lease, tenant);
    state.home = Home::Placed { contents: new.contents, lease: new.lease };
    state.uses = Uses::born(tenant.bytes, moved.clone());
    drop(state);
    // The move waited for every use of the old bytes: whoever gets them waits for the move alone.
    release(device, old, old_lease, moved);
    progress.done.buffers += 1;
    progress.done.bytes += tenant.bytes;
    true
}

/// Room on another page: of the same pool if it has any, or else of any other.
fn room<B: Backend>(device: &DeviceCore<B>, source: PageId, bytes: usize) -> Option<Reserved<B>> {
    let slots = device.slots.len() as u32;
    let others = (0..slots).filter(|slot| *slot != source.slot);
    std::iter::once(source.slot).chain(others).find_map(|slot| {
        let mut pool = device.slot(slot).pool.lock();
        pool.tightest_block(slot, bytes)
    })
}

/// Enqueues a move on `slot`, on behalf of `by`.
///
/// # Errors
/// What the driver says; nothing was enqueued.
fn enqueue<B: Backend>(
    device: &DeviceCore<B>,
    everything: &mut Everything<'_>,
    (slot, by): (u32, &Submitter),
    waits: &Marks,
    [old, new]: [&Arc<Contents<B>>; 2],
    bytes: usize,
) -> Result<Mark> {
    wait_for(device, slot, waits)?;
    let seq = everything.lane(slot).seq + 1;
    let mark = Mark { slot, seq };
    let mut args = device.slot(slot).spares.take();
    for (contents, access) in [(old, Access::Read), (new, Access::Write)] {
        args.regions.push(Region { contents: Some(contents.clone()), start: 0, end: bytes, access });
    }
    let mut command = Command { job: Job(What::Move), args };
    let queue = &device.slot(slot).queue;
    if let Err(fault) = device.backend.submit(queue, seq, by, &mut command) {
        device.slot(slot).spares.give(command.args);
        return Err(device.poison.absorb(fault));
    }
    everything.lane(slot).seq = seq;
    Ok(mark)
}
