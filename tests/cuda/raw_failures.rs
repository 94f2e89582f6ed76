//! Raw sections that fail, and what is left of them.

#![allow(unsafe_code, reason = "the driver's own calls, as another library makes them")]

use std::sync::Arc;
use std::sync::mpsc::channel;

use cudarc::driver::{CudaStream, DriverError, sys};
use dacapo::cuda::Cuda;
use dacapo::prelude::*;
use dacapo::{AddressMut, EnqueueRaw, Error, ErrorKind, Overwrite, SectionError, Touches};

use crate::raw::{copied, copy};
use crate::support::{Buf, Gate, ramp, written};

type Section = fn(&Arc<CudaStream>, &AddressMut<f32>) -> Result<(), SectionError>;

fn run(s: &mut impl Enqueue<Cuda>, x: &mut Buf<f32>, section: Section) -> dacapo::Result<()> {
    // SAFETY: each of the sections here touches the argument at most, on its queue; what they enqueue besides never runs.
    unsafe { s.raw((x,), move |queue, (x,)| section(queue, &x)) }
}

fn fill(queue: &Arc<CudaStream>, x: &AddressMut<f32>) -> Result<(), SectionError> {
    // SAFETY: the argument has as many elements of 4 bytes, and this is the queue of its section.
    unsafe { sys::cuMemsetD32Async(x.get(), 3f32.to_bits(), x.len(), queue.cu_stream()) }.result()?;
    Ok(())
}

fn panics(queue: &Arc<CudaStream>, x: &AddressMut<f32>) -> Result<(), SectionError> {
    fill(queue, x)?;
    panic!("oops")
}

fn fails(queue: &Arc<CudaStream>, x: &AddressMut<f32>) -> Result<(), SectionError> {
    fill(queue, x)?;
    Err(DriverError(sys::CUresult::CUDA_ERROR_INVALID_VALUE).into())
}

/// Waits for what does not run, and hides that this was refused.
fn waits(queue: &Arc<CudaStream>, x: &AddressMut<f32>) -> Result<(), SectionError> {
    fill(queue, x)?;
    // SAFETY: a live stream.
    assert!(unsafe { sys::cuStreamSynchronize(queue.cu_stream()) }.result().is_err());
    Ok(())
}

/// Ends the capture itself.
fn ends(queue: &Arc<CudaStream>, _: &AddressMut<f32>) -> Result<(), SectionError> {
    let mut graph = std::ptr::null_mut();
    // SAFETY: a place for a handle, and a live stream.
    unsafe { sys::cuStreamEndCapture(queue.cu_stream(), &mut graph) }.result()?;
    // SAFETY: the graph of this capture, which nobody else has.
    unsafe { sys::cuGraphDestroy(graph) }.result()?;
    Ok(())
}

/// Forks to another queue, and never joins it.
fn forks(queue: &Arc<CudaStream>, x: &AddressMut<f32>) -> Result<(), SectionError> {
    let event = queue.context().new_event(None)?;
    let other = queue.context().new_stream()?;
    event.record(queue)?;
    other.wait(&event)?;
    fill(&other, x)
}

fn allocates(queue: &Arc<CudaStream>, x: &AddressMut<f32>) -> Result<(), SectionError> {
    let mut address = 0;
    // SAFETY: a place for an address, and the queue of the section.
    unsafe { sys::cuMemAllocAsync(&mut address, 1 << 20, queue.cu_stream()) }.result()?;
    fill(queue, x)?;
    // SAFETY: as above; what was allocated on the queue.
    unsafe { sys::cuMemFreeAsync(address, queue.cu_stream()) }.result()?;
    Ok(())
}

/// Captures a branch, whose body cannot be looked into: something that allocates could be in there.
fn branches(queue: &Arc<CudaStream>, x: &AddressMut<f32>) -> Result<(), SectionError> {
    fill(queue, x)?;
    let (mut status, mut graph) =
        (sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE, std::ptr::null_mut());
    let (id, none, count) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: places for a status and a handle, and a live stream; the rest is not asked for.
    unsafe { sys::cuStreamGetCaptureInfo_v2(queue.cu_stream(), &mut status, id, &mut graph, none, count) }
        .result()?;
    let (mut handle, context) = (0, queue.context().cu_ctx());
    // SAFETY: a place for a handle, and the graph that is being captured.
    unsafe { sys::cuGraphConditionalHandleCreate(&mut handle, graph, context, 0, 0) }.result()?;
    let branch = sys::CUDA_CONDITIONAL_NODE_PARAMS {
        handle,
        type_: sys::CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_IF,
        size: 1,
        phGraph_out: std::ptr::null_mut(),
        ctx: context,
    };
    // SAFETY: numbers, addresses, and a type whose number 0 is valid.
    let mut params: sys::CUgraphNodeParams = unsafe { std::mem::zeroed() };
    params.type_ = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.__bindgen_anon_1.conditional = branch;
    let mut node = std::ptr::null_mut();
    // SAFETY: a place for a handle, and what was made above.
    unsafe { sys::cuGraphAddNode(&mut node, graph, std::ptr::null(), 0, &mut params) }.result()?;
    Ok(())
}

