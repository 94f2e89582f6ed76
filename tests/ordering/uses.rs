//! Uses of buffers by operations that execute.

use dacapo::prelude::*;

use crate::support::{all, stepped};
use crate::{N, ready, settle};

/// Without the event, a reader on another slot would see the bytes of before.
#[test]
fn a_read_waits_for_the_last_write_on_another_slot() {
    let (device, stepper, _) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut x = ready(&mut a, &stepper, 0.0);
    let mut copy = ready(&mut b, &stepper, 0.0);
    a.fill(&mut x, 1.0).unwrap();
    b.copy(&x, &mut copy).unwrap();
    assert!(!stepper.step(b.id()), "the write has not run");
    assert!(stepper.step(a.id()));
    assert!(stepper.step(b.id()));
    assert!(all(&b.read(&copy).unwrap(), 1.0));
}

/// Readers that queued up behind each other would make sharing an input as slow as one stream.
#[test]
fn readers_on_different_slots_do_not_wait_for_each_other() {
    let (device, stepper, _) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let x = ready(&mut a, &stepper, 3.0);
    let mut to_a = ready(&mut a, &stepper, 0.0);
    let mut to_b = ready(&mut b, &stepper, 0.0);
    a.copy(&x, &mut to_a).unwrap();
    b.copy(&x, &mut to_b).unwrap();
    assert!(stepper.step(b.id()), "the reader on the other slot has not run, and need not");
    assert!(stepper.step(a.id()));
}

/// A write that waited only for the last write would change what a slower reader is about to see.
#[test]
fn a_write_waits_for_the_readers_of_every_slot() {
    let (device, stepper, _) = stepped(3);
    let mut s: Vec<_> = (0..3).map(|_| device.stream().unwrap()).collect();
    let mut x = ready(&mut s[0], &stepper, 3.0);
    let mut copies: Vec<_> = (0..2).map(|i| ready(&mut s[i], &stepper, 0.0)).collect();
    for (stream, copy) in s.iter_mut().zip(&mut copies) {
        stream.copy(&x, &mut *copy).unwrap();
    }
    s[2].fill(&mut x, 9.0).unwrap();
    assert!(!stepper.step(s[2].id()));
    assert!(stepper.step(s[1].id()));
    assert!(!stepper.step(s[2].id()), "one of two readers is left");
    assert!(stepper.step(s[0].id()));
    assert!(stepper.step(s[2].id()));
    for copy in &copies {
        assert!(all(&s[0].read(copy).unwrap(), 3.0));
    }
    assert!(all(&s[0].read(&x).unwrap(), 9.0));
}

/// A later reader of its own slot must not hide the earlier one of another slot.
#[test]
fn a_write_between_two_readers_orders_both() {
    let (device, stepper, _) = stepped(3);
    let mut s: Vec<_> = (0..3).map(|_| device.stream().unwrap()).collect();
    let mut x = ready(&mut s[0], &stepper, 1.0);
    let mut before = ready(&mut s[0], &stepper, 0.0);
    let mut after = ready(&mut s[2], &stepper, 0.0);
    s[0].copy(&x, &mut before).unwrap();
    s[1].fill(&mut x, 2.0).unwrap();
    s[2].copy(&x, &mut after).unwrap();
    assert!(!stepper.step(s[2].id()));
    assert!(!stepper.step(s[1].id()));
    assert!(stepper.step(s[0].id()));
    assert!(!stepper.step(s[2].id()));
    assert!(stepper.step(s[1].id()));
    assert!(stepper.step(s[2].id()));
    assert!(all(&s[0].read(&before).unwrap(), 1.0));
    assert!(all(&s[0].read(&after).unwrap(), 2.0));
}

/// Halves that waited for each other would make splitting a buffer useless; a whole that knew only one half would free
/// or reuse bytes under the other.
#[test]
fn halves_used_on_two_slots_do_not_wait_and_their_bytes_wait_for_both() {
    let (device, stepper, _) = stepped(3);
    let mut s: Vec<_> = (0..3).map(|_| device.stream().unwrap()).collect();
    let mut low = s[0].alloc_scratch::<f32>(2 * N).unwrap();
    let mut high = low.split_off(N).unwrap();
    let held = device.memory_usage().held;
    s[0].fill(&mut low, 1.0).unwrap();
    s[1].fill(&mut high, 2.0).unwrap();
    assert!(stepper.step(s[1].id()), "the halves share no byte");
    s[1].fill(&mut high, 3.0).unwrap();
    drop(low);
    drop(high);
    assert_eq!(device.memory_usage().in_use, 0);

    let mut tenant = s[0].alloc_scratch::<f32>(2 * N).unwrap();
    assert_eq!(device.memory_usage().held, held, "the bytes of the halves are used again");
    s[2].fill(&mut tenant, 7.0).unwrap();
    assert!(!stepper.step(s[2].id()), "the low half is still being written");
    assert!(stepper.step(s[0].id()));
    assert!(!stepper.step(s[2].id()), "the high half is still being written");
    assert!(stepper.step(s[1].id()));
    assert!(stepper.step(s[2].id()));
    assert!(all(&s[0].read(&tenant).unwrap(), 7.0));
}

