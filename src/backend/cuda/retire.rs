//! What is given back to the driver once the device is past it, on a thread of its own: the driver's calls for it may
//! wait for work that is nobody's business.

#![allow(unsafe_code, reason = "calls of the CUDA driver")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::CudaFunction;
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;

use crate::backend::cuda::Machine;
use crate::backend::cuda::adopt::Lent;
use crate::backend::cuda::beside::nobody_holds_up;
use crate::backend::cuda::callback::Node;
use crate::backend::cuda::guest::captures;
use crate::backend::cuda::pinned::{Block, CudaPinned};
use crate::backend::cuda::queue::{Counter, Page, Shared};
use crate::backend::cuda::section::Parts;
use crate::backend::cuda::sys;
use crate::backend::exit;
use crate::callback::{OnDevice, shielded};

/// Something of the driver's that nobody refers to any more, though work in flight may.
pub(crate) enum Retired {
    Memory(sys::CUdeviceptr),
    Pinned(Block),
    /// The page of a queue's counter.
    Counter(Counter),
    Module(sys::CUmodule),
    /// Memory of another library's.
    Lent(Box<dyn Lent>),
    /// A function of another library's, which keeps its module.
    Function(CudaFunction),
    /// With what its nodes refer to.
    Exec(sys::CUgraphExec, Vec<Arc<Node>>, Option<CudaPinned>),
    Section(Parts),
}

// SAFETY: addresses and handles of the driver, which any thread may give back; what is lent and functions are `Send`.
unsafe impl Send for Retired {}

/// So many bytes wait for a time at which the device does nothing: giving them back makes everybody wait until it does
/// nothing.
const PATIENTLY: usize = 256 << 20;

/// What a module counts for among them: the driver does not say how large one is.
const MODULE: usize = 64 << 10;

impl Retired {
    /// How many bytes it keeps, if the driver waits for all work of the context to take it, and lets nobody in meanwhile.
    fn stalls(&self) -> Option<usize> {
        match self {
            Retired::Pinned(block) => Some(block.bytes()),
            Retired::Counter(_) => Some(size_of::<Page>()),
            Retired::Module(_) | Retired::Function(_) => Some(MODULE),
            _ => None,
        }
    }
}

/// What waits, and for what.
#[derive(Default)]
pub(crate) struct Retirement {
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<Waiting>,
    /// How many have come.
    added: u64,
    /// Whether the device's owner is gone.
    closing: bool,
}

/// What can be given back now.
struct Ready {
    items: Vec<Retired>,
    /// Whether so much has gathered that others must wait.
    forced: bool,
    closing: bool,
    /// Whether nothing is left to come but what others still hold.
    last: bool,
}

struct Waiting {
    item: Retired,
    /// How far each queue had been filled.
    marks: SmallVec<[(Arc<Shared>, u64); 8]>,
}

impl Retirement {
    pub(crate) fn add(&self, item: Retired, marks: SmallVec<[(Arc<Shared>, u64); 8]>) {
        let mut state = self.state.lock();
        state.waiting.push(Waiting { item, marks });
        state.added += 1;
        drop(state);
        self.bell.notify_one();
    }

    /// For what could not be given back yet, though the device is past it.
    fn put_back(&self, items: Vec<Retired>) {
        let waiting = items.into_iter().map(|item| Waiting { item, marks: SmallVec::new() });
        self.state.lock().waiting.extend(waiting);
    }

    /// Takes what another device of the context leaves, which that one is past; returns it, if this one is gone itself.
    pub(crate) fn inherit(&self, items: Vec<Retired>) -> Vec<Retired> {
        let mut state = self.state.lock();
        if state.closing || items.is_empty() {
            return items;
        }
        state.added += 1;
        state.waiting.extend(items.into_iter().map(|item| Waiting { item, marks: SmallVec::new() }));
        drop(state);
        self.bell.notify_one();
        Vec::new()
    }

    pub(crate) fn close(&self) {
        self.state.lock().closing = true;
        self.bell.notify_one();
    }

    /// Gives up on what waits: nothing is asked of the driver, and nobody's values are dropped.
    pub(crate) fn leak(&self) {
        std::mem::take(&mut self.state.lock().waiting).into_iter().for_each(|waiting| leak(waiting.item));
    }

    fn is_empty(&self) -> bool {
        self.state.lock().waiting.is_empty()
    }

