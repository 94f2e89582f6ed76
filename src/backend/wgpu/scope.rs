//! What wgpu says of a call, in our words: error scopes, a lost device, a poll that cannot panic.
//!
//! # A lost device
//!
//! What wgpu does once a device is lost or destroyed, which no scope and no handler hears of:
//!
//! - what it makes (buffers, pipelines, bind groups, encoders) is invalid without a word, and using it is as silent;
//! - a submit does nothing. The index that it returns is one that a poll then calls wrong;
//! - `map_async` refuses at once, by its callback. A mapping asked for before a `destroy` is still granted when its
//!   submission has ended, but the poll that grants it may take the buffer away before its callback runs, so that the range
//!   of a granted mapping may be refused;
//! - work that was submitted before a `destroy` still ends, and its callbacks run.
//!
//! Of all the calls of this backend only `Device::poll` panics by itself, when it is the one that finds the driver's device
//! lost; [`poll`] makes a fault of that. A poll also runs callbacks of whoever shares the device.

#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};

use wgpu::{ErrorFilter, ErrorScopeGuard};

use crate::backend::fault::Severity;
use crate::backend::{Call, Fault};

/// Runs `f` with every error of this thread's calls to `device` caught; one of them becomes a fault of `call`.
///
/// Scopes are a thread's own, so that what other threads do with the device meanwhile is none of ours. If `f` panics, they
/// are closed too. That the device is lost is [not](is_lost) an error to wgpu.
pub(crate) fn scoped<T>(device: &wgpu::Device, call: Call, f: impl FnOnce() -> T) -> Result<T, Fault> {
    // On a panic they are dropped in the reverse order, as wgpu demands.
    let validation = device.push_error_scope(ErrorFilter::Validation);
    let internal = device.push_error_scope(ErrorFilter::Internal);
    let memory = device.push_error_scope(ErrorFilter::OutOfMemory);
    let value = f();
    let (memory, internal, validation) = (popped(memory), popped(internal), popped(validation));
    // What is used after it could not be made is refused, too: the root comes first.
    match memory.or(internal).or(validation) {
        Some(error) => Err(fault(call, &error)),
        None => Ok(value),
    }
}

/// [`scoped`] for what is done for every launch: for calls that compile nothing, which have no internal errors.
pub(crate) fn scoped_briefly<T>(
    device: &wgpu::Device,
    call: Call,
    f: impl FnOnce() -> T,
) -> Result<T, Fault> {
    let validation = device.push_error_scope(ErrorFilter::Validation);
    let memory = device.push_error_scope(ErrorFilter::OutOfMemory);
    let value = f();
    let (memory, validation) = (popped(memory), popped(validation));
    match memory.or(validation) {
        Some(error) => Err(fault(call, &error)),
        None => Ok(value),
    }
}

thread_local! {
    /// The first error of the call that this thread has under way, where its handler is ours.
    static HEARD: RefCell<Heard> = const { RefCell::new(Heard::Nobody) };
}

#[derive(Default)]
enum Heard {
    /// No call listens.
    #[default]
    Nobody,
    Nothing,
    Error(wgpu::Error),
}

/// [`scoped_briefly`] on a device whose handler of errors passes them to [`heard`]: without scopes, two of which cost a sixth of
/// what a bind group does.
pub(crate) fn listening<T>(call: Call, f: impl FnOnce() -> T) -> Result<T, Fault> {
    /// Also if `f` panics, nobody listens any more.
    struct Listening;

    impl Drop for Listening {
        fn drop(&mut self) {
            HEARD.set(Heard::Nobody);
        }
    }

    HEARD.set(Heard::Nothing);
    let _listening = Listening;
    let value = f();
    match HEARD.take() {
        Heard::Error(error) => Err(fault(call, &error)),
        Heard::Nobody | Heard::Nothing => Ok(value),
    }
}

/// Hands an error to the call of this thread that [listens](listening), which wgpu is inside of; returns it if there is none.
pub(crate) fn heard(error: wgpu::Error) -> Option<wgpu::Error> {
    HEARD.with_borrow_mut(|heard| match heard {
        Heard::Nobody => Some(error),
        Heard::Nothing => {
            *heard = Heard::Error(error);
            None
        }
        // The root comes first.
        Heard::Error(_) => None,
    })
}

/// Whether the device is lost or destroyed, asked of wgpu without changing anything.
pub(crate) fn is_lost(device: &wgpu::Device) -> bool {
    // A buffer without a use is refused on every device that lives, and on none that does not.
    let nothing = wgpu::BufferDescriptor {
        label: None,
        size: 4,
        usage: wgpu::BufferUsages::empty(),
        mapped_at_creation: false,
    };
    let scope = device.push_error_scope(ErrorFilter::Validation);
    drop(device.create_buffer(&nothing));
    popped(scope).is_none()
}

