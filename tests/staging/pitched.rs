//! Pitched transfers against a plain model: rows by hand.

use std::time::Duration;

use dacapo::prelude::*;
use dacapo::{Error, Layout, Result};
use proptest::prelude::*;

use crate::support_objects::{device, eventually, refused};

/// Writes the rows, and reads them back next to all that is around them.
fn agrees_with_rows_by_hand(s: &mut Stream, shape: &[usize], pitch: usize, before: usize, behind: usize) {
    let layout = Layout::pitched(shape, pitch).unwrap();
    let len: usize = shape.iter().product();
    let columns = *shape.last().unwrap();
    let data: Vec<u16> = (0..len as u16).map(|n| n.wrapping_mul(7) + 1).collect();
    let mut expected = vec![0xAAAA; before + layout.span() + behind];
    for (row, elements) in data.chunks(columns.max(1)).enumerate() {
        expected[before + row * pitch..][..columns].copy_from_slice(elements);
    }
    let mut x = s.alloc::<u16>(expected.len()).unwrap();
    let end = before + layout.span();
    let whole = x.slice_mut(..).unwrap();
    s.fill(whole, 0xAAAA).unwrap();
    s.write_pitched(x.slice_mut(before..end).unwrap(), &layout, &data).unwrap();
    assert_eq!(s.read(&x).unwrap(), expected, "eager, {shape:?} by {pitch}");
    // More room than the rows need is no error.
    assert_eq!(s.read_pitched(x.slice(before..).unwrap(), &layout).unwrap(), data);
    let mut into = vec![0; len];
    s.read_pitched_into(x.slice(before..).unwrap(), &layout, &mut into).unwrap();
    assert_eq!(into, data);
    let (mut graph, ()) =
        s.record(|w| w.write_pitched(x.slice_mut(before..end)?, &layout, data.clone())).unwrap();
    s.fill(&mut x, 0xAAAA).unwrap();
    graph.replay(s).unwrap();
    assert_eq!(s.read(&x).unwrap(), expected, "recorded, {shape:?} by {pitch}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_pitched_shape_agrees_with_rows_by_hand(
        shape in prop::collection::vec(0usize..6, 1..4),
        padding in 0usize..9,
        before in 0usize..5,
        behind in 0usize..5,
    ) {
        let mut s = device(1).stream().unwrap();
        let pitch = shape.last().unwrap() + padding;
        agrees_with_rows_by_hand(&mut s, &shape, pitch, before, behind);
    }
}

#[test]
fn shape_04_odd_rows_are_exact_and_their_padding_untouched() {
    let mut s = device(1).stream().unwrap();
    for columns in [1, 2, 3, 5, 31, 1543] {
        for padding in [0, 1, 3] {
            agrees_with_rows_by_hand(&mut s, &[2, 3, columns], columns + padding, 1, 1);
        }
    }
}

/// A tensor of shape [0, 1] still copied one row: its row count was clamped to one.
#[test]
fn shape_01_empty_tensors_with_a_pitch_are_no_ops_in_every_phase_and_call_no_driver() {
    fn step(w: &mut impl Enqueue<Host>, x: &mut Buffer<u32>, empty: &mut Buffer<u32>) -> Result<()> {
        for shape in [&[0, 1][..], &[1, 0], &[3, 0, 2], &[0]] {
            let layout = Layout::pitched(shape, 8)?;
            w.write_pitched(&mut *x, &layout, &[])?;
            w.write_pitched(&mut *empty, &layout, Vec::new())?;
        }
        Ok(())
    }
    let device = device(1);
    let mut s = device.stream().unwrap();
    let (mut x, mut empty) = (s.alloc::<u32>(32).unwrap(), s.alloc::<u32>(0).unwrap());
    s.fill(&mut x, 7).unwrap();
    s.sync().unwrap();
    eventually(|| device.memory_usage().pending == 0, || "setting up".to_owned());
    let calls = device.faults().total();
    step(&mut s, &mut x, &mut empty).unwrap();
    let mut prepared = s.prepare().unwrap();
    step(&mut prepared, &mut x, &mut empty).unwrap();
    assert_eq!(device.faults().total(), calls);
    let mut recording = prepared.begin().unwrap();
    step(&mut recording, &mut x, &mut empty).unwrap();
    let mut born = recording.alloc::<u32>(0).unwrap();
    step(&mut recording, &mut x, &mut born).unwrap();
    let (mut graph, mut s) = recording.end().unwrap();
    assert_eq!(graph.nodes(), 0);
    graph.replay(&mut s).unwrap();
    assert_eq!(s.read(&x).unwrap(), [7; 32]);
    s.sync().unwrap();
    let calls = device.faults().count(dacapo::Call::Read);
    for shape in [&[0, 1][..], &[1, 0], &[3, 0, 2]] {
        let layout = Layout::pitched(shape, 8).unwrap();
        assert_eq!(s.read_pitched(&x, &layout).unwrap(), [0u32; 0]);
        s.read_pitched_into(&empty, &layout, &mut []).unwrap();
    }
    assert_eq!(device.faults().count(dacapo::Call::Read), calls);
    agrees_with_rows_by_hand(&mut s, &[2, 3], 4, 0, 0);
}

