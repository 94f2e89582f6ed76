//! The phases of a stream, and what each of them permits.

#![forbid(unsafe_code)]

use static_assertions::const_assert_eq;

use crate::backend::Backend;
use crate::stream::Stream;

/// A phase of a [`Stream`]: [`NoCapture`], [`Prepared`] or [`Recording`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a phase of a stream",
    label = "not a phase",
    note = "the phases are `NoCapture`, `Prepared` and `Recording`; no other can be made"
)]
pub trait Phase: sealed::Phase {}

/// The usual phase: everything executes, and a capture may be prepared.
#[derive(Debug)]
pub enum NoCapture {}

/// The warm-up of a capture: everything still executes.
#[derive(Debug)]
pub enum Prepared {}

/// The window is open: everything is recorded, and nothing executes.
#[derive(Debug)]
pub enum Recording {}

impl Phase for NoCapture {}
impl Phase for Prepared {}
impl Phase for Recording {}

/// The name of a phase, where it is known only at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PhaseName {
    /// [`NoCapture`].
    NoCapture,
    /// [`Prepared`].
    Prepared,
    /// [`Recording`].
    Recording,
}

impl std::fmt::Display for PhaseName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            PhaseName::NoCapture => "in no capture",
            PhaseName::Prepared => "prepared",
            PhaseName::Recording => "recording",
        })
    }
}

/// A stream that may prepare, record or capture, and manage memory: one in no capture.
#[diagnostic::on_unimplemented(
    message = "this needs a stream in no capture, and the stream is `{Self}`",
    label = "only `Stream<NoCapture>` has this",
    note = "a `Prepared` stream leaves its capture by `begin` and `end`, or by `cancel`",
    note = "a `Recording` stream leaves it by `end` or `abort`; each gives the `Stream<NoCapture>` back"
)]
pub trait CanPrepare: sealed::CanPrepare {}

/// A stream that may begin to record, or cancel: a prepared one.
#[diagnostic::on_unimplemented(
    message = "this needs a prepared stream, and the stream is `{Self}`",
    label = "only `Stream<Prepared>` has this",
    note = "a `NoCapture` stream gets there by `prepare`; a `Recording` one has begun already: `end` or `abort` it"
)]
pub trait CanBegin: sealed::CanBegin {}

/// A stream that may end or abort a recording: a recording one.
#[diagnostic::on_unimplemented(
    message = "this needs a recording stream, and the stream is `{Self}`",
    label = "only `Stream<Recording>` has this",
    note = "a `NoCapture` stream gets there by `prepare` and `begin`, a `Prepared` one by `begin`"
)]
pub trait CanEnd: sealed::CanEnd {}

/// Something that may wait for the device: a stream that executes.
///
/// While a stream records, nothing runs, so there is nothing to read, to wait for or to time.
#[diagnostic::on_unimplemented(
    message = "`{Self}` may be recording, and a recording cannot wait for the device",
    label = "cannot read, wait, or profile here",
    note = "nothing runs while a stream records: `end` it, `replay` the graph, and read after that",
    note = "in a step written for every phase, return the buffer and let the caller read it; or ask for `&mut (impl Enqueue<B> + CanWait)`"
)]
pub trait CanWait: sealed::CanWait {}

/// A stream on which a graph may be replayed: one that executes.
#[diagnostic::on_unimplemented(
    message = "a graph cannot be replayed on `{Self}`, which may be recording",
    label = "not a stream that executes",
    note = "`end` the recording first; to make one graph part of another, record it with `embed`"
)]
pub trait CanReplay<B: Backend>: sealed::CanReplay<B> {}

impl CanPrepare for NoCapture {}
impl CanBegin for Prepared {}
impl CanEnd for Recording {}
impl<B: Backend> CanWait for Stream<NoCapture, B> {}
impl<B: Backend> CanWait for Stream<Prepared, B> {}
impl<B: Backend> CanReplay<B> for Stream<NoCapture, B> {}
impl<B: Backend> CanReplay<B> for Stream<Prepared, B> {}