fn is_expected(what: &str, error: &Error) -> bool {
    match what {
        "panics" => matches!(error, Error::SectionPanicked { message } if &**message == "oops"),
        "fails" => error.step_as::<DriverError>().is_some(),
        "allocates" => matches!(error, Error::SectionAllocates { allocations: 1, frees: 1 }),
        "branches" => matches!(error, Error::Unsupported { operation: "raw", .. }),
        _ => {
            let said = matches!(error, Error::SectionBroken { message } if message.contains("CUDA_ERROR_"));
            said && error.kind() == ErrorKind::Failed
        }
    }
}

const BROKEN: [(&str, Section); 7] = [
    ("panics", panics),
    ("fails", fails),
    ("waits", waits),
    ("ends", ends),
    ("forks", forks),
    ("allocates", allocates),
    ("branches", branches),
];

/// E31: a graph that allocates replays once. E10, E12: a capture that stays open takes whatever is enqueued next.
#[test]
fn e31_a_section_that_breaks_is_an_error_with_its_cause_and_the_next_one_works() {
    let device = crate::bare!();
    let mut stream = device.stream().unwrap();
    let mut x = written(&mut stream, &ramp(100));
    for (what, section) in BROKEN {
        let error = run(&mut stream, &mut x, section).unwrap_err();
        println!("{what}: {error}");
        assert!(is_expected(what, &error), "{what}: {error:?}");
        let read = stream.read(&x).unwrap_err();
        assert!(is_expected(what, read.root()), "{what}: {read:?}");
        stream.write(&mut x, ramp(100)).unwrap();
        run(&mut stream, &mut x, fill).unwrap();
        assert_eq!(stream.read(&x).unwrap(), [3.0; 100], "after {what}");
    }
}

/// A graph that misses an operation is never sealed.
#[test]
fn e31_a_section_that_breaks_dooms_its_recording_and_no_other() {
    let device = crate::bare!();
    let (mut stream, mut other) = (device.stream().unwrap(), device.stream().unwrap());
    let mut x = written(&mut stream, &ramp(100));
    let mut y = other.alloc::<f32>(100).unwrap();
    for (what, section) in BROKEN {
        let mut beside = other.prepare().unwrap().begin().unwrap();
        run(&mut beside, &mut y, fill).unwrap();
        let mut recording = stream.prepare().unwrap().begin().unwrap();
        let error = run(&mut recording, &mut x, section).unwrap_err();
        assert!(is_expected(what, &error), "{what}: {error:?}");
        assert!(matches!(run(&mut recording, &mut x, fill), Err(Error::Doomed { .. })), "{what}");
        run(&mut beside, &mut y, fill).unwrap();
        let error;
        (stream, error) = recording.end().unwrap_err().into_parts();
        assert!(is_expected(what, &error), "{what}: {error:?}");
        assert_eq!(stream.read(&x).unwrap(), ramp(100), "nothing ran");
        let mut graph;
        (graph, other) = beside.end().unwrap();
        other.fill(&mut y, 0.0).unwrap();
        graph.replay(&mut other).unwrap();
        assert_eq!(other.read(&y).unwrap(), [3.0; 100]);
    }
}

/// In the global mode, a call of any thread that the driver deems unsafe fails, and ends the capture.
#[test]
fn somebody_elses_capture_in_global_mode_outlives_sections() {
    let device = crate::bare!();
    let mut stream = device.stream().unwrap();
    let mut x = written(&mut stream, &ramp(100));
    let ((begun, wait_begun), (finish, wait_finish)) = (channel(), channel::<()>());
    std::thread::scope(|scope| {
        let theirs = scope.spawn(move || {
            let context = cudarc::driver::CudaContext::new(0).unwrap();
            let own = context.new_stream().unwrap();
            let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
            own.begin_capture(mode).unwrap();
            begun.send(()).unwrap();
            wait_finish.recv().unwrap();
            let mut graph = std::ptr::null_mut();
            // SAFETY: a place for a handle, and the stream that captures, on the thread that began it.
            let code = unsafe { sys::cuStreamEndCapture(own.cu_stream(), &mut graph) };
            (code, graph.is_null())
        });
        wait_begun.recv().unwrap();
        // What a library allocates at once is its own, in a section as outside.
        let allocating: Section = |queue, x| {
            let mut address = 0;
            // SAFETY: a place for an address; the context is current.
            unsafe { sys::cuMemAlloc_v2(&mut address, 1 << 20) }.result()?;
            // SAFETY: what was just allocated.
            unsafe { sys::cuMemFree_v2(address) }.result()?;
            fill(queue, x)
        };
        for (what, section) in BROKEN.into_iter().filter(|(what, _)| *what != "waits") {
            let error = run(&mut stream, &mut x, section).unwrap_err();
            assert!(is_expected(what, &error), "{what}: {error:?}");
        }
        stream.write(&mut x, ramp(100)).unwrap();
        run(&mut stream, &mut x, allocating).unwrap();
        let (mut graph, ()) = stream.record(|work| run(work, &mut x, allocating)).unwrap();
        graph.replay(&mut stream).unwrap();
        assert_eq!(stream.read(&x).unwrap(), [3.0; 100]);
        drop(graph);
        finish.send(()).unwrap();
        assert_eq!(theirs.join().unwrap(), (sys::CUresult::CUDA_SUCCESS, false));
    });
}

