//! Graphs that come and go on all slots at once, over buffers that they share.

use std::sync::Mutex;
use std::thread;

use super::support::*;

const BUFFERS: usize = 3;
const ROUNDS: usize = 100;

/// Buffers that threads take turns at naming; what was enqueued on them runs whenever its turn comes.
type Shared = [Mutex<Buffer<f32>>; BUFFERS];

/// Which two buffers a round of a thread is about, in ascending order.
fn pair(thread: usize, round: usize) -> (usize, usize) {
    let (one, step) = ((thread + round) % BUFFERS, 1 + round / BUFFERS % (BUFFERS - 1));
    let other = (one + step) % BUFFERS;
    (one.min(other), one.max(other))
}

/// A graph that adds one to each of two buffers, which others may use from before it ends.
fn increments(stream: Stream, k: &Kernels, shared: &Shared, (one, other): (usize, usize)) -> (Graph, Stream) {
    let mut recording = stream.prepare().unwrap().begin().unwrap();
    for buffer in [one, other] {
        recording.launch(&k.inc, grid(), (&mut *shared[buffer].lock().unwrap(), Len)).unwrap();
    }
    recording.end().unwrap()
}

/// Records, replays, launches and drops; returns how often it added one to each buffer.
fn work(device: &Device, k: &Kernels, shared: &Shared, thread: usize) -> [usize; BUFFERS] {
    let mut stream = device.stream().unwrap();
    let mut added = [0; BUFFERS];
    let mut kept: Vec<(Graph, (usize, usize))> = Vec::new();
    for round in 0..ROUNDS {
        let pair = pair(thread, round);
        let (graph, idle) = increments(stream, k, shared, pair);
        stream = idle;
        kept.push((graph, pair));
        for (graph, (one, other)) in &mut kept {
            graph.replay(&mut stream).unwrap();
            added[*one] += 1;
            added[*other] += 1;
        }
        for direct in [pair.0, round % BUFFERS] {
            stream.launch(&k.inc, grid(), (&mut *shared[direct].lock().unwrap(), Len)).unwrap();
            added[direct] += 1;
        }
        if kept.len() > 3 {
            // With replays of it in flight, and others of the same buffers on other slots.
            drop(kept.remove(round % 3));
        }
    }
    stream.sync().unwrap();
    added
}

/// A graph that joined what it uses while another slot looked at it would be missed by that slot's next launch or replay:
/// two additions at once, of which one is lost.
#[test]
fn graphs_that_come_and_go_on_all_slots_lose_no_use_of_what_they_share() {
    const THREADS: usize = 4;
    let Some((device, k)) = working(THREADS) else { return };
    let mut stream = device.stream().unwrap();
    let shared: Shared = std::array::from_fn(|_| Mutex::new(filled(&mut stream, 0.0)));
    let added: Vec<_> = thread::scope(|scope| {
        let work = |thread| work(&device, &k, &shared, thread);
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (n, buffer) in shared.into_iter().enumerate() {
        let sum: usize = added.iter().map(|added| added[n]).sum();
        assert!(all(&stream.read(&buffer.into_inner().unwrap()).unwrap(), sum as f32), "buffer {n}");
    }
}
