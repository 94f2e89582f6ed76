//! Models of ownership: loom runs each through the interleavings of its threads.
//!
//! What an operation looks at stands in cells that loom watches: two operations that look at one object, without the locks
//! that order them, fail the model, and so does a deadlock.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release --lib ownership`.
#![forbid(unsafe_code)]

use loom::cell::UnsafeCell;
use loom::thread;

use super::{Lanes, Owner, Owners, enter, enter_owners};
use crate::capture::sync::{Arc, AtomicUsize, Mutex, MutexGuard, Ordering};

/// Explores up to a number of forced switches, so that each model ends in seconds.
fn model(switches: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(body);
}

/// A device, reduced to its locks.
struct Device {
    lanes: Vec<Mutex<()>>,
    order: Mutex<()>,
}

impl Lanes for Device {
    type Lane<'l> = MutexGuard<'l, ()>;
    type Order<'l> = MutexGuard<'l, ()>;

    fn lane(&self, slot: u32) -> MutexGuard<'_, ()> {
        self.lanes[slot as usize].lock()
    }

    fn order(&self) -> MutexGuard<'_, ()> {
        self.order.lock()
    }
}

impl Device {
    fn new(slots: usize) -> Self {
        Device { lanes: (0..slots).map(|_| Mutex::new(())).collect(), order: Mutex::new(()) }
    }
}

/// Graphs that an allocation or a graph leads to, and how many there are, as the library keeps them.
struct Leads {
    count: AtomicUsize,
    graphs: Mutex<Vec<Arc<Graph>>>,
}

impl Leads {
    fn new() -> Self {
        Leads { count: AtomicUsize::new(0), graphs: Mutex::new(Vec::new()) }
    }

    fn add(&self, graph: &Arc<Graph>) {
        let mut graphs = self.graphs.lock();
        graphs.push(Arc::clone(graph));
        self.count.store(graphs.len(), Ordering::Relaxed);
    }

    fn remove(&self, graph: &Arc<Graph>) {
        let mut graphs = self.graphs.lock();
        graphs.retain(|known| !Arc::ptr_eq(known, graph));
        self.count.store(graphs.len(), Ordering::Relaxed);
    }

    fn each(&self, visit: impl FnMut(&Arc<Graph>)) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.graphs.lock().iter().for_each(visit);
        }
    }
}

/// What has an owner: an allocation, which leads to the graphs that use it, or a graph, which leads to those that share
/// allocations with it.
struct Object {
    owner: Owner,
    leads: Leads,
    looked_at: UnsafeCell<()>,
}

type Graph = Object;
type Allocation = Object;

impl Object {
    fn new(slot: u32) -> Arc<Self> {
        Arc::new(Object { owner: Owner::new(slot), leads: Leads::new(), looked_at: UnsafeCell::new(()) })
    }

    /// Every object that an operation looks at that looks at this one.
    fn visit(&self, visit: &mut dyn FnMut(&Owner)) {
        visit(&self.owner);
        self.leads.each(|graph| visit(&graph.owner));
    }

    /// Looks at it, which nobody else may do at the same time.
    fn look(&self) {
        self.looked_at.with_mut(|_| ());
    }

    fn look_at_all(&self) {
        self.look();
        self.leads.each(|graph| graph.look());
    }
}

/// Runs something with the device and an object of it on another thread.
fn beside<T: 'static>(
    device: &Arc<Device>,
    object: &Arc<Object>,
    run: impl FnOnce(&Device, &Arc<Object>) -> T + 'static,
) -> thread::JoinHandle<T> {
    let (device, object) = (Arc::clone(device), Arc::clone(object));
    thread::spawn(move || run(&device, &object))
}

/// A launch that uses an allocation, or a replay of a graph.
fn operate(device: &Device, slot: u32, object: &Object) {
    let _lane = enter(device, slot, |visit| object.visit(visit));
    object.look_at_all();
}

/// Makes a graph of an allocation.
fn join(device: &Device, slot: u32, used: &Allocation) -> Arc<Graph> {
    let _lane = enter(device, slot, |visit| used.visit(visit));
    used.look();
    let graph = Graph::new(slot);
    used.leads.each(|other| {
        other.look();
        other.leads.add(&graph);
        graph.leads.add(other);
    });
    used.leads.add(&graph);
    graph
}

/// Drops a graph of an allocation.
fn leave(device: &Device, graph: &Arc<Graph>, used: &Allocation) {
    let _owners: Owners<'_, Device> = enter_owners(device, |visit| {
        graph.visit(visit);
        visit(&used.owner);
    });
    used.look();
    used.leads.remove(graph);
    graph.look();
    let others = std::mem::take(&mut *graph.leads.graphs.lock());
    for other in others {
        other.look();
        other.leads.remove(graph);
    }
}

/// A graph that a launch does not know of is one that its replay does not wait for.
#[test]
fn a_graph_joins_what_another_slot_launches_on() {
    model(6, || {
        let (device, used) = (Arc::new(Device::new(2)), Object::new(1));
        let other = beside(&device, &used, move |device, used| operate(device, 1, used));
        let graph = join(&device, 0, &used);
        operate(&device, 0, &graph);
        other.join().unwrap();
        operate(&device, 1, &used);
    });
}

/// Two graphs of one allocation whose replays did not know of each other would run at once.
#[test]
fn two_graphs_join_one_allocation_from_two_slots() {
    model(6, || {
        let (device, used) = (Arc::new(Device::new(2)), Object::new(0));
        let other = beside(&device, &used, move |device, used| {
            let graph = join(device, 1, used);
            operate(device, 1, &graph);
            graph
        });
        let mine = join(&device, 0, &used);
        operate(&device, 0, &mine);
        let others = other.join().unwrap();
        let knows = |graph: &Graph, other: &Arc<Graph>| {
            graph.leads.graphs.lock().iter().any(|known| Arc::ptr_eq(known, other))
        };
        assert!(knows(&mine, &others) && knows(&others, &mine));
        leave(&device, &mine, &used);
        leave(&device, &others, &used);
    });
}

/// A replay that read the links before a new one was made must find it when its slot owns them.
#[test]
fn a_graph_is_linked_to_one_that_a_third_slot_replays() {
    model(4, || {
        let (device, used) = (Arc::new(Device::new(3)), Object::new(0));
        let old = join(&device, 0, &used);
        let replays = beside(&device, &old, move |device, old| operate(device, 2, old));
        let joins = beside(&device, &used, move |device, used| {
            let graph = join(device, 1, used);
            operate(device, 1, &graph);
            graph
        });
        operate(&device, 0, &used);
        replays.join().unwrap();
        let new = joins.join().unwrap();
        operate(&device, 0, &old);
        leave(&device, &new, &used);
        leave(&device, &old, &used);
    });
}

/// Who drops a graph has no slot: it must keep out every owner, also of what a graph was linked to a moment ago.
#[test]
fn a_graph_leaves_while_others_join_and_replay() {
    model(4, || {
        let (device, used) = (Arc::new(Device::new(2)), Object::new(0));
        let (gone, kept) = (join(&device, 0, &used), join(&device, 1, &used));
        let drops = beside(&device, &used, move |device, used| leave(device, &gone, used));
        let replays = beside(&device, &kept, move |device, kept| operate(device, 1, kept));
        let new = join(&device, 0, &used);
        drops.join().unwrap();
        replays.join().unwrap();
        leave(&device, &new, &used);
        leave(&device, &kept, &used);
    });
}
