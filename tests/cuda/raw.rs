//! Raw sections: what other libraries enqueue, as one operation of a stream or graph.

#![allow(unsafe_code, reason = "the driver's own calls, as another library makes them")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cudarc::driver::{CudaStream, sys};
use dacapo::cuda::Cuda;
use dacapo::prelude::*;
use dacapo::{Address, AddressMut, AllocationMode, EnqueueRaw, Error, Overwrite, SectionError, State};

use crate::support::{Buf, Gate, Kernels, eventually, ramp, written};

/// Copies the elements of one argument to another, by a call that this crate does not make.
pub fn copied(queue: &Arc<CudaStream>, x: &Address<f32>, y: &AddressMut<f32>) -> Result<(), SectionError> {
    assert_eq!(x.len(), y.len());
    let bytes = x.len() * size_of::<f32>();
    // SAFETY: both arguments have as many bytes, and this is the queue of their section.
    unsafe { sys::cuMemcpyDtoDAsync_v2(y.get(), x.get(), bytes, queue.cu_stream()) }.result()?;
    Ok(())
}

/// `y = x`, by a section.
pub fn copy(s: &mut impl Enqueue<Cuda>, x: &Buf<f32>, y: &mut Buf<f32>) -> dacapo::Result<()> {
    // SAFETY: one copy, on the queue, from what is read to what is overwritten.
    unsafe { s.raw((x, Overwrite(y)), |queue, (x, y)| copied(queue, &x, &y)) }
}

/// `w = 2 (x + 1)`, with a section in the middle.
fn chain(
    s: &mut impl Enqueue<Cuda>,
    k: &Kernels,
    x: &Buf<f32>,
    [y, z, w]: [&mut Buf<f32>; 3],
) -> dacapo::Result<()> {
    let grid = Grid::covering(x.len());
    s.launch(&k.add1, grid, (x, Len, &mut *y, Len))?;
    copy(s, y, z)?;
    s.launch(&k.mul2, grid, (&*z, Len, w, Len))
}

fn doubled(x: &[f32]) -> Vec<f32> {
    x.iter().map(|x| 2.0 * (x + 1.0)).collect()
}

/// A section that only ran where it was captured, or ran beside what it follows, gives old bytes.
#[test]
fn a_section_runs_in_its_place_in_every_phase_and_on_every_replay() {
    let (device, k) = crate::device!();
    let mut stream = device.stream().unwrap();
    let mut x = written(&mut stream, &ramp(1000));
    let [mut y, mut z, mut w] = std::array::from_fn(|_| stream.alloc::<f32>(1000).unwrap());
    chain(&mut stream, &k, &x, [&mut y, &mut z, &mut w]).unwrap();
    assert_eq!(stream.read(&w).unwrap(), doubled(&ramp(1000)));
    let mut prepared = stream.prepare().unwrap();
    prepared.fill(&mut x, 5.0).unwrap();
    chain(&mut prepared, &k, &x, [&mut y, &mut z, &mut w]).unwrap();
    assert_eq!(prepared.read(&w).unwrap(), [12.0; 1000]);
    let mut recording = prepared.begin().unwrap();
    chain(&mut recording, &k, &x, [&mut y, &mut z, &mut w]).unwrap();
    let (mut graph, mut stream) = recording.end().unwrap();
    let info = graph.node(1).unwrap();
    assert_eq!((info.name.as_str(), info.bytes, info.after), ("raw", (4000, 4000), vec![0]));
    assert_eq!(graph.node(2).unwrap().after, [1]);
    for n in 0..3 {
        let input: Vec<f32> = ramp(1000).iter().map(|x| x * n as f32).collect();
        stream.write(&mut x, &input).unwrap();
        graph.replay(&mut stream).unwrap();
        assert_eq!(stream.read(&w).unwrap(), doubled(&input));
    }
}

