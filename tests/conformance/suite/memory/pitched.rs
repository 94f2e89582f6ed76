//! Pitched transfers against a plain model: rows by hand.

use std::time::Duration;

use super::subject::calls_of;
use super::support::*;
use dacapo::{Call, Error, ErrorKind, Layout, Result};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// Writes the rows, and reads them back next to all that is around them.
fn agrees_with_rows_by_hand(s: &mut Stream, shape: &[usize], pitch: usize, before: usize, behind: usize) {
    let layout = Layout::pitched(shape, pitch).unwrap();
    let len: usize = shape.iter().product();
    let columns = *shape.last().unwrap();
    let data: Vec<u16> = (0..len).map(|n| (n as u16).wrapping_mul(7).wrapping_add(1)).collect();
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

#[test]
fn every_pitched_shape_agrees_with_rows_by_hand() {
    let Some(device) = device(1) else { return };
    let config = ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() };
    let shapes = (prop::collection::vec(0usize..6, 1..4), 0usize..9, 0usize..5, 0usize..5);
    let agrees = |(shape, padding, before, behind): (Vec<usize>, usize, usize, usize)| {
        let mut s = device.stream().unwrap();
        let pitch = shape.last().unwrap() + padding;
        agrees_with_rows_by_hand(&mut s, &shape, pitch, before, behind);
        Ok(())
    };
    TestRunner::new(config).run(&shapes, agrees).unwrap();
}

/// Rows that do not fit what a transfer is cut into, from memory that is not pinned.
#[test]
fn large_pitched_shapes_without_pinned_memory_agree_with_rows_by_hand() {
    let Some(device) = open(DeviceOptions::new().max_streams(1).staging_limit(0)) else { return };
    let mut s = device.stream().unwrap();
    for (rows, columns, padding) in [(3, 700_001, 5), (70_000, 3, 2), (1500, 1001, 0), (1, 2_000_000, 1)] {
        agrees_with_rows_by_hand(&mut s, &[rows, columns], columns + padding, 1, 1);
    }
}

#[test]
fn shape_04_odd_rows_are_exact_and_their_padding_untouched() {
    let Some(device) = device(1) else { return };
    let mut s = device.stream().unwrap();
    for columns in [1, 2, 3, 5, 31, 1543] {
        for padding in [0, 1, 3] {
            agrees_with_rows_by_hand(&mut s, &[2, 3, columns], columns + padding, 1, 1);
        }
    }
}

/// A tensor of shape [0, 1] still copied one row: its row count was clamped to one.
#[test]
fn shape_01_empty_tensors_with_a_pitch_are_no_ops_in_every_phase_and_call_no_driver() {
    fn step(w: &mut impl Enqueue<Subject>, x: &mut Buffer<u32>, empty: &mut Buffer<u32>) -> Result<()> {
        for shape in [&[0, 1][..], &[1, 0], &[3, 0, 2], &[0]] {
            let layout = Layout::pitched(shape, 8)?;
            w.write_pitched(&mut *x, &layout, &[])?;
            w.write_pitched(&mut *empty, &layout, Vec::new())?;
        }
        Ok(())
    }
    let Some(device) = device(1) else { return };
    let mut s = device.stream().unwrap();
    let (mut x, mut empty) = (s.alloc::<u32>(32).unwrap(), s.alloc::<u32>(0).unwrap());
    s.fill(&mut x, 7).unwrap();
    s.sync().unwrap();
    assert!(eventually(|| device.memory_usage().pending == 0), "setting up");
    let calls = subject::driver_calls(&device);
    step(&mut s, &mut x, &mut empty).unwrap();
    let mut prepared = s.prepare().unwrap();
    step(&mut prepared, &mut x, &mut empty).unwrap();
    assert_eq!(subject::driver_calls(&device), calls);
    let mut recording = prepared.begin().unwrap();
    step(&mut recording, &mut x, &mut empty).unwrap();
    let mut born = recording.alloc::<u32>(0).unwrap();
    step(&mut recording, &mut x, &mut born).unwrap();
    let (mut graph, mut s) = recording.end().unwrap();
    assert_eq!(graph.nodes(), 0);
    graph.replay(&mut s).unwrap();
    assert_eq!(s.read(&x).unwrap(), [7; 32]);
    s.sync().unwrap();
    let calls = calls_of(&device, Call::Read);
    for shape in [&[0, 1][..], &[1, 0], &[3, 0, 2]] {
        let layout = Layout::pitched(shape, 8).unwrap();
        assert_eq!(s.read_pitched(&x, &layout).unwrap(), [0u32; 0]);
        s.read_pitched_into(&empty, &layout, &mut []).unwrap();
    }
    assert_eq!(calls_of(&device, Call::Read), calls);
    agrees_with_rows_by_hand(&mut s, &[2, 3], 4, 0, 0);
}