/// Whoever evicts a window takes what it holds while its owner is in the middle of a section.
#[test]
fn a_window_that_is_evicted_in_the_middle_of_a_section_is_gone_after_it() {
    let device = crate::bare!();
    let mut stream = device.stream().unwrap();
    let x = written(&mut stream, &ramp(100));
    let before = device.memory_usage().in_use;
    let mut recording = stream.prepare().unwrap().begin().unwrap();
    let window = recording.window().unwrap();
    let mut born = recording.alloc::<f32>(100).unwrap();
    let section = |queue: &Arc<CudaStream>, (x, y): (_, _)| {
        device.evict(window)?;
        copied(queue, &x, &y)
    };
    // SAFETY: one copy, on the queue, from what is read to what is overwritten.
    let refused = unsafe { recording.raw((&x, Overwrite(&mut born)), section) };
    assert!(matches!(refused, Err(Error::Evicted { .. })), "{refused:?}");
    let (mut stream, error) = recording.end().unwrap_err().into_parts();
    assert!(matches!(error, Error::Evicted { .. }));
    assert_eq!(device.memory_usage().in_use, before);
    let mut y = stream.alloc::<f32>(100).unwrap();
    copy(&mut stream, &x, &mut y).unwrap();
    assert_eq!(stream.read(&y).unwrap(), ramp(100));
}

fn is_tainted<T>(outcome: Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Tainted { cause }) if matches!(*cause, Error::LengthMismatch { .. }))
}

/// A library's result on bytes that were never written looks like any other.
#[test]
fn a_section_that_reads_what_was_never_written_is_skipped_and_passes_that_on() {
    let device = crate::bare!();
    let mut stream = device.stream().unwrap();
    let mut x = written(&mut stream, &ramp(100));
    let mut y = stream.alloc::<f32>(100).unwrap();
    let (mut graph, ()) = stream.record(|work| copy(work, &x, &mut y)).unwrap();
    let wrong = stream.alloc::<f32>(7).unwrap();
    assert!(stream.copy(&wrong, &mut x).is_err());
    copy(&mut stream, &x, &mut y).unwrap();
    assert!(is_tainted(stream.read(&y)));
    stream.fill(&mut y, 1.0).unwrap();
    assert!(matches!(graph.replay(&mut stream).unwrap().wait(), Err(Error::LengthMismatch { .. })));
    assert!(is_tainted(stream.read(&y)));
    stream.write(&mut x, ramp(100)).unwrap();
    copy(&mut stream, &x, &mut y).unwrap();
    assert_eq!(stream.read(&y).unwrap(), ramp(100), "an overwritten output sheds it");
}

/// What was submitted before the callback ran computed with bytes that it never wrote.
#[test]
fn a_late_failure_goes_through_a_section() {
    let device = crate::bare!();
    let mut stream = device.stream().unwrap();
    let (mut x, mut y) = (written(&mut stream, &ramp(10)), written(&mut stream, &ramp(10)));
    let mut z = written(&mut stream, &ramp(10));
    let (mut graph, ()) = stream.record(|work| copy(work, &x, &mut y)).unwrap();
    let (mut next, ()) = stream
        .record(|work| {
            let section = |queue: &Arc<CudaStream>, (y, z): (_, _)| copied(queue, &y, &z);
            // SAFETY: one copy, on the queue, from what is read to what is overwritten.
            unsafe { work.raw((&y, Overwrite(&mut z)), section) }
        })
        .unwrap();
    graph.replay(&mut stream).unwrap().wait().unwrap();
    next.replay(&mut stream).unwrap().wait().unwrap();
    let gate = Gate::close(&mut stream);
    stream.host_call_with(Touches::new().writes(&mut x), || panic!("late")).unwrap();
    graph.replay(&mut stream).unwrap();
    let ticket = next.replay(&mut stream).unwrap();
    gate.open();
    assert!(stream.sync().is_err());
    assert!(matches!(ticket.wait(), Err(Error::CallbackPanicked { .. })));
    assert!(matches!(stream.read(&z), Err(Error::Tainted { .. })));
}
