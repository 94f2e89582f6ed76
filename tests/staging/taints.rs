//! Failures and pitched transfers: rows carry them, padding does not.

use dacapo::host::{HostOptions, Severity, UnwrittenReads};
use dacapo::prelude::*;
use dacapo::{Call, DeviceOptions, Error, Layout};

use crate::support_objects::*;

/// Two rows of two elements, four apart; and their padding.
fn rows() -> Layout {
    Layout::pitched(&[2, 2], 4).unwrap()
}

const SPAN: usize = 6;

#[test]
fn a_failed_pitched_write_taints_its_rows_and_not_the_padding() {
    let device = device(1);
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(SPAN).unwrap();
    s.fill(&mut x, 7).unwrap();
    for call in [Call::Write, Call::Execute] {
        s.sync().unwrap();
        device.faults().fail_nth(call, 1, Severity::Call);
        let _ = s.write_pitched(&mut x, &rows(), &[1, 2, 3, 4]);
        let _ = s.sync();
        assert_eq!(s.read(x.slice(2..4).unwrap()).unwrap(), [7, 7], "{call:?}");
        for row in [0..1, 1..2, 4..5, 5..6, 3..5] {
            assert!(
                matches!(s.read(x.slice(row.clone()).unwrap()), Err(Error::Tainted { .. })),
                "{call:?} {row:?}"
            );
        }
        assert!(matches!(refused(s.read_pitched(&x, &rows())), Error::Tainted { .. }));
        s.write_pitched(&mut x, &rows(), &[1, 2, 3, 4]).unwrap();
        assert_eq!(s.read(&x).unwrap(), [1, 2, 7, 7, 3, 4], "{call:?}");
    }
}

/// A partial write is an update to the order of things, and would be skipped as one that reads what was lost.
#[test]
fn a_pitched_write_runs_whatever_is_tainted_and_clears_its_rows_alone() {
    let device = device(1);
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(SPAN).unwrap();
    device.faults().fail_nth(Call::Fill, 1, Severity::Call);
    let lost = refused(s.fill(&mut x, 7));
    s.write_pitched(&mut x, &rows(), &[1, 2, 3, 4]).unwrap();
    assert_eq!(s.read_pitched(&x, &rows()).unwrap(), [1, 2, 3, 4], "padding is none of its bytes");
    assert_tainted(&mut s, &x, &lost);
    assert!(s.read(x.slice(1..3).unwrap()).is_err());
    s.fill(x.slice_mut(2..4).unwrap(), 9).unwrap();
    assert_eq!(s.read(&x).unwrap(), [1, 2, 9, 9, 3, 4]);
}

/// The same in a graph, of which nothing ran.
#[test]
fn a_refused_replay_taints_the_rows_of_its_pitched_writes() {
    let device = device(1);
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(SPAN).unwrap();
    let (mut graph, ()) = s.record(|w| w.write_pitched(&mut x, &rows(), &[1, 2, 3, 4])).unwrap();
    device.faults().fail_nth(Call::Replay, 1, Severity::Call);
    let unsent = refused(graph.replay(&mut s));
    let error = refused(s.read_pitched(&x, &rows()));
    assert_eq!(error.root().to_string(), unsent.to_string());
    graph.replay(&mut s).unwrap();
    assert_eq!(s.read_pitched(&x, &rows()).unwrap(), [1, 2, 3, 4]);
}

/// Scratch memory whose rows were written is written where they are, and nowhere else.
#[test]
fn padding_of_scratch_memory_stays_unwritten() {
    let host = HostOptions::new().unwritten_reads(UnwrittenReads::Refuse);
    let device = Device::<Host>::open(DeviceOptions::new().backend(host)).unwrap();
    let mut s = device.stream().unwrap();
    let mut x = s.alloc_scratch::<u32>(SPAN).unwrap();
    s.write_pitched(&mut x, &rows(), &[1, 2, 3, 4]).unwrap();
    assert_eq!(s.read_pitched(&x, &rows()).unwrap(), [1, 2, 3, 4]);
    assert!(matches!(s.read(&x), Err(Error::ReadBeforeWrite)));
}

/// Rows of one tensor in the padding of another, on two streams: to the order of things they meet.
#[test]
fn interleaved_rows_on_two_streams_keep_their_order() {
    let (device, stepper) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut x = a.alloc::<u32>(8).unwrap();
    a.write_pitched(&mut x, &rows(), &[1, 2, 3, 4]).unwrap();
    b.write_pitched(x.slice_mut(2..).unwrap(), &rows(), &[5, 6, 7, 8]).unwrap();
    assert_eq!(stepper.run(b.id()), 0, "the second waits for the first");
    stepper.run_all();
    assert_eq!(a.read(&x).unwrap(), [1, 2, 5, 6, 3, 4, 7, 8]);
}