/// Sections of one library share what is behind its handle, and no argument shows it.
#[test]
fn sections_have_an_edge_between_them_unless_they_name_tokens_of_their_own() {
    let device = crate::bare!();
    let mut stream = device.stream().unwrap();
    let x = written(&mut stream, &ramp(100));
    let mut y: Vec<Buf<f32>> = (0..4).map(|_| stream.alloc(100).unwrap()).collect();
    let states = [State::new(&device), State::new(&device)];
    let (mut graph, ()) = stream
        .record(|work| {
            let (unnamed, named) = y.split_at_mut(2);
            unnamed.iter_mut().try_for_each(|y| copy(work, &x, y))?;
            named.iter_mut().zip(&states).try_for_each(|(y, state)| {
                // SAFETY: as in `copy`.
                unsafe { work.raw((&x, Overwrite(y), state), |queue, (x, y, ())| copied(queue, &x, &y)) }
            })
        })
        .unwrap();
    let after: Vec<_> = (0..4).map(|node| graph.node(node).unwrap().after).collect();
    assert_eq!(after, [vec![], vec![0], vec![], vec![]]);
    graph.replay(&mut stream).unwrap();
    assert!(y.iter().all(|y| stream.read(y).unwrap() == ramp(100)));
}

/// A plan that gave such bytes to others after the address was given away would let the section overwrite them.
#[test]
fn win_01_a_buffer_born_in_the_window_may_be_an_argument_in_sizes_never_seen_before() {
    let (device, k) = crate::device!();
    let mut stream = device.stream().unwrap();
    for len in [3000, 5_000_000] {
        let mut x = written(&mut stream, &ramp(len));
        let before = device.memory_usage().in_use;
        let (mut graph, out) = stream
            .record(|work| {
                let mut lone = work.alloc::<f32>(len)?;
                let mut temporary = work.alloc_scratch::<f32>(len)?;
                let mut out = work.alloc_scratch::<f32>(len)?;
                copy(work, &x, &mut lone)?;
                work.launch(&k.add1, Grid::covering(len), (&lone, Len, &mut temporary, Len))?;
                // The second address of the same buffer is the first one.
                copy(work, &temporary, &mut lone)?;
                copy(work, &lone, &mut out)?;
                Ok(out)
            })
            .unwrap();
        assert!(matches!(stream.read(&out), Err(Error::NotReplayed)));
        assert_eq!(graph.arena_bytes(), 0, "each was an argument of a section");
        for n in 1..=3 {
            graph.replay(&mut stream).unwrap();
            let expected: Vec<f32> = ramp(len).iter().map(|x| x * n as f32 + 1.0).collect();
            assert!(stream.read(&out).unwrap() == expected);
            let input: Vec<f32> = ramp(len).iter().map(|x| x * (n + 1) as f32).collect();
            stream.write(&mut x, input).unwrap();
        }
        drop((graph, out));
        assert_eq!(device.memory_usage().in_use, before);
    }
}

/// Memory that was given away early stayed held when there never was a graph.
#[test]
fn a_recording_that_never_seals_gives_back_what_it_placed() {
    let device = crate::bare!();
    let mut stream = device.stream().unwrap();
    let x = written(&mut stream, &ramp(1000));
    let before = device.memory_usage().in_use;
    let mut recording = stream.prepare().unwrap().begin().unwrap();
    let mut born = recording.alloc::<f32>(1000).unwrap();
    copy(&mut recording, &x, &mut born).unwrap();
    assert!(device.memory_usage().in_use > before);
    let mut stream = recording.abort();
    assert_eq!(device.memory_usage().in_use, before);
    assert!(matches!(stream.read(&born), Err(Error::NeverSealed { .. })));
}

/// Something that a section returns, and what is known when it is dropped.
struct Kept {
    device: Device<Cuda>,
    dropped: Arc<AtomicUsize>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        // Where a call of ours could wait, it would wait for itself.
        let inside = matches!(self.device.stream(), Err(Error::InCallback { .. }));
        self.dropped.fetch_add(if inside { 1 } else { 1000 }, Ordering::SeqCst);
    }
}