/// A capture whose warm-up wrote rows must find them in its recording too.
#[test]
fn pitched_writes_run_in_warm_ups_and_into_buffers_born_in_a_recording() {
    let Some(device) = device(1) else { return };
    let mut s = device.stream().unwrap();
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
    let Some(device) = device(1) else { return };
    let mut s = device.stream().unwrap();
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
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("[1, 3]") && error.to_string().contains("[3, 4]"), "{error}");
}

#[test]
fn pitched_reads_have_a_time_limit_too() {
    let Some(device) = device(1) else { return };
    let mut s = device.stream().unwrap();
    let layout = Layout::pitched(&[2, 2], 3).unwrap();
    let mut x = s.alloc::<u8>(5).unwrap();
    s.write_pitched(&mut x, &layout, &[1, 2, 3, 4]).unwrap();
    s.sync().unwrap();
    let gate = Gate::close(&mut s);
    let late = refused(s.read_pitched_timeout(&x, &layout, SHORT));
    assert!(matches!(late, Error::Timeout { operation: "read_pitched", .. }), "{late}");
    let mut into = [9; 4];
    assert!(matches!(
        refused(s.read_pitched_into_timeout(&x, &layout, &mut into, SHORT)),
        Error::Timeout { .. }
    ));
    assert_eq!(into, [9; 4]);
    gate.open();
    let long = Duration::from_secs(60);
    s.read_pitched_into_timeout(&x, &layout, &mut into, long).unwrap();
    assert_eq!(into, [1, 2, 3, 4]);
    assert_eq!(s.read_pitched_timeout(&x, &layout, long).unwrap(), [1, 2, 3, 4]);
}

/// Two rows of two elements, four apart; and their padding.
fn rows() -> Layout {
    Layout::pitched(&[2, 2], 4).unwrap()
}

const SPAN: usize = 6;

/// Rows carry a failure, and the padding between them does not.
#[test]
fn a_refused_pitched_write_taints_its_rows_and_not_what_is_beside_them() {
    let Some(device) = device(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(SPAN + 2).unwrap();
    s.fill(&mut x, 7).unwrap();
    // Broken as a whole, and then healed by rows.
    let broken =
        s.host_call_with(Touches::new().writes(x.slice_mut(..SPAN).unwrap()), || panic!("on purpose"));
    broken.unwrap();
    assert!(s.sync().is_err());
    s.write_pitched(x.slice_mut(..SPAN).unwrap(), &rows(), &[1, 2, 3, 4]).unwrap();
    assert_eq!(s.read_pitched(&x, &rows()).unwrap(), [1, 2, 3, 4], "padding is none of its bytes");
    assert!(matches!(refused(s.read(x.slice(1..3).unwrap())), Error::Tainted { .. }));
    assert!(matches!(refused(s.read(&x)), Error::Tainted { .. }));
    assert_eq!(s.read(x.slice(SPAN..).unwrap()).unwrap(), [7; 2]);
    s.fill(x.slice_mut(2..4).unwrap(), 9).unwrap();
    assert_eq!(s.read(&x).unwrap(), [1, 2, 9, 9, 3, 4, 7, 7]);
}

/// The same in a graph, whose callback fails at every replay.
#[test]
fn a_recorded_pitched_write_heals_its_rows_at_every_replay() {
    let Some(device) = device(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(SPAN).unwrap();
    let (mut graph, ()) = s
        .record(|w| {
            w.host_call_with(Touches::new().writes(&mut x), || panic!("on purpose"))?;
            w.write_pitched(&mut x, &rows(), &[1, 2, 3, 4])
        })
        .unwrap();
    for _ in 0..2 {
        graph.replay(&mut s).unwrap();
        assert_eq!(s.read_pitched(&x, &rows()).unwrap(), [1, 2, 3, 4]);
        assert!(matches!(s.read(&x), Err(Error::Tainted { .. })));
    }
}