/// Dropping one half must not give the other's bytes away.
#[test]
fn a_half_keeps_the_allocation_of_both() {
    let (device, stepper, _) = stepped(2);
    let mut a = device.stream().unwrap();
    let mut low = a.alloc_scratch::<f32>(2 * N).unwrap();
    let mut high = low.split_off(N).unwrap();
    a.fill(&mut high, 5.0).unwrap();
    drop(low);
    let mut tenant = a.alloc_scratch::<f32>(2 * N).unwrap();
    a.fill(&mut tenant, 6.0).unwrap();
    settle(&stepper);
    assert!(all(&a.read(&high).unwrap(), 5.0));
}

/// Slices that overlap in a few bytes conflict in those, also where neither contains the other.
#[test]
fn overlapping_slices_conflict_and_touching_ones_do_not() {
    let (device, stepper, _) = stepped(3);
    let mut s: Vec<_> = (0..3).map(|_| device.stream().unwrap()).collect();
    let mut x = ready(&mut s[0], &stepper, 0.0);
    s[0].fill(x.slice_mut(0..32).unwrap(), 1.0).unwrap();
    s[1].fill(x.slice_mut(32..48).unwrap(), 2.0).unwrap();
    s[2].fill(x.slice_mut(31..33).unwrap(), 3.0).unwrap();
    assert!(stepper.step(s[1].id()), "32 is where the first slice ends");
    assert!(!stepper.step(s[2].id()), "31 belongs to the first slice");
    assert!(stepper.step(s[0].id()));
    assert!(stepper.step(s[2].id()));
    let read = s[0].read(&x).unwrap();
    assert_eq!(read[30..34], [1.0, 3.0, 3.0, 2.0]);
}

/// Freed bytes go straight back to their pool, so the pool's own queue is no proof that nobody uses them any more.
#[test]
fn a_recycled_buffer_first_used_on_another_slot_waits_for_its_last_tenant() {
    let (device, stepper, _) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut old = a.alloc_scratch::<f32>(N).unwrap();
    a.fill(&mut old, 1.0).unwrap();
    drop(old);
    let mut new = a.alloc_scratch::<f32>(N).unwrap();
    b.fill(&mut new, 2.0).unwrap();
    assert!(!stepper.step(b.id()), "the last tenant's write has not run");
    assert!(stepper.step(a.id()));
    assert!(stepper.step(b.id()));
    assert!(all(&a.read(&new).unwrap(), 2.0));
}

/// The pool belongs to one slot and its tenants go everywhere: the next tenant on the pool's own slot waits too.
#[test]
fn a_recycled_buffer_used_on_its_own_slot_waits_for_a_last_use_elsewhere() {
    let (device, stepper, _) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let old = ready(&mut a, &stepper, 1.0);
    let mut copy = ready(&mut b, &stepper, 0.0);
    b.copy(&old, &mut copy).unwrap();
    drop(old);
    let mut new = a.alloc_scratch::<f32>(N).unwrap();
    a.fill(&mut new, 2.0).unwrap();
    assert!(!stepper.step(a.id()), "the last tenant is still being read");
    assert!(stepper.step(b.id()));
    assert!(stepper.step(a.id()));
    assert!(all(&b.read(&copy).unwrap(), 1.0));
}

/// A tenant of a part of the bytes, and a tenant of the rest: each waits for what was in its own part.
#[test]
fn recycled_bytes_wait_only_for_the_tenants_that_they_had() {
    let (device, stepper, _) = stepped(3);
    let mut s: Vec<_> = (0..3).map(|_| device.stream().unwrap()).collect();
    let mut first = s[0].alloc_scratch::<f32>(N).unwrap();
    let kept = s[0].alloc_scratch::<f32>(N).unwrap();
    s[1].fill(&mut first, 1.0).unwrap();
    drop(first);
    let mut fresh = s[0].alloc_scratch::<f32>(4096).unwrap();
    s[2].fill(&mut fresh, 2.0).unwrap();
    assert!(stepper.step(s[2].id()), "these bytes had no tenant before");
    drop(kept);
}

/// Waits point only at what was enqueued before, so that uses that cross each other end.
#[test]
fn uses_that_cross_each_other_on_two_slots_all_run() {
    let (device, stepper, _) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut x = ready(&mut a, &stepper, 1.0);
    let mut y = ready(&mut b, &stepper, 2.0);
    let mut from_y = ready(&mut a, &stepper, 0.0);
    let mut from_x = ready(&mut b, &stepper, 0.0);
    for round in 0..10 {
        a.fill(&mut x, round as f32).unwrap();
        b.fill(&mut y, -round as f32).unwrap();
        a.copy(&y, &mut from_y).unwrap();
        b.copy(&x, &mut from_x).unwrap();
    }
    assert_eq!(stepper.run_all(), 40);
    assert_eq!((stepper.pending(a.id()), stepper.pending(b.id())), (0, 0));
    assert!(all(&a.read(&from_y).unwrap(), -9.0));
    assert!(all(&b.read(&from_x).unwrap(), 9.0));
}

/// Streams that fold onto one slot are in the order of their calls, and need no event.
#[test]
fn streams_of_one_slot_run_in_the_order_of_their_calls() {
    let (device, stepper, k) = stepped(1);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut x = ready(&mut a, &stepper, 1.0);
    let waits = device.faults().count(dacapo::Call::Wait);
    a.launch(&k.inc, Grid::covering(N), (&mut x,)).unwrap();
    b.fill(&mut x, 5.0).unwrap();
    a.launch(&k.inc, Grid::covering(N), (&mut x,)).unwrap();
    assert_eq!(stepper.run_all(), 3);
    assert!(all(&b.read(&x).unwrap(), 6.0));
    assert_eq!(device.faults().count(dacapo::Call::Wait), waits);
}