/// A workspace that went with the user's handle is written by the next replay.
#[test]
fn what_a_section_returns_lives_until_the_last_replay_of_the_last_graph_has_passed() {
    let device = crate::bare!();
    let mut stream = device.stream().unwrap();
    let x = written(&mut stream, &ramp(100));
    let mut y = stream.alloc::<f32>(100).unwrap();
    let dropped = Arc::new(AtomicUsize::new(0));
    let kept = || Kept { device: device.clone(), dropped: dropped.clone() };
    let count = || dropped.load(Ordering::SeqCst);
    let mut copy = |work: &mut Work<'_, Cuda>, kept: Kept| {
        // SAFETY: as in `copy`.
        unsafe {
            work.raw((&x, Overwrite(&mut y)), |queue, (x, y)| {
                copied(queue, &x, &y)?;
                Ok(kept)
            })
        }
    };
    let (mut child, ()) = stream.record(|work| copy(work, kept())).unwrap();
    let (mut graph, ()) = stream.record(|work| work.embed(&mut child)).unwrap();
    child.replay(&mut stream).unwrap().wait().unwrap();
    drop(child);
    // Of a recording that never ran, when that is gone.
    stream
        .record(|work| {
            copy(work, kept())?;
            Err::<(), _>(Error::step("no"))
        })
        .unwrap_err();
    // Eagerly, when the device is past it.
    stream.profile(|work| copy(work, kept())).unwrap();
    assert!(eventually(|| count() == 2), "{}", count());
    // What was let go of before is gone from here on: the driver might wait for the gate to take it.
    let gate = Gate::close(&mut stream);
    graph.replay(&mut stream).unwrap();
    drop(graph);
    assert_eq!(count(), 2, "a replay is in flight");
    gate.open();
    stream.sync().unwrap();
    assert!(eventually(|| count() == 3), "{}", count());
    assert_eq!(stream.read(&y).unwrap(), ramp(100));
}

#[test]
fn a_section_that_enqueues_nothing_is_nothing_in_its_place() {
    let (device, k) = crate::device!();
    let mut stream = device.stream().unwrap();
    let mut x = written(&mut stream, &ramp(100));
    let nothing = |s: &mut Work<'_, Cuda>, x: &mut Buf<f32>| {
        // SAFETY: it enqueues nothing.
        unsafe {
            s.raw((x,), |_, (x,)| {
                assert_eq!(x.len(), 100);
                Ok(())
            })
        }
    };
    stream.profile(|work| nothing(work, &mut x)).unwrap();
    let (mut graph, ()) = stream
        .record(|work| {
            work.launch(&k.inc, Grid::covering(100), (&mut x, Len))?;
            nothing(work, &mut x)?;
            work.launch(&k.inc, Grid::covering(100), (&mut x, Len))
        })
        .unwrap();
    assert_eq!(graph.node(2).unwrap().after, [1]);
    graph.replay(&mut stream).unwrap();
    let expected: Vec<f32> = ramp(100).iter().map(|x| x + 2.0).collect();
    assert_eq!(stream.read(&x).unwrap(), expected);
    let empty = x.slice(..0).unwrap();
    // SAFETY: it enqueues nothing.
    let outcome = unsafe {
        stream.raw((&empty,), |_, (x,)| {
            assert_eq!((x.get(), x.is_empty()), (0, true));
            Ok(())
        })
    };
    outcome.unwrap();
}

/// A lock held while the user's code runs is one that the user's next call waits for.
#[test]
fn inside_a_section_other_streams_can_do_everything() {
    let (device, k) = crate::device!();
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let x = written(&mut a, &ramp(100));
    let mut y = a.alloc::<f32>(100).unwrap();
    let mut section = |work: &mut Work<'_, Cuda>| {
        // SAFETY: as in `copy`; what goes on beside it has memory of its own.
        unsafe {
            work.raw((&x, Overwrite(&mut y)), |queue, (x, y)| {
                let mut own = written(&mut b, &ramp(100));
                let mut other = b.alloc::<f32>(100)?;
                b.launch(&k.inc, Grid::covering(100), (&mut own, Len))?;
                copy(&mut b, &own, &mut other)?;
                copied(queue, &x, &y)?;
                let (mut graph, ()) = b.record(|work| copy(work, &own, &mut other))?;
                graph.replay(&mut b)?;
                assert_eq!(b.read(&other)?[..2], [2.0, 3.0]);
                b.sync()?;
                Ok(())
            })
        }
    };
    a.profile(&mut section).unwrap();
    let (mut graph, ()) = a.record(&mut section).unwrap();
    a.fill(&mut y, 0.0).unwrap();
    graph.replay(&mut a).unwrap();
    assert_eq!(a.read(&y).unwrap(), ramp(100));
}

