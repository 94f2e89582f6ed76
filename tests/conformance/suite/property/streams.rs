//! The streams of a program, typed or with a phase that is known at run time.

use dacapo::{PhaseName, StreamId, WindowId};

use super::support::{AnyStream, NoCapture, Prepared, Recording, Stream};

pub enum Lane {
    Idle(Stream<NoCapture>),
    Prepared(Stream<Prepared>),
    Recording(Stream<Recording>),
    Any(AnyStream),
    /// In the middle of a transition.
    Moved,
}

/// The same expression for a stream in any phase.
macro_rules! each {
    ($lane:expr, $stream:ident => $what:expr) => {
        match $lane {
            Lane::Idle($stream) => $what,
            Lane::Prepared($stream) => $what,
            Lane::Recording($stream) => $what,
            Lane::Any($stream) => $what,
            Lane::Moved => unreachable!("a transition puts the stream back"),
        }
    };
}

/// The same expression for a stream in any phase where it compiles that waits or replays; `None` in the others.
macro_rules! waiting {
    ($lane:expr, $stream:ident => $what:expr) => {
        match $lane {
            Lane::Idle($stream) => Some($what),
            Lane::Prepared($stream) => Some($what),
            Lane::Any($stream) => Some($what),
            Lane::Recording(_) => None,
            Lane::Moved => unreachable!("a transition puts the stream back"),
        }
    };
}

pub(crate) use {each, waiting};

impl Lane {
    pub fn id(&self) -> StreamId {
        use dacapo::Enqueue;
        each!(self, stream => stream.stream_id())
    }

    pub fn phase(&self) -> PhaseName {
        each!(self, stream => stream.phase())
    }

    pub fn window(&self) -> Option<WindowId> {
        each!(self, stream => stream.window())
    }

    pub fn is_any(&self) -> bool {
        matches!(self, Lane::Any(_))
    }

    pub fn take(&mut self) -> Lane {
        std::mem::replace(self, Lane::Moved)
    }

    /// A typed stream as one whose phase is known at run time, or back.
    pub fn retyped(self) -> Lane {
        match self {
            Lane::Idle(stream) => Lane::Any(stream.into()),
            Lane::Prepared(stream) => Lane::Any(stream.into()),
            Lane::Recording(stream) => Lane::Any(stream.into()),
            Lane::Any(any) => typed(any),
            Lane::Moved => Lane::Moved,
        }
    }
}

/// Tries every phase, so that a wrong guess has to hand the stream back unharmed.
fn typed(any: AnyStream) -> Lane {
    let any = match Stream::<NoCapture>::try_from(any) {
        Ok(stream) => return Lane::Idle(stream),
        Err(refused) => refused.into_parts().0,
    };
    let any = match Stream::<Prepared>::try_from(any) {
        Ok(stream) => return Lane::Prepared(stream),
        Err(refused) => refused.into_parts().0,
    };
    match Stream::<Recording>::try_from(any) {
        Ok(stream) => Lane::Recording(stream),
        Err(refused) => Lane::Any(refused.into_parts().0),
    }
}