/// What wgpu says where `provoke` makes a call of a thing of `device` that is refused whatever its state; `None` for one of
/// another device.
///
/// A thing of wgpu's is a number, which another instance gives to something else, so that no call that takes it as an argument
/// can be trusted to tell: it may find that, or panic. What refuses a call of its own tells the device that it is of, whose
/// handler, or the panic where it has none, is all there is to notice that by if that is another one.
pub(crate) fn refusal(device: &wgpu::Device, provoke: impl FnOnce()) -> Option<String> {
    let scope = device.push_error_scope(ErrorFilter::Validation);
    let returned = catch_unwind(AssertUnwindSafe(provoke));
    popped(scope).filter(|_| returned.is_ok()).map(|error| text(&error))
}

/// The fault of a call that found the device lost.
pub(crate) fn lost(call: Call) -> Fault {
    Fault::new(call, Severity::Sticky, "the wgpu device is lost, or was destroyed")
}

/// [`wgpu::Device::poll`], with the panic that a lost device makes of it turned into the fault it is.
///
/// Callbacks run inside, also those of whoever shares the device. One of theirs that panics is not our concern, but takes
/// those with it that were to run after it, which are dropped uncalled: so every callback of ours must count its own drop
/// as a failure.
pub(crate) fn poll(device: &wgpu::Device, how: wgpu::PollType) -> Result<Polled, Fault> {
    let polled = catch_unwind(AssertUnwindSafe(|| device.poll(how)));
    match polled {
        Ok(Ok(wgpu::PollStatus::QueueEmpty)) => Ok(Polled::Idle),
        Ok(Ok(wgpu::PollStatus::WaitSucceeded)) => Ok(Polled::Passed),
        Ok(Ok(wgpu::PollStatus::Poll) | Err(wgpu::PollError::Timeout)) => Ok(Polled::Pending),
        Ok(Err(wgpu::PollError::WrongSubmissionIndex(..))) => Ok(Polled::Unsubmitted),
        Err(_) if is_lost(device) => Err(lost(Call::Synchronize)),
        Err(_) => Ok(Polled::Pending),
    }
}

/// What a poll found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Polled {
    /// Nothing is in flight.
    Idle,
    /// The submission that was asked for has ended.
    Passed,
    /// Something is in flight, that submission included.
    Pending,
    /// That submission was never made: it was refused, or the device is [lost](is_lost).
    Unsubmitted,
}

/// What wgpu says, in one line.
pub(crate) fn text(error: &wgpu::Error) -> String {
    let said = match error {
        wgpu::Error::OutOfMemory { source } => source.to_string(),
        wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. } => {
            description.clone()
        }
    };
    let lines = said.lines().map(str::trim);
    let lines: Vec<_> =
        lines.filter(|line| !matches!(*line, "" | "Validation Error" | "Caused by:")).collect();
    lines.join(": ")
}

fn popped(scope: ErrorScopeGuard) -> Option<wgpu::Error> {
    let mut answer = std::pin::pin!(scope.pop());
    // Ready at once on every native backend: what blocking needs, which is memory of its own, is needed nowhere.
    match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(error) => error,
        Poll::Pending => pollster::block_on(answer),
    }
}

fn fault(call: Call, error: &wgpu::Error) -> Fault {
    let severity = match error {
        wgpu::Error::OutOfMemory { .. } => Severity::Memory,
        wgpu::Error::Validation { .. } | wgpu::Error::Internal { .. } => Severity::Call,
    };
    Fault::new(call, severity, text(error))
}

#[cfg(test)]
pub(super) mod tests {
    use std::panic::resume_unwind;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::Duration;

    use super::*;
    use crate::backend::wgpu::kept;
    use crate::backend::wgpu::select::{self, Wanted};

    /// A device, its queue, and how many errors went to its handler; `None` where there is no adapter and none is required.
    pub(crate) fn device() -> Option<(wgpu::Device, wgpu::Queue, Arc<AtomicUsize>)> {
        let adapter = match select::adapters(&Wanted::default()) {
            Ok(adapters) => adapters.into_iter().next()?,
            Err(missing) => {
                let required = std::env::var("DACAPO_REQUIRE").is_ok_and(|what| what.contains("wgpu"));
                assert!(!required, "a wgpu device is required: {missing}");
                println!("skipped: {missing}");
                return None;
            }
        };
        let request = adapter.request_device(&wgpu::DeviceDescriptor::default());
        let (device, queue) = pollster::block_on(request).unwrap();
        if kept::deadlocks(&adapter.get_info()) {
            // Never destroyed, since threads of other tests end meanwhile.
            std::mem::forget((device.clone(), queue.clone()));
        }
        let strays = Arc::new(AtomicUsize::new(0));
        let counted = strays.clone();
        device.on_uncaptured_error(Arc::new(move |_| {
            counted.fetch_add(1, SeqCst);
        }));
        Some((device, queue, strays))
    }

