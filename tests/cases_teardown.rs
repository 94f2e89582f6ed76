//! Case OBJ-06: teardown in any order, where the code of kernels can be watched, and with work that never runs.

#[path = "conformance/suite/memory/permutations.rs"]
mod permutations;
mod support_objects;

use std::any::Any;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dacapo::prelude::*;
use permutations::permutations;
use support_objects::*;

/// What a program holds, in the order of the permutations: stream, graph, buffers, kernel, device.
type Held = [Option<Box<dyn Any>>; 5];

/// A kernel over `y` that holds `token` for as long as its code lives, and waits while `gate` is shut.
fn gated(device: &Device, token: &Arc<()>, gate: &Arc<AtomicBool>) -> Kernel<(In<u32>, Out<u32>)> {
    let (token, gate) = (token.clone(), gate.clone());
    let program = Program::<(In<u32>, Out<u32>)>::new("gated").host(move |(x, y), _| {
        let _held = &token;
        while !gate.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        y.copy_from_slice(x);
    });
    program.load(device).unwrap()
}

/// Everything that a capture leaves a program with, and the last replay in flight if `in_flight`.
fn build(device: Device, token: &Arc<()>, gate: &Arc<AtomicBool>, in_flight: bool) -> Held {
    let k = gated(&device, token, gate);
    let mut s = device.stream().unwrap();
    let (mut x, mut y) = (s.alloc::<u32>(N).unwrap(), s.alloc::<u32>(N).unwrap());
    s.fill(&mut x, 3).unwrap();
    let (mut graph, ()) = s
        .record(|w| {
            let mut t = w.alloc::<u32>(N)?;
            w.launch(&k, grid(), (&x, &mut t))?;
            w.launch(&k, grid(), (&t, &mut y))
        })
        .unwrap();
    gate.store(true, Ordering::Release);
    graph.replay(&mut s).unwrap();
    assert_eq!(s.read(&y).unwrap(), [3; N]);
    if in_flight {
        gate.store(false, Ordering::Release);
        graph.replay(&mut s).unwrap();
    }
    [
        Some(Box::new(s)),
        Some(Box::new(graph)),
        Some(Box::new((x, y))),
        Some(Box::new(k)),
        Some(Box::new(device)),
    ]
}

/// An order among handles that users must know is an order that some program gets wrong.
#[test]
fn obj_06_everything_may_be_dropped_in_any_order_and_nothing_leaks() {
    for order in permutations() {
        let (token, gate) = (Arc::new(()), Arc::new(AtomicBool::new(false)));
        let mut held = build(device(2), &token, &gate, false);
        order.iter().for_each(|which| drop(held[*which].take()));
        assert_let_go(&token);
    }
}

/// The same behind a replay that cannot end until everything is dropped: a drop that waits would wait for ever.
#[test]
fn obj_06_everything_may_be_dropped_in_any_order_with_a_replay_in_flight() {
    for order in permutations() {
        let (token, gate) = (Arc::new(()), Arc::new(AtomicBool::new(false)));
        let mut held = build(device(2), &token, &gate, true);
        order.iter().for_each(|which| drop(held[*which].take()));
        assert!(Arc::strong_count(&token) > 1, "{order:?}: the replay keeps the code that it runs");
        gate.store(true, Ordering::Release);
        assert_let_go(&token);
    }
}

/// On a stepped device the work in flight never runs: it must be let go with the device, also with waits across slots.
#[test]
fn obj_06_queued_work_that_nobody_will_run_is_let_go_with_the_device() {
    for order in permutations() {
        let (token, gate) = (Arc::new(()), Arc::new(AtomicBool::new(true)));
        let (device, stepper) = stepped(2);
        let mut held = build(device, &token, &gate, true);
        let hold = stepper.hold();
        order.iter().for_each(|which| drop(held[*which].take()));
        assert_let_go(&token);
        drop(hold);
        assert_eq!(stepper.run_all(), 0);
    }
}

static KEPT: Mutex<Option<(Graph, Stream)>> = Mutex::new(None);

/// How the child process is told that it is one.
const CHILD: &str = "DACAPO_TEST_TEARDOWN";

/// What a child process does: it leaves a graph in a static whose replay will never run. In the parent, where the variable
/// is not set, graph and stream just end with the test.
#[test]
fn obj_06_child() {
    let (device, stepper) = stepped(1);
    let k = Kernels::load(&device);
    let mut s = device.stream().unwrap();
    let mut c = s.alloc::<u32>(N).unwrap();
    let (mut graph, ()) = s.record(|w| w.launch(&k.inc, grid(), (&mut c,))).unwrap();
    graph.replay(&mut s).unwrap();
    if std::env::var_os(CHILD).is_some() {
        std::mem::forget(stepper.hold());
        *KEPT.lock().unwrap() = Some((graph, s));
        println!("kept in a static");
    }
}

/// Destructors that run after `main`, or never, must not crash the process or keep it from ending.
#[test]
fn obj_06_the_process_ends_well_with_a_graph_in_a_static_whose_replay_will_never_run() {
    // With one thread the harness runs the test on its main thread, whose locals are dropped after `main`.
    ["1", "2"].into_iter().for_each(run_child);
}

fn run_child(threads: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "obj_06_child", "--nocapture", "--test-threads", threads])
        .env(CHILD, "")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
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
    let status = status.unwrap_or_else(|| panic!("{threads} threads: it hangs at its end\n{said}"));
    assert_eq!(status.code(), Some(0), "{threads} threads: {status}\n{said}");
    assert!(said.contains("kept in a static"), "the child ran nothing:\n{said}");
}