pub(crate) mod sealed {
    use super::{NoCapture, PhaseName, Prepared, Recording};
    use crate::backend::Backend;
    use crate::capture::window::WindowGuard;
    use crate::enqueue::sealed::Route;
    use crate::stream::Stream;

    // These traits carry words of their own: a compiler that meets one of them before the public trait would else talk of
    // paths that nobody can name.

    /// What a phase knows, as data of the state.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` is not a phase of a stream",
        label = "not a phase",
        note = "the phases are `NoCapture`, `Prepared` and `Recording`; no other can be made"
    )]
    pub trait Phase: Sized + 'static {
        const NAME: PhaseName;
        type State<B: Backend>: Send;
        fn window<B: Backend>(state: &Self::State<B>) -> Option<&WindowGuard<B>>;
    }

    #[diagnostic::do_not_recommend]
    impl Phase for NoCapture {
        const NAME: PhaseName = PhaseName::NoCapture;
        type State<B: Backend> = ();
        fn window<B: Backend>((): &()) -> Option<&WindowGuard<B>> {
            None
        }
    }

    #[diagnostic::do_not_recommend]
    impl Phase for Prepared {
        const NAME: PhaseName = PhaseName::Prepared;
        type State<B: Backend> = WindowGuard<B>;
        fn window<B: Backend>(state: &WindowGuard<B>) -> Option<&WindowGuard<B>> {
            Some(state)
        }
    }

    #[diagnostic::do_not_recommend]
    impl Phase for Recording {
        const NAME: PhaseName = PhaseName::Recording;
        type State<B: Backend> = WindowGuard<B>;
        fn window<B: Backend>(state: &WindowGuard<B>) -> Option<&WindowGuard<B>> {
            Some(state)
        }
    }

    #[diagnostic::on_unimplemented(
        message = "`{Self}` is no phase that may prepare",
        label = "only `NoCapture` is one, and no other can be made"
    )]
    pub trait CanPrepare {}
    /// A phase that has a window before it records.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` is no phase that may begin to record",
        label = "only `Prepared` is one, and no other can be made"
    )]
    pub trait CanBegin: Phase {
        fn into_guard<B: Backend>(state: Self::State<B>) -> WindowGuard<B>;
    }
    /// A phase that has a window that records.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` is no phase that may end a recording",
        label = "only `Recording` is one, and no other can be made"
    )]
    pub trait CanEnd: Phase {
        fn into_guard<B: Backend>(state: Self::State<B>) -> WindowGuard<B>;
    }
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be made to wait for the device",
        label = "only streams that execute can wait",
        note = "whether a stream may wait follows from its phase: ask for `impl Enqueue<B> + CanWait` to be given one that may"
    )]
    pub trait CanWait {}
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be made a stream to replay on",
        label = "only streams that execute can replay",
        note = "ask for `impl CanReplay<B>` to be given one that may"
    )]
    pub trait CanReplay<B: Backend>: Route<B> {}

    #[diagnostic::do_not_recommend]
    impl CanPrepare for NoCapture {}
    #[diagnostic::do_not_recommend]
    impl CanBegin for Prepared {
        fn into_guard<B: Backend>(state: WindowGuard<B>) -> WindowGuard<B> {
            state
        }
    }
    #[diagnostic::do_not_recommend]
    impl CanEnd for Recording {
        fn into_guard<B: Backend>(state: WindowGuard<B>) -> WindowGuard<B> {
            state
        }
    }
    #[diagnostic::do_not_recommend]
    impl<B: Backend> CanWait for Stream<NoCapture, B> {}
    #[diagnostic::do_not_recommend]
    impl<B: Backend> CanWait for Stream<Prepared, B> {}
    #[diagnostic::do_not_recommend]
    impl<B: Backend> CanReplay<B> for Stream<NoCapture, B> {}
    #[diagnostic::do_not_recommend]
    impl<B: Backend> CanReplay<B> for Stream<Prepared, B> {}
}

const_assert_eq!(size_of::<NoCapture>(), 0);
const_assert_eq!(size_of::<Prepared>(), 0);
const_assert_eq!(size_of::<Recording>(), 0);
