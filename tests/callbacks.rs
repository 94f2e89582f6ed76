//! When a host callback runs, operation by operation. What else callbacks promise is in the conformance suite.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dacapo::prelude::*;
use support::{LEN, stepped};

/// A callback that ran at its call would see buffers that the work before it has not written yet.
#[test]
fn a_callback_runs_between_the_operations_that_it_was_enqueued_between() {
    let (device, stepper, _k) = stepped(1);
    let mut s = device.stream().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let mut buffer = s.alloc_scratch::<f32>(LEN).unwrap();
    s.fill(&mut buffer, 1.0).unwrap();
    s.host_call(move || _ = counted.fetch_add(1, Ordering::Relaxed)).unwrap();
    s.fill(&mut buffer, 2.0).unwrap();
    let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    assert!(stepper.step(s.id()) && of(&count) == 0, "the fill comes first");
    assert!(stepper.step(s.id()) && of(&count) == 1 && stepper.pending(s.id()) == 1, "then the callback");
}