/// A capture whose warm-up wrote rows must find them in its recording too.
#[test]
fn pitched_writes_run_in_warm_ups_and_into_buffers_born_in_a_recording() {
    let mut s = device(1).stream().unwrap();
    let layout = Layout::pitched(&[2, 2], 3).unwrap();
    let (mut graph, born) = s
        .capture(|w| {
            let mut born = w.alloc::<u8>(6)?;
            w.write_pitched(&mut born, &layout, &[1, 2, 3, 4])?;
            Ok(born)
        })
        .unwrap();
    for _ in 0..2 {
        graph.replay(&mut s).unwrap();
        assert_eq!(s.read(&born).unwrap(), [1, 2, 0, 3, 4, 0]);
    }
}

#[test]
fn what_does_not_fit_a_layout_is_told_with_both_lengths() {
    let mut s = device(1).stream().unwrap();
    let layout = Layout::pitched(&[3, 4], 8).unwrap();
    let mut x = s.alloc::<u32>(layout.span()).unwrap();
    let error = refused(s.write_pitched(&mut x, &layout, &[1; 11]));
    assert!(matches!(error, Error::LengthMismatch { source_len: 11, target_len: 12, .. }), "{error}");
    let short = x.slice_mut(1..).unwrap();
    let error = refused(s.write_pitched(short, &layout, &[1; 12]));
    assert!(matches!(error, Error::OutOfRange { start: 0, end: 20, len: 19 }), "{error}");
    s.fill(&mut x, 0).unwrap();
    let error = refused(s.read_pitched(x.slice(1..).unwrap(), &layout));
    assert!(matches!(error, Error::OutOfRange { start: 0, end: 20, len: 19 }), "{error}");
    let error = refused(s.read_pitched_into(&x, &layout, &mut [0; 13]));
    assert!(matches!(error, Error::LengthMismatch { source_len: 12, target_len: 13, .. }), "{error}");
    let error = refused(Layout::strided(&[3, 4], &[1, 3]));
    assert_eq!(error.kind(), dacapo::ErrorKind::Unsupported);
    assert!(error.to_string().contains("[1, 3]") && error.to_string().contains("[3, 4]"), "{error}");
}

#[test]
fn pitched_reads_have_a_time_limit_too() {
    let (device, stepper) = crate::support_objects::stepped(1);
    let mut s = device.stream().unwrap();
    let layout = Layout::pitched(&[2, 2], 3).unwrap();
    let mut x = s.alloc::<u8>(5).unwrap();
    s.write_pitched(&mut x, &layout, &[1, 2, 3, 4]).unwrap();
    let hold = stepper.hold();
    let soon = Duration::from_millis(1);
    let late = refused(s.read_pitched_timeout(&x, &layout, soon));
    assert!(matches!(late, Error::Timeout { operation: "read_pitched", .. }), "{late}");
    let mut into = [9; 4];
    assert!(matches!(
        refused(s.read_pitched_into_timeout(&x, &layout, &mut into, soon)),
        Error::Timeout { .. }
    ));
    assert_eq!(into, [9; 4]);
    drop(hold);
    let long = Duration::from_secs(60);
    s.read_pitched_into_timeout(&x, &layout, &mut into, long).unwrap();
    assert_eq!(into, [1, 2, 3, 4]);
    assert_eq!(s.read_pitched_timeout(&x, &layout, long).unwrap(), [1, 2, 3, 4]);
}
