//! The queues of a device, and of those beside it in the process: the driver makes all devices of a context wait for what it
//! does to one.

#![forbid(unsafe_code)]

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::backend::cuda::context::Context;
use crate::backend::cuda::queue::Shared;
use crate::poison::Poison;

/// A device's queues.
pub(crate) struct Queues {
    list: Mutex<List>,
    /// The address of the context.
    context: usize,
    poison: Arc<Poison>,
}

type List = SmallVec<[Arc<Shared>; 8]>;

/// Those of all devices.
static ALL: Mutex<Vec<Weak<Queues>>> = Mutex::new(Vec::new());

impl Queues {
    pub(crate) fn new(context: &Context, poison: &Arc<Poison>) -> Arc<Self> {
        let context = context.raw().addr();
        let queues = Arc::new(Queues { list: Mutex::default(), context, poison: poison.clone() });
        let mut all = ALL.lock();
        all.retain(|queues| queues.strong_count() > 0);
        all.push(Arc::downgrade(&queues));
        queues
    }

    pub(crate) fn add(&self, queue: &Arc<Shared>) {
        self.list.lock().push(queue.clone());
    }

    pub(crate) fn list(&self) -> List {
        self.list.lock().clone()
    }

    pub(crate) fn take(&self) -> List {
        std::mem::take(&mut *self.list.lock())
    }

    /// How many operations were submitted in the whole context, if none of them is in flight any more. A lost device, which
    /// will never tell, does not count.
    pub(crate) fn at_rest(&self) -> Option<u64> {
        let all = ALL.lock();
        let found = all.iter().filter_map(Weak::upgrade);
        let beside = found.filter(|queues| queues.context == self.context && !queues.poison.is_set());
        beside.map(|queues| queues.submitted_if_idle()).sum()
    }

    fn submitted_if_idle(&self) -> Option<u64> {
        let list = self.list.lock();
        let done = |queue: &Arc<Shared>| {
            let submitted = queue.submitted();
            (queue.completed() >= submitted && queue.landings.is_empty()).then_some(submitted)
        };
        list.iter().map(done).sum()
    }
}