/// One stream for all captures would mix what several threads enqueue, or refuse one of them.
#[test]
fn sections_of_several_threads_are_captured_at_once_and_each_by_itself() {
    let device = crate::bare!();
    std::thread::scope(|scope| {
        for thread in 1..=4 {
            let device = &device;
            scope.spawn(move || {
                let mut stream = device.stream().unwrap();
                let mut x = stream.alloc::<f32>(1000).unwrap();
                let mut y = stream.alloc::<f32>(1000).unwrap();
                let mut kept = Vec::new();
                for round in 0..50 {
                    let value = (1000 * thread + round) as f32;
                    stream.fill(&mut x, value).unwrap();
                    copy(&mut stream, &x, &mut y).unwrap();
                    assert_eq!(stream.read(&y).unwrap(), [value; 1000]);
                    let (mut graph, born) = stream
                        .record(|work| {
                            let mut born = work.alloc_scratch(1000)?;
                            copy(work, &x, &mut born)?;
                            Ok(born)
                        })
                        .unwrap();
                    graph.replay(&mut stream).unwrap();
                    assert_eq!(stream.read(&born).unwrap(), [value; 1000]);
                    // Some live for a while, so that they come and go in another order than they were made in.
                    kept.push(graph);
                    if round % 7 == 0 {
                        kept.clear();
                    }
                }
            });
        }
    });
}

/// The driver in its usual mode refuses both while a stream captures, and ends that capture.
#[test]
fn inside_a_section_programs_are_loaded_and_memory_comes_and_goes() {
    let device = crate::bare!();
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let x = written(&mut a, &ramp(100));
    let mut y = a.alloc::<f32>(100).unwrap();
    // SAFETY: as in `copy`; what goes on beside it has memory of its own.
    let outcome = unsafe {
        a.raw((&x, Overwrite(&mut y)), |queue, (x, y)| {
            let k = Kernels::load(&device);
            let mut own = b.allocating(AllocationMode::Dedicated, |work| work.alloc::<f32>(1 << 20))?;
            b.launch(&k.inc, Grid::covering(1 << 20), (&mut own, Len))?;
            b.sync()?;
            drop((k, own));
            b.memory_cleanup()?;
            copied(queue, &x, &y)
        })
    };
    outcome.unwrap();
    assert_eq!(a.read(&y).unwrap(), ramp(100));
}

extern "C" fn count(data: *mut std::ffi::c_void) {
    // SAFETY: the test passes the address of a counter that is never dropped.
    unsafe { &*data.cast::<AtomicUsize>() }.fetch_add(1, Ordering::SeqCst);
}

/// A call that the graph makes itself may wait for its user, who may wait for what comes before it.
#[test]
fn a_section_may_call_the_host() {
    let device = crate::bare!();
    let mut stream = device.stream().unwrap();
    let x = written(&mut stream, &ramp(100));
    let mut y = stream.alloc::<f32>(100).unwrap();
    let counter: &'static AtomicUsize = Box::leak(Box::default());
    let data = std::ptr::from_ref(counter).cast_mut().expose_provenance();
    let mut section = |work: &mut Work<'_, Cuda>| {
        // SAFETY: as in `copy`, and a call with an address that is always good.
        unsafe {
            work.raw((&x, Overwrite(&mut y)), |queue, (x, y)| {
                copied(queue, &x, &y)?;
                let data = std::ptr::with_exposed_provenance_mut(data);
                sys::cuLaunchHostFunc(queue.cu_stream(), Some(count), data).result()?;
                Ok(())
            })
        }
    };
    stream.profile(&mut section).unwrap();
    assert_eq!(counter.load(Ordering::SeqCst), 1);
    let (mut graph, ()) = stream.record(&mut section).unwrap();
    for n in 2..5 {
        stream.fill(&mut y, 0.0).unwrap();
        graph.replay(&mut stream).unwrap().wait().unwrap();
        assert_eq!(stream.read(&y).unwrap(), ramp(100));
        assert_eq!(counter.load(Ordering::SeqCst), n);
    }
}