    fn buffer(device: &wgpu::Device, usage: wgpu::BufferUsages) -> wgpu::Buffer {
        let size = 64;
        device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
    }

    /// wgpu's text has five lines, of which the first two say nothing.
    #[test]
    fn an_error_becomes_a_fault_of_its_call_in_one_line() {
        let Some((device, _, strays)) = device() else { return };
        let refused = scoped(&device, Call::Pin, || drop(buffer(&device, wgpu::BufferUsages::empty())));
        let fault = refused.unwrap_err();
        assert_eq!((fault.call(), fault.is_sticky(), fault.is_memory()), (Call::Pin, false, false));
        assert!(fault.message().starts_with("In Device::create_buffer: "), "{fault}");
        assert!(!fault.message().contains('\n'), "{fault}");
        assert_eq!(scoped(&device, Call::Pin, || 7).unwrap(), 7);
        assert_eq!(strays.load(SeqCst), 0);
    }

    /// A scope that a panic leaves open takes the errors of whatever its thread does next, and then panics by itself.
    #[test]
    fn wgpu_05_a_panic_inside_closes_the_scopes() {
        let Some((device, _, strays)) = device() else { return };
        for _ in 0..3 {
            // Not `panic!`, which prints.
            let run = AssertUnwindSafe(|| scoped(&device, Call::Load, || resume_unwind(Box::new(5u8))));
            let panic: Result<Result<(), Fault>, _> = catch_unwind(run);
            assert!(panic.unwrap_err().is::<u8>());
        }
        assert!(scoped(&device, Call::Load, || ()).is_ok());
        drop(buffer(&device, wgpu::BufferUsages::empty()));
        assert_eq!(strays.load(SeqCst), 1, "the program's error went to the program's handler");
    }

    /// An error that a launch caused, and nobody heard, would be taken for one of the device.
    #[test]
    fn a_handler_of_ours_tells_the_call_that_is_under_way() {
        let Some((device, _, strays)) = device() else { return };
        let stray = strays.clone();
        device.on_uncaptured_error(Arc::new(move |error| {
            stray.fetch_add(heard(error).iter().count(), SeqCst);
        }));
        let refused = || drop(buffer(&device, wgpu::BufferUsages::empty()));
        for _ in 0..2 {
            let fault = listening(Call::Launch, refused).unwrap_err();
            assert_eq!((fault.call(), fault.is_sticky()), (Call::Launch, false));
            assert!(fault.message().starts_with("In Device::create_buffer: "), "{fault}");
            assert_eq!(listening(Call::Launch, || 7).unwrap(), 7);
        }
        assert_eq!(strays.load(SeqCst), 0);
        // Not of this call: of another thread, after it, or after its panic.
        listening(Call::Launch, || std::thread::scope(|scope| scope.spawn(refused).join().unwrap())).unwrap();
        refused();
        let panicking = AssertUnwindSafe(|| listening(Call::Launch, || resume_unwind(Box::new(5u8))));
        let panicked: Result<Result<(), Fault>, _> = catch_unwind(panicking);
        assert!(panicked.is_err());
        refused();
        assert_eq!(strays.load(SeqCst), 3);
    }

    /// wgpu says nothing on a lost device, so that everything seems to work.
    #[test]
    fn a_loss_shows_where_it_is_asked_for() {
        let Some((device, queue, strays)) = device() else { return };
        let ask = |index| {
            let wait = wgpu::PollType::Wait { submission_index: Some(index), timeout: Some(Duration::ZERO) };
            poll(&device, wait).unwrap()
        };
        assert!(!is_lost(&device));
        assert_ne!(ask(queue.submit([])), Polled::Unsubmitted);
        device.destroy();
        assert!(is_lost(&device));
        let submitted = scoped(&device, Call::Execute, || queue.submit([])).unwrap();
        assert_eq!(ask(submitted), Polled::Unsubmitted);
        assert!(
            scoped(&device, Call::Allocate, || drop(buffer(&device, wgpu::BufferUsages::STORAGE))).is_ok()
        );
        assert_eq!(strays.load(SeqCst), 0);
    }

    /// Whoever shares the device has callbacks too, which run inside our polls.
    #[test]
    fn a_panic_of_somebody_elses_callback_is_no_loss() {
        let Some((device, queue, _)) = device() else { return };
        let called = Arc::new(AtomicUsize::new(0));
        let count = called.clone();
        queue.on_submitted_work_done(move || {
            count.fetch_add(1, SeqCst);
            resume_unwind(Box::new(5u8))
        });
        // The queue may take a moment to be found empty; whichever poll calls back must not fail.
        while called.load(SeqCst) == 0 {
            poll(&device, wgpu::PollType::Poll).unwrap();
        }
        while poll(&device, wgpu::PollType::Poll).unwrap() != Polled::Idle {}
        assert!(!is_lost(&device));
    }
}