    /// Blocks until there may be something to do; returns what can be given back now. What would make others wait is given
    /// back when all is `quiet`.
    fn next(&self, patience: Duration, lost: bool, quiet: impl FnOnce(&State) -> bool) -> Ready {
        let mut state = self.state.lock();
        if state.waiting.is_empty() && !state.closing {
            self.bell.wait(&mut state);
        } else {
            self.bell.wait_for(&mut state, patience);
        }
        if lost {
            let waiting = std::mem::take(&mut state.waiting);
            drop(state);
            waiting.into_iter().for_each(|waiting| leak(waiting.item));
            state = self.state.lock();
        }
        let kept = state.waiting.iter().filter_map(|waiting| waiting.item.stalls());
        let forced = kept.sum::<usize>() > PATIENTLY;
        let may_stall = quiet(&state) || forced;
        let passed = |waiting: &mut Waiting| {
            let in_time = may_stall || waiting.item.stalls().is_none();
            in_time && waiting.marks.iter().all(|(queue, seq)| queue.completed() >= *seq)
        };
        let items = state.waiting.extract_if(.., passed).map(|waiting| waiting.item).collect();
        Ready { items, forced, closing: state.closing, last: state.closing && state.waiting.is_empty() }
    }
}

/// Gives back until the device is gone and nothing of it is left. Holds the last reference then.
pub(crate) fn run(machine: Arc<Machine>) {
    const SOON: Duration = Duration::from_millis(1);
    const LATE: Duration = Duration::from_millis(32);
    let (mut patience, mut quiet) = (SOON, Quiet::new());
    loop {
        let lost = machine.poison.is_set();
        let ready = machine.resident.retirement.next(patience, lost, |state| quiet.lasts(&machine, state));
        let (found, last) = (ready.items.len(), ready.last);
        let later = give_back(&machine, ready, &quiet);
        patience = if later.len() == found { (patience * 2).min(LATE) } else { SOON };
        machine.resident.retirement.put_back(later);
        // What was given back may have been the last hold on something that now waits itself.
        let done = last && machine.resident.retirement.is_empty();
        // This thread's reference and the watch's: kernels and buffers that outlive the device hold others.
        if done && (lost || (Arc::strong_count(&machine) <= 2 && machine.resident.is_idle())) {
            break;
        }
    }
    let _hold = exit::hold();
    machine.watch.end();
    drop(machine);
}

/// Since when nobody has asked anything of the device.
struct Quiet {
    submitted: Option<u64>,
    added: u64,
    since: Instant,
}

impl Quiet {
    fn new() -> Self {
        Quiet { submitted: None, added: 0, since: Instant::now() }
    }

    /// Whether the context does nothing, and has had nothing to do for a while: who submits something now and then, or lets
    /// something go before the next submission, is not to meet a driver that lets nobody in. A device that is gone waits
    /// for itself alone: if there are others, it leaves things to them.
    fn lasts(&mut self, machine: &Machine, state: &State) -> bool {
        const LONG: Duration = Duration::from_millis(100);
        let submitted = machine.resident.at_rest();
        if submitted.is_none() || (submitted, state.added) != (self.submitted, self.added) {
            (self.submitted, self.added, self.since) = (submitted, state.added, Instant::now());
        }
        if state.closing { machine.resident.is_idle() } else { self.since.elapsed() >= LONG }
    }

    /// Whether nobody has asked for anything since.
    fn still_lasts(&self, machine: &Machine) -> bool {
        self.submitted.is_some() && machine.resident.at_rest() == self.submitted
    }
}

/// A lost device never passes anything: what it may still touch stays what it is.
fn leak(item: Retired) {
    match item {
        Retired::Exec(_, calls, _) => std::mem::forget(calls),
        Retired::Lent(lent) => std::mem::forget(lent),
        Retired::Function(function) => std::mem::forget(function),
        Retired::Section(parts) => std::mem::forget(parts),
        // Plain numbers, whatever they name.
        Retired::Memory(_) | Retired::Pinned(_) | Retired::Counter(_) | Retired::Module(_) => {}
    }
}

/// Gives back what the device is past; returns what must wait for others.
fn give_back(machine: &Machine, ready: Ready, quiet: &Quiet) -> Vec<Retired> {
    if ready.items.is_empty() {
        return ready.items;
    }
    let _hold = exit::hold();
    let Ok(_relaxed) = machine.context.relaxed() else {
        ready.items.into_iter().for_each(leak);
        return Vec::new();
    };
    let (stalling, rest): (Vec<_>, Vec<_>) =
        ready.items.into_iter().partition(|item| item.stalls().is_some());
    let mut later: Vec<_> = rest.into_iter().filter_map(|item| release(machine, item)).collect();
    if ready.closing {
        part_with(machine, stalling);
        return later;
    }
    for item in stalling {
        // Who comes back while there is much to give back waits for one thing at most, and that one for no user's call.
        let alone = if ready.forced { None } else { nobody_holds_up() };
        let now = ready.forced || (alone.is_some() && quiet.still_lasts(machine));
        later.extend(if now { release(machine, item) } else { Some(item) });
    }
    later
}

