//! Graphs that come and go on all slots at once, over buffers that they share.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::support::*;

const BUFFERS: usize = 3;
const ROUNDS: usize = 100;

/// Buffers that threads take turns at naming; what was enqueued on them runs whenever its turn comes.
type Shared = [Mutex<Buffer<f32>>; BUFFERS];

/// Who is at work on which buffer, and how often somebody found another one there.
static AT_WORK: [AtomicBool; BUFFERS] = [const { AtomicBool::new(false) }; BUFFERS];
static MET: AtomicUsize = AtomicUsize::new(0);

/// Is at work on a buffer for long enough to meet who else is.
fn be_at_work(buffer: usize) {
    if AT_WORK[buffer].swap(true, Ordering::SeqCst) {
        MET.fetch_add(1, Ordering::SeqCst);
    }
    (0..10).for_each(|_| thread::yield_now());
    AT_WORK[buffer].store(false, Ordering::SeqCst);
}

/// Adds one to a buffer, on the device, and is at work on it.
fn add(on: &mut impl Enqueue<Subject>, k: &Kernels, shared: &Shared, buffer: usize) {
    let named = &mut *shared[buffer].lock().unwrap();
    on.launch(&k.inc, grid(), (&mut *named, Len)).unwrap();
    on.host_call_with(Touches::new().writes(named), move || be_at_work(buffer)).unwrap();
}

/// Records, replays, enqueues and drops; returns how often it added one to each buffer.
fn work(device: &Device, k: &Kernels, shared: &Shared, thread: usize) -> [usize; BUFFERS] {
    let mut stream = device.stream().unwrap();
    let mut added = [0; BUFFERS];
    let mut kept: Vec<(Graph, [usize; 2])> = Vec::new();
    for round in 0..ROUNDS {
        let pair = [(thread + round) % BUFFERS, (thread + round + 1) % BUFFERS];
        let mut recording = stream.prepare().unwrap().begin().unwrap();
        pair.into_iter().for_each(|buffer| add(&mut recording, k, shared, buffer));
        // From here on others use the buffers, while the graph becomes a user of them.
        let (graph, idle) = recording.end().unwrap();
        stream = idle;
        kept.push((graph, pair));
        for (graph, pair) in &mut kept {
            graph.replay(&mut stream).unwrap();
            pair.iter().for_each(|buffer| added[*buffer] += 1);
        }
        if round % 3 == 0 {
            add(&mut stream, k, shared, pair[0]);
            added[pair[0]] += 1;
        }
        if kept.len() > 2 {
            // With replays of it in flight, and of others of the same buffers on other slots.
            drop(kept.remove(round % 2));
        }
    }
    stream.sync().unwrap();
    added
}

/// A graph that joined what it uses while another slot looked at it would be missed by that slot's next operation or replay:
/// both are at work on one buffer at once, and an addition is lost.
#[test]
fn graphs_that_come_and_go_on_all_slots_take_turns_at_what_they_share() {
    const THREADS: usize = 4;
    let Some((device, k)) = working(THREADS) else { return };
    let mut stream = device.stream().unwrap();
    let shared: Shared = std::array::from_fn(|_| Mutex::new(filled(&mut stream, 0.0)));
    let added: Vec<_> = thread::scope(|scope| {
        let work = |thread| work(&device, &k, &shared, thread);
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(MET.load(Ordering::SeqCst), 0, "two were at work on one buffer at once");
    for (n, buffer) in shared.into_iter().enumerate() {
        let sum: usize = added.iter().map(|added| added[n]).sum();
        assert!(all(&stream.read(&buffer.into_inner().unwrap()).unwrap(), sum as f32), "buffer {n}");
    }
}
