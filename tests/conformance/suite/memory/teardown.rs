//! Case OBJ-06: teardown in any order, and at the end of the process.

use std::any::Any;
use std::cell::RefCell;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::permutations::permutations;
use super::support::*;
use super::zoo;

/// What a program holds, in the order of the permutations: stream, graph, buffers, kernel, device.
type Held = [Option<Box<dyn Any>>; 5];

/// Everything that a capture leaves a program with; and, if asked for, the last replay in flight behind a gate. The graph
/// holds `token` in a callback.
fn build(device: Device, token: &Arc<()>, in_flight: bool) -> (Held, Option<Gate>) {
    let k = zoo::add1::<u32>().load(&device).unwrap();
    let mut s = device.stream().unwrap();
    let (mut x, mut y) = (s.alloc::<u32>(N).unwrap(), s.alloc::<u32>(N).unwrap());
    s.fill(&mut x, 3).unwrap();
    let token = token.clone();
    let (mut graph, ()) = s
        .record(|w| {
            let mut t = w.alloc::<u32>(N)?;
            w.launch(&k, Grid::covering(N), (&x, &mut t, Len, Len))?;
            w.host_call(move || _ = &token)?;
            w.launch(&k, Grid::covering(N), (&t, &mut y, Len, Len))
        })
        .unwrap();
    graph.replay(&mut s).unwrap();
    assert_eq!(s.read(&y).unwrap(), [5; N]);
    let gate = in_flight.then(|| {
        let gate = Gate::close(&mut s);
        graph.replay(&mut s).unwrap();
        gate
    });
    let held: [Box<dyn Any>; 5] =
        [Box::new(s), Box::new(graph), Box::new((x, y)), Box::new(k), Box::new(device)];
    (held.map(Some), gate)
}

/// An order among handles that users must know is an order that some program gets wrong.
#[test]
fn obj_06_everything_may_be_dropped_in_any_order_and_nothing_leaks() {
    for order in permutations() {
        let token = Arc::new(());
        let Some(device) = device(2) else { return };
        let (mut held, _) = build(device, &token, false);
        order.iter().for_each(|which| drop(held[*which].take()));
        assert_let_go(&token);
    }
}

/// The same behind a replay that cannot end until everything is dropped: a drop that waits would wait for ever.
#[test]
fn obj_06_everything_may_be_dropped_in_any_order_with_a_replay_in_flight() {
    for order in permutations() {
        let token = Arc::new(());
        let Some(device) = device(2) else { return };
        let (mut held, gate) = build(device, &token, true);
        order.iter().for_each(|which| drop(held[*which].take()));
        assert!(Arc::strong_count(&token) > 1, "{order:?}: the replay keeps what it runs");
        gate.unwrap().open();
        assert_let_go(&token);
    }
}

static KEPT: Mutex<Option<(Graph, Stream)>> = Mutex::new(None);

thread_local! {
    static LOCAL: RefCell<Option<(Stream, Graph)>> = const { RefCell::new(None) };
}

/// How the child processes are told where to keep their graph.
const CHILD: &str = "DACAPO_TEST_TEARDOWN";

/// A graph with its last replay in flight, or at least enqueued.
fn in_flight() -> Option<(Graph, Stream)> {
    let device = device(1)?;
    let inc = zoo::inc::<u32>().load(&device).unwrap();
    let mut s = device.stream().unwrap();
    let mut c = s.alloc::<u32>(1 << 16).unwrap();
    let (mut graph, ()) = s.record(|w| w.launch(&inc, Grid::covering(1 << 16), (&mut c, Len))).unwrap();
    (0..20).for_each(|_| drop(graph.replay(&mut s).unwrap()));
    Some((graph, s))
}

/// What a child process does. In the parent, where the variable is not set, graph and stream just end with the test.
#[test]
fn obj_06_child() {
    let place = std::env::var(CHILD).unwrap_or_else(|_| "dropped".to_owned());
    let Some((graph, stream)) = in_flight() else { return };
    match place.as_str() {
        "dropped" => drop((stream, graph)),
        "static" => *KEPT.lock().unwrap() = Some((graph, stream)),
        "thread-local" => LOCAL.set(Some((stream, graph))),
        "leaked" => subject::forget((graph, stream)),
        other => panic!("no such place: {other}"),
    }
    println!("kept in a place that is {place}");
}

/// Destructors that run after `main`, or never, must not crash the process or keep it from ending.
#[test]
fn obj_06_the_process_ends_well_with_a_graph_in_a_static_in_a_thread_local_or_leaked() {
    if device(1).is_none() {
        return;
    }
    for place in ["static", "thread-local", "leaked"] {
        // With one thread the harness runs the test on its main thread, whose locals are dropped after `main`.
        for threads in ["1", "2"] {
            run_child(place, threads);
        }
    }
}

fn run_child(place: &str, threads: &str) {
    let (_, module) = module_path!().split_once("::").unwrap();
    let test = format!("{module}::obj_06_child");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &test, "--nocapture", "--test-threads", threads])
        .env(CHILD, place)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() >= deadline {
            child.kill().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    let status = status.unwrap_or_else(|| panic!("{place}, {threads} threads: it hangs at its end\n{said}"));
    assert_eq!(status.code(), Some(0), "{place}, {threads} threads: {status}\n{said}");
    assert!(said.contains(&format!("kept in a place that is {place}")), "the child ran nothing:\n{said}");
}
