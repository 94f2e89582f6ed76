//! Failures carried by memory.

use dacapo::prelude::*;
use dacapo::{Error, Touches};

use crate::support::{Buf, Gate, ramp, written};

/// A buffer whose last operation failed.
fn broken(stream: &mut impl Enqueue<dacapo::Cuda>, len: usize) -> Buf<f32> {
    let short = stream.alloc::<f32>(len + 1).unwrap();
    let mut x = written(stream, &ramp(len));
    assert!(matches!(stream.copy(&short, &mut x), Err(Error::LengthMismatch { .. })));
    x
}

fn is_tainted<T>(outcome: Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Tainted { cause }) if matches!(*cause, Error::LengthMismatch { .. }))
}

#[test]
fn a_failure_reaches_whoever_reads_what_it_left_unwritten_until_it_is_written() {
    let (device, k) = crate::device!();
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut x = broken(&mut a, 100);
    let mut y = written(&mut b, &ramp(100));
    b.launch(&k.add1, Grid::covering(100), (&x, Len, &mut y, Len)).unwrap();
    assert!(is_tainted(a.read(&y)));
    assert!(is_tainted(crate::support::block_on(b.read_async(&x).unwrap())));
    a.write(x.slice_mut(..50).unwrap(), ramp(50)).unwrap();
    assert_eq!(a.read(x.slice(..50).unwrap()).unwrap(), ramp(50));
    assert!(is_tainted(a.read(&x)));
    a.fill(&mut x, 1.0).unwrap();
    b.launch(&k.add1, Grid::covering(100), (&x, Len, &mut y, Len)).unwrap();
    assert_eq!(a.read(&y).unwrap(), [2.0; 100]);
}

#[test]
fn a_replay_carries_taint_through_its_nodes_and_sheds_it_with_its_input() {
    let (device, k) = crate::device!();
    let mut stream = device.stream().unwrap();
    let mut x = written(&mut stream, &ramp(100));
    let mut z = stream.alloc::<f32>(100).unwrap();
    let (mut graph, y) = stream
        .record(|work| {
            let mut a = work.alloc_scratch::<f32>(100)?;
            let mut y = work.alloc_scratch::<f32>(100)?;
            work.launch(&k.add1, Grid::covering(100), (&x, Len, &mut a, Len))?;
            work.launch(&k.mul2, Grid::covering(100), (&a, Len, &mut y, Len))?;
            work.fill(&mut z, 3.0)?;
            Ok(y)
        })
        .unwrap();
    for _ in 0..3 {
        graph.replay(&mut stream).unwrap().wait().unwrap();
        assert_eq!(stream.read(&y).unwrap()[0], 4.0);
        let wrong = stream.alloc::<f32>(7).unwrap();
        assert!(stream.copy(&wrong, &mut x).is_err());
        assert!(is_tainted(stream.read(&y).and_then(|_| stream.read(&x))), "the output is still good");
        let ticket = graph.replay(&mut stream).unwrap();
        assert!(matches!(ticket.wait(), Err(Error::LengthMismatch { .. })), "the ticket tells");
        assert!(is_tainted(stream.read(&y)));
        assert_eq!(stream.read(&z).unwrap(), [3.0; 100], "what depends on nothing tainted is written");
        stream.write(&mut x, ramp(100)).unwrap();
    }
}

#[test]
fn a_callback_that_panics_fails_its_stream_and_what_it_was_to_write() {
    let (device, _) = crate::device!();
    let mut stream = device.stream().unwrap();
    let mut x = written(&mut stream, &ramp(10));
    stream.host_call_with(Touches::new().writes(&mut x), || panic!("oops")).unwrap();
    assert!(matches!(stream.sync(), Err(Error::CallbackPanicked { message }) if &*message == "oops"));
    assert!(matches!(stream.read(&x), Err(Error::Tainted { .. })));
    stream.write(&mut x, ramp(10)).unwrap();
    assert_eq!(stream.read(&x).unwrap(), ramp(10));
    let (mut graph, ()) = stream.record(|work| work.host_call(|| panic!("again"))).unwrap();
    let tickets: Vec<_> = (0..3).map(|_| graph.replay(&mut stream).unwrap()).collect();
    for ticket in tickets {
        assert!(matches!(ticket.wait(), Err(Error::CallbackPanicked { message }) if &*message == "again"));
    }
}

/// What was submitted before the callback ran computed with bytes that it never wrote.
#[test]
fn a_late_failure_reaches_the_work_that_was_submitted_before_it() {
    let (device, k) = crate::device!();
    let mut stream = device.stream().unwrap();
    let (mut x, mut y) = (written(&mut stream, &ramp(10)), written(&mut stream, &ramp(10)));
    let mut z = written(&mut stream, &ramp(10));
    let gate = Gate::close(&mut stream).unwrap();
    stream.host_call_with(Touches::new().writes(&mut x), || panic!("late")).unwrap();
    stream.launch(&k.add1, Grid::covering(10), (&x, Len, &mut y, Len)).unwrap();
    let read = stream.read_async(&y).unwrap();
    stream.copy(&y, &mut z).unwrap();
    // Overwritten before anybody looked: not what the failure left.
    stream.fill(&mut y, 5.0).unwrap();
    gate.open();
    stream.sync().unwrap_err();
    assert!(matches!(crate::support::block_on(read), Err(Error::Tainted { .. })));
    assert!(matches!(stream.read(&z), Err(Error::Tainted { .. })));
    assert_eq!(stream.read(&y).unwrap(), [5.0; 10]);
}
