//! The queue of a slot: a stream, and how far the device has come on it.

#![allow(unsafe_code, reason = "calls of the CUDA driver")]

use std::hint::cold_path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use static_assertions::assert_impl_all;

use crate::backend::cuda::Machine;
use crate::backend::cuda::context::{Context, check};
use crate::backend::cuda::event::{Event, Purpose};
use crate::backend::cuda::ferry::Ferry;
use crate::backend::cuda::landing::Landings;
use crate::backend::cuda::retire::Retired;
use crate::backend::cuda::sys;
use crate::backend::{Call, Fault};

/// A slot's queue. Dropping it waits for nothing: what it has in flight keeps what it needs.
pub struct CudaQueue {
    pub(crate) shared: Arc<Shared>,
    pub(crate) machine: Arc<Machine>,
}

/// What outlives the queue, until the device is done with it.
///
/// In the order of its fields: what a launch needs is side by side.
#[repr(C, align(64))]
pub(crate) struct Shared {
    stream: sys::CUstream,
    /// The last operation whose calls to the driver are made.
    submitted: AtomicU64,
    /// An operation that was found done: no launch need look at what the device writes while this one will do.
    passed: AtomicU64,
    /// A copy of `published`, to be read without its lock.
    announced: AtomicU64,
    /// After how many of the next operations the counter is written.
    precise: AtomicU32,
    pub(crate) index: u32,
    pub(crate) ferry: Ferry,
    counter: Counter,
    /// The last operation after which the stream writes the counter.
    published: Mutex<u64>,
    pub(crate) landings: Landings,
}

// SAFETY: field by field. `stream` names an object of the driver, which any thread may use; the counter owns its page, as
// a box would; the rest is `Send` by itself.
unsafe impl Send for Shared {}

// SAFETY: field by field. The driver's calls on one stream may be made by several threads at once; the counter's page is
// an array of atomics; the rest is `Sync` by itself.
unsafe impl Sync for Shared {}

/// A number in host memory that the stream writes.
///
/// In memory of ours, which the driver pins: its own would go with it when the process ends, under threads that look.
pub(crate) struct Counter {
    page: NonNull<Page>,
    address: sys::CUdeviceptr,
}

/// A page of the system's, so that nothing else is pinned along.
#[repr(C, align(4096))]
pub(crate) struct Page([AtomicU64; 512]);

/// After so many operations the stream writes the counter, also if nobody waits.
const INTERVAL: u64 = 64;

/// After a wait that had to wait for more than it asked for, the stream writes the counter after each of so many operations:
/// who waits for one replay while the next is under way will do so again.
const PRECISE: u32 = 256;

impl CudaQueue {
    pub(crate) fn new(machine: &Arc<Machine>, index: u32) -> Result<Self, Fault> {
        let shared = Arc::new(Shared::new(&machine.context, index)?);
        machine.resident.add(&shared);
        Ok(CudaQueue { shared, machine: machine.clone() })
    }
}

impl Shared {
    fn new(context: &Context, index: u32) -> Result<Self, Fault> {
        let _relaxed = context.relaxed()?;
        let counter = Counter::new()?;
        let mut stream = std::ptr::null_mut();
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: `stream` is a place for a handle, and the context is bound.
        check(Call::Open, unsafe { sys::cuStreamCreate(&mut stream, flags) })?;
        Ok(Shared {
            index,
            stream,
            counter,
            submitted: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            published: Mutex::new(0),
            announced: AtomicU64::new(0),
            precise: AtomicU32::new(0),
            landings: Landings::default(),
            ferry: Ferry::default(),
        })
    }

    pub(crate) fn stream(&self) -> sys::CUstream {
        self.stream
    }

    pub(crate) fn submitted(&self) -> u64 {
        // Pairs with `submit`: who sees the number can order work behind that operation.
        self.submitted.load(Ordering::SeqCst)
    }

    /// The last operation that is known to be done.
    pub(crate) fn completed(&self) -> u64 {
        // Acquire: the stream's write comes with a barrier, so that who sees an operation done sees what it wrote.
        self.counter.value().load(Ordering::Acquire)
    }

