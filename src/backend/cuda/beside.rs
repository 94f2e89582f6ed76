//! A device and those beside it in the process: what the driver does to one, all devices of its context wait for.

#![forbid(unsafe_code)]

use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;

use crate::backend::cuda::context::Context;
use crate::backend::cuda::queue::Shared;
use crate::backend::cuda::retire::{Retired, Retirement};
use crate::poison::Poison;

/// What the other devices of its context know of a device.
pub(crate) struct Resident {
    pub(crate) retirement: Retirement,
    queues: Mutex<Queues>,
    /// The address of the context.
    context: usize,
    poison: Arc<Poison>,
}

type Queues = SmallVec<[Arc<Shared>; 8]>;

/// All of the process.
static ALL: Mutex<Vec<Weak<Resident>>> = Mutex::new(Vec::new());

/// Held, with others, while something is enqueued that may hold a stream up for as long as it likes; alone by who is about to
/// make everybody wait, and has seen that nothing does.
static HOLD_UP: RwLock<()> = RwLock::new(());

/// Held by who comes, and by who gives back what makes everybody wait: who comes is there to be left it, or comes after it.
static DOOR: Mutex<()> = Mutex::new(());

/// While it lives, nobody makes everybody wait: for who enqueues a call of the user's, or a wait for somebody else's stream,
/// until that is counted as submitted.
pub(crate) fn holding_up() -> RwLockReadGuard<'static, ()> {
    HOLD_UP.read()
}

/// While it lives, no stream is held up that was not before; none while somebody is about to hold one up. Never queues: who
/// comes to hold up a stream may be who lets another one go on.
pub(crate) fn nobody_holds_up() -> Option<RwLockWriteGuard<'static, ()>> {
    HOLD_UP.try_write()
}

impl Resident {
    pub(crate) fn new(context: &Context, poison: &Arc<Poison>) -> Arc<Self> {
        let (context, poison) = (context.raw().addr(), poison.clone());
        let (retirement, queues) = (Retirement::default(), Mutex::default());
        let resident = Arc::new(Resident { retirement, queues, context, poison });
        let _door = DOOR.lock();
        let mut all = ALL.lock();
        all.retain(|resident| resident.strong_count() > 0);
        all.push(Arc::downgrade(&resident));
        resident
    }

    pub(crate) fn add(&self, queue: &Arc<Shared>) {
        self.queues.lock().push(queue.clone());
    }

    pub(crate) fn queues(&self) -> Queues {
        self.queues.lock().clone()
    }

    pub(crate) fn take_queues(&self) -> Queues {
        std::mem::take(&mut *self.queues.lock())
    }

    /// How many operations were submitted in the whole context, if none of them is in flight any more.
    pub(crate) fn at_rest(&self) -> Option<u64> {
        self.beside().iter().map(|resident| resident.submitted_if_idle()).sum()
    }

    /// Whether nothing of the device is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.submitted_if_idle().is_some()
    }

    /// Leaves what makes everybody wait, and what the device is past, to another device of the context, which knows when
    /// nobody has to. Where there is none, `release` gives it back.
    pub(crate) fn leave(&self, items: Vec<Retired>, release: impl FnMut(Retired)) {
        let _door = DOOR.lock();
        let (beside, me) = (self.beside(), std::ptr::from_ref(self));
        let heirs = beside.iter().filter(|resident| !std::ptr::eq(Arc::as_ptr(resident), me));
        heirs.fold(items, |items, heir| heir.retirement.inherit(items)).into_iter().for_each(release);
    }

    /// The devices of the context, this one too. Lost ones, of which nobody will ever know whether they are idle, are not
    /// among them.
    fn beside(&self) -> SmallVec<[Arc<Resident>; 4]> {
        let all = ALL.lock();
        let found = all.iter().filter_map(Weak::upgrade);
        found.filter(|resident| resident.context == self.context && !resident.poison.is_set()).collect()
    }

    fn submitted_if_idle(&self) -> Option<u64> {
        let queues = self.queues.lock();
        queues.iter().map(|queue| queue.is_idle().then(|| queue.submitted())).sum()
    }
}