/// A graph that fills with ones, to be made a part of another.
fn filling(y: &AddressMut<f32>, context: sys::CUcontext) -> Result<sys::CUgraph, SectionError> {
    let (mut graph, mut node) = (std::ptr::null_mut(), std::ptr::null_mut());
    let (dst, width) = (y.get(), y.len());
    let set = sys::CUDA_MEMSET_NODE_PARAMS {
        dst,
        pitch: 0,
        value: 1f32.to_bits(),
        elementSize: 4,
        width,
        height: 1,
    };
    // SAFETY: a place for a handle; there are no flags.
    unsafe { sys::cuGraphCreate(&mut graph, 0) }.result()?;
    // SAFETY: a place for a handle, and the elements of an argument.
    unsafe { sys::cuGraphAddMemsetNode(&mut node, graph, std::ptr::null(), 0, &set, context) }.result()?;
    Ok(graph)
}

/// What a library adds to the capture itself, a graph of its own for example, is a part of it.
#[test]
fn a_section_may_hold_a_graph_of_the_librarys() {
    let device = crate::bare!();
    let mut stream = device.stream().unwrap();
    let mut y = stream.alloc::<f32>(100).unwrap();
    let mut section = |work: &mut Work<'_, Cuda>| {
        // SAFETY: a graph that fills what is overwritten, as a part of what is captured.
        unsafe {
            work.raw((Overwrite(&mut y),), |queue, (y,)| {
                let inner = filling(&y, queue.context().cu_ctx())?;
                let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
                let (mut graph, mut node) = (std::ptr::null_mut(), std::ptr::null_mut());
                let (id, nodes, count) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
                let stream = queue.cu_stream();
                sys::cuStreamGetCaptureInfo_v2(stream, &mut status, id, &mut graph, nodes, count).result()?;
                sys::cuGraphAddChildGraphNode(&mut node, graph, std::ptr::null(), 0, inner).result()?;
                sys::cuGraphDestroy(inner).result()?;
                Ok(())
            })
        }
    };
    stream.profile(&mut section).unwrap();
    let (mut graph, ()) = stream.record(&mut section).unwrap();
    assert_eq!(stream.read(&y).unwrap(), [1.0; 100]);
    for _ in 0..3 {
        stream.fill(&mut y, 0.0).unwrap();
        graph.replay(&mut stream).unwrap();
        assert_eq!(stream.read(&y).unwrap(), [1.0; 100]);
    }
}

/// A section on the device's primary context would be given addresses that are nothing there.
#[test]
fn a_section_runs_in_a_context_that_the_program_made() {
    let (_device, _k) = crate::device!();
    let context = cudarc::driver::CudaContext::new_non_primary(0, 0).unwrap();
    let device = Device::<Cuda>::from_context(context).unwrap();
    let mut stream = device.stream().unwrap();
    let mut x = written(&mut stream, &ramp(100));
    let mut y = stream.alloc::<f32>(100).unwrap();
    copy(&mut stream, &x, &mut y).unwrap();
    assert_eq!(stream.read(&y).unwrap(), ramp(100));
    let (mut graph, ()) = stream.record(|work| copy(work, &x, &mut y)).unwrap();
    stream.fill(&mut x, 3.0).unwrap();
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&y).unwrap(), [3.0; 100]);
}