    /// Whether nothing is in flight, and all that was to come has landed.
    pub(crate) fn is_idle(&self) -> bool {
        self.completed() >= self.submitted() && self.landings.is_empty()
    }

    /// Whether `limit` operations or more are in flight.
    #[inline]
    pub(crate) fn is_ahead(&self, limit: u64) -> bool {
        let submitted = self.submitted();
        // Relaxed: a stale number only makes it look again.
        if submitted.saturating_sub(self.passed.load(Ordering::Relaxed)) < limit {
            return false;
        }
        cold_path();
        let completed = self.completed();
        self.passed.store(completed, Ordering::Relaxed);
        submitted.saturating_sub(completed) >= limit
    }

    /// The last operation that is known to be done, with all that it gives: what a read landed in is not free before.
    #[inline]
    pub(crate) fn landed(&self) -> u64 {
        // In this order: what is done by then was on its way before.
        let completed = self.completed();
        completed.min(self.landings.first().saturating_sub(1))
    }

    /// Notes that the calls for operation `seq` are made; the context is bound.
    #[inline]
    pub(crate) fn submit(&self, machine: &Machine, seq: u64) {
        // SeqCst: see `submitted`, and the watch, which must not miss both this and the notice below.
        self.submitted.store(seq, Ordering::SeqCst);
        // Relaxed, both: a stale number only makes the counter be written once more, or once less.
        let precise = self.precise.load(Ordering::Relaxed);
        if precise > 0 {
            cold_path();
            self.precise.store(precise - 1, Ordering::Relaxed);
            self.try_publish(machine);
        } else if seq.saturating_sub(self.announced.load(Ordering::Relaxed)) >= INTERVAL {
            cold_path();
            self.try_publish(machine);
        }
        machine.watch.notice();
    }

    /// Makes the stream write the counter behind everything that was submitted; the context is bound.
    pub(crate) fn publish(&self) -> Result<(), Fault> {
        let mut published = self.published.lock();
        let upto = self.submitted();
        if *published >= upto {
            return Ok(());
        }
        // SAFETY: stream and counter live as long as `self`, which the machine keeps until both are idle; the address is
        // a multiple of 8 and mapped for this context.
        let code = unsafe { sys::cuStreamWriteValue64_v2(self.stream, self.counter.address, upto, 0) };
        check(Call::Synchronize, code)?;
        *published = upto;
        self.announced.store(upto, Ordering::Relaxed);
        Ok(())
    }

    /// [`publish`](Shared::publish), where a refusal can only mean that the next one will be tried.
    pub(crate) fn try_publish(&self, machine: &Machine) {
        if let Err(fault) = self.publish() {
            machine.note(&fault);
        }
    }

    /// Makes what follows wait for operation `seq` of `on`; the context is bound.
    pub(crate) fn wait_for(&self, machine: &Machine, on: &Shared, seq: u64) -> Result<(), Fault> {
        debug_assert!(seq <= on.submitted(), "waits point to what was submitted");
        // What waits may do so for long; who waits for what comes before must not.
        self.publish()?;
        let event = machine.events.take(Call::Wait, Purpose::Order)?;
        let outcome = event.record(Call::Wait, on.stream).and_then(|()| event.hold_back(self.stream));
        machine.events.give(Purpose::Order, event);
        outcome
    }

    /// Blocks until operation `seq` is done and what it gives has landed, the deadline has passed, or the device is lost.
    pub(crate) fn block(
        &self,
        machine: &Machine,
        seq: u64,
        deadline: Option<Instant>,
    ) -> Result<bool, Fault> {
        if self.completed() < seq && !self.wait(machine, seq, deadline)? {
            return Ok(false);
        }
        self.landings.land(machine, self.completed());
        Ok(true)
    }

