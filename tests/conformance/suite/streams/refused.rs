//! Refused transitions: what they say, and what they give back.

use dacapo::{Error, Refused};

use super::support::*;

/// A consumed stream that did not come back would cost its owner every later frame.
#[test]
fn a_refused_prepare_gives_a_usable_stream_back() {
    let Some((device, k)) = working(1) else { return };
    let Some((elsewhere, _)) = working(1) else { return };
    let mut foreign = elsewhere.stream().unwrap();
    let (graph, ()) = foreign.record(|_| Ok(())).unwrap();
    let stream = device.stream().unwrap();
    let id = stream.id();
    let refused = stream.prepare_with(CaptureOptions::new().share_arena(&graph)).unwrap_err();
    assert!(matches!(refused.error(), Error::WrongDevice { object: "graph", .. }));
    let (mut stream, error) = refused.into_parts();
    assert!(matches!(error, Error::WrongDevice { .. }));
    assert_eq!(stream.id(), id);
    assert_usable(&mut stream, &k);
}

#[test]
fn a_begin_after_an_eviction_gives_a_usable_stream_back() {
    let Some((device, k)) = working(1) else { return };
    let prepared = device.stream().unwrap().prepare().unwrap();
    device.evict(prepared.window().unwrap()).unwrap();
    let (mut stream, error) = prepared.begin().unwrap_err().into_parts();
    assert!(matches!(error, Error::Evicted { .. }), "{error}");
    assert_usable(&mut stream, &k);
}

/// Giving up before the recording began, or in the middle of it, is no failure.
#[test]
fn cancel_and_abort_give_a_usable_stream_back() {
    let Some((device, k)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let mut c = filled(&mut stream, 0.0);
    let mut prepared = stream.prepare().unwrap();
    prepared.launch(&k.inc, grid(), (&mut c, Len)).unwrap();
    let mut stream = prepared.cancel();
    assert_eq!(stream.read(&c).unwrap()[0], 1.0, "what the warm-up did stays done");
    assert_usable(&mut stream, &k);
    let mut recording = stream.prepare().unwrap().begin().unwrap();
    recording.launch(&k.inc, grid(), (&mut c, Len)).unwrap();
    let mut stream = recording.abort();
    assert_eq!(stream.read(&c).unwrap()[0], 1.0, "nothing of the recording ran");
    assert_usable(&mut stream, &k);
}

/// An error type that swallowed its cause, or that could not be sent, would not be used with `?`.
#[test]
fn a_refusal_is_an_error_like_any_other() {
    fn by_question_mark(stream: Stream, options: CaptureOptions) -> Result<Stream<Prepared>, Error> {
        Ok(stream.prepare_with(options)?)
    }
    fn boxed(
        stream: Stream,
        options: CaptureOptions,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        drop(stream.prepare_with(options)?);
        Ok(())
    }
    let Some((device, _)) = working(1) else { return };
    let Some((elsewhere, _)) = working(1) else { return };
    let (graph, ()) = elsewhere.stream().unwrap().record(|_| Ok(())).unwrap();
    let options = CaptureOptions::new().share_arena(&graph);
    let error = by_question_mark(device.stream().unwrap(), options.clone()).unwrap_err();
    assert!(matches!(error, Error::WrongDevice { .. }));
    let boxed = boxed(device.stream().unwrap(), options.clone()).unwrap_err();
    assert_eq!(boxed.to_string(), error.to_string());
    let refused: &Refused<Stream> = boxed.downcast_ref().unwrap();
    assert_eq!(refused.error().to_string(), error.to_string());
    assert!(!device.captures().any_active());
}

/// A failed cast that dropped its buffer would lose what is in it.
#[test]
fn a_refused_cast_gives_the_buffer_back() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let mut bytes = stream.alloc::<u8>(7).unwrap();
    stream.fill(&mut bytes, 9).unwrap();
    let (bytes, error) = bytes.cast::<u32>().unwrap_err().into_parts();
    assert!(matches!(error, Error::CastSize { bytes: 7, element: 4 }));
    assert_eq!(stream.read(&bytes).unwrap(), [9; 7]);
}