/// Gives back what makes everybody wait, of a device that is gone; the context is bound.
pub(crate) fn part_with(machine: &Machine, left: Vec<Retired>) {
    machine.resident.leave(left, |item| _ = release(machine, item));
}

/// Gives something back, unless it must wait for others; the context is bound.
fn release(machine: &Machine, item: Retired) -> Option<Retired> {
    // Refusals leave the driver with what it did not take; there is nobody to tell.
    match item {
        Retired::Memory(start) => {
            // SAFETY: the address came from the store, was not freed, and the device is past its uses.
            let _ = unsafe { machine.store.free(start) };
        }
        Retired::Pinned(block) => {
            // SAFETY: its owner is gone, the device is past its uses, and the context is bound.
            let _ = unsafe { block.free() };
        }
        Retired::Counter(counter) => counter.release(),
        Retired::Module(module) => {
            // SAFETY: the handle came from `cuModuleLoadDataEx`; no launch of its functions is in flight, and none can come.
            let _ = unsafe { sys::cuModuleUnload(module) };
        }
        Retired::Lent(lent) => return hand_back(machine, lent).map(Retired::Lent),
        Retired::Function(function) => drop(function),
        Retired::Exec(exec, calls, writes) => {
            // SAFETY: the handle came from an instantiation; no launch of it is in flight, and none can come.
            let _ = unsafe { sys::cuGraphExecDestroy(exec) };
            // The callbacks own values of the user's, whose drop must neither end this thread nor wait on it.
            let _on_device = OnDevice::enter();
            shielded(|| drop(calls));
            drop(writes);
        }
        Retired::Section(parts) => {
            // As above: what the section returned is the user's.
            let _on_device = OnDevice::enter();
            shielded(|| drop(parts));
        }
    }
    None
}

/// Drops memory of another library's, which its owner frees on its stream: not while that captures, or may do so.
fn hand_back(machine: &Machine, lent: Box<dyn Lent>) -> Option<Box<dyn Lent>> {
    match captures(lent.stream()) {
        Ok(false) => None,
        Ok(true) => Some(lent),
        Err(fault) => {
            machine.note(&fault);
            Some(lent)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a device took that ends itself would never be given back.
    #[test]
    fn a_device_inherits_until_it_is_gone_itself() {
        let retirement = Retirement::default();
        assert!(retirement.inherit(vec![Retired::Memory(256)]).is_empty());
        assert_eq!(retirement.state.lock().waiting.len(), 1);
        retirement.close();
        assert_eq!(retirement.inherit(vec![Retired::Memory(512)]).len(), 1);
        assert_eq!(retirement.state.lock().waiting.len(), 1);
    }

    /// Taken too early, a kernel stalls whoever is at work; taken too late, memory is nobody's.
    #[test]
    fn what_makes_everybody_wait_is_taken_when_all_is_quiet_and_the_rest_at_once() {
        let retirement = Retirement::default();
        retirement.add(Retired::Memory(256), SmallVec::new());
        retirement.add(Retired::Module(std::ptr::null_mut()), SmallVec::new());
        let ready = |quiet: bool| retirement.next(Duration::ZERO, false, |_| quiet).items;
        assert!(matches!(ready(false)[..], [Retired::Memory(256)]));
        assert!(ready(false).is_empty());
        assert!(matches!(ready(true)[..], [Retired::Module(_)]));
    }

    /// Without a bound, a device that is never idle would keep all kernels that were ever dropped.
    #[test]
    fn many_that_wait_for_quiet_are_taken_without_it() {
        let retirement = Retirement::default();
        let ready = || retirement.next(Duration::ZERO, false, |_| false).items.len();
        let most = PATIENTLY / MODULE;
        (0..most).for_each(|_| retirement.add(Retired::Module(std::ptr::null_mut()), SmallVec::new()));
        assert_eq!(ready(), 0);
        retirement.add(Retired::Module(std::ptr::null_mut()), SmallVec::new());
        assert_eq!(ready(), most + 1);
    }
}