    /// Blocks as [`block`](Shared::block) does, but lands nothing.
    pub(crate) fn wait(&self, machine: &Machine, seq: u64, deadline: Option<Instant>) -> Result<bool, Fault> {
        let _relaxed = machine.context.relaxed()?;
        if self.announced.load(Ordering::Relaxed) < seq && seq < self.submitted() {
            self.precise.store(PRECISE, Ordering::Relaxed);
        }
        self.publish()?;
        let started = Instant::now();
        let mut asked = started;
        loop {
            if self.completed() >= seq {
                return Ok(true);
            }
            if machine.poison.is_set() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(false);
            }
            let waited = started.elapsed();
            if asked.elapsed() > Duration::from_millis(1) {
                self.query()?;
                asked = Instant::now();
            }
            pause(waited);
        }
    }

    /// Whether everything is done; a fault that the device has met comes out here.
    pub(crate) fn query(&self) -> Result<bool, Fault> {
        // SAFETY: the stream lives as long as `self`.
        match unsafe { sys::cuStreamQuery(self.stream) } {
            code if code == sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => check(Call::Execute, code).map(|()| true),
        }
    }

    /// Records an event for the time here; the context is bound.
    pub(crate) fn stamp(&self, machine: &Machine) -> Result<Event, Fault> {
        let event = machine.events.take(Call::Stamp, Purpose::Time)?;
        match event.record(Call::Stamp, self.stream) {
            Ok(()) => Ok(event),
            Err(fault) => {
                machine.events.give(Purpose::Time, event);
                Err(fault)
            }
        }
    }

    /// Gives the stream back, once everything is done, and returns what is left; the context is bound.
    pub(crate) fn retire(self) -> impl Iterator<Item = Retired> {
        let done = self.completed() >= self.submitted();
        if done {
            // SAFETY: the stream came from `cuStreamCreate`, and `self` was its last owner. A refusal leaks it.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.stream) };
        }
        let left = [Some(Retired::Counter(self.counter)), self.ferry.into_block().map(Retired::Pinned)];
        left.into_iter().flatten().filter(move |_| done)
    }
}

impl Counter {
    /// The context is bound.
    fn new() -> Result<Self, Fault> {
        let page = Box::new(Page(std::array::from_fn(|_| AtomicU64::new(0))));
        let page = NonNull::from(Box::leak(page));
        let (start, flags) =
            (page.as_ptr().cast(), sys::CU_MEMHOSTREGISTER_DEVICEMAP | sys::CU_MEMHOSTREGISTER_PORTABLE);
        // SAFETY: a whole page, which lives until it was unregistered.
        let code = unsafe { sys::cuMemHostRegister_v2(start, size_of::<Page>(), flags) };
        let mut counter = Counter { page, address: 0 };
        if let Err(fault) = check(Call::Open, code) {
            counter.free();
            return Err(fault);
        }
        // SAFETY: `address` is a place for an address, and the page was registered with the flag for a mapping.
        let code = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut counter.address, start, 0) };
        if let Err(fault) = check(Call::Open, code) {
            counter.release();
            return Err(fault);
        }
        Ok(counter)
    }

    fn value(&self) -> &AtomicU64 {
        // SAFETY: the page is initialised and lives until `free`, which takes the value; here and in the device, which writes
        // it by single 8-byte writes, it is accessed atomically only.
        let page = unsafe { self.page.as_ref() };
        let [value, ..] = &page.0;
        value
    }

    /// Unregisters and frees the page, which the device writes no more; the context is bound.
    pub(crate) fn release(self) {
        // SAFETY: the page was registered by `new`. One that the driver keeps is leaked.
        let code = unsafe { sys::cuMemHostUnregister(self.page.as_ptr().cast()) };
        if code == sys::CUresult::CUDA_SUCCESS {
            self.free();
        }
    }

    fn free(self) {
        // SAFETY: the page came from `Box::leak`, the driver has it no more, and `self` was its last owner.
        drop(unsafe { Box::from_raw(self.page.as_ptr()) });
    }
}

/// Lets some time pass, the more the longer it has been: who waits for little is not to sleep through its end, and a
/// sleep takes the system tens of microseconds whatever it was to take.
fn pause(waited: Duration) {
    const SPIN: Duration = Duration::from_micros(50);
    const YIELD: Duration = Duration::from_millis(2);
    const LONGEST: Duration = Duration::from_micros(250);
    if waited < SPIN {
        std::hint::spin_loop();
    } else if waited < YIELD {
        std::thread::yield_now();
    } else {
        std::thread::sleep((waited / 32).min(LONGEST));
    }
}

assert_impl_all!(CudaQueue: Send, Sync);
