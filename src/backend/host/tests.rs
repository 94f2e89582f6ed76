//! What the host device detects in debug builds: mistakes of the core that hardware would punish, or hide.

#![forbid(unsafe_code)]

use crate::backend::command::ArgBlock;
use crate::backend::sealed::Driver as _;
use crate::backend::{Call, Command, Job, Region, Waiter};
use crate::memory::allocation::Home;
use crate::prelude::*;
use crate::{DeviceOptions, Error, enqueue::sealed::Route as _};

/// A driver in capture mode invalidates a capture whose stream is waited for.
#[test]
fn a_wait_on_behalf_of_a_recording_stream_is_a_sticky_fault() {
    let device = Device::host().unwrap();
    let stream = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    let core = &device.core;
    let queue = &core.slot(0).queue;
    let waiter = Waiter::Stream(stream.id());
    let fault = core.backend.block(queue, 0, waiter, None).unwrap_err();
    assert!(fault.is_sticky());
    assert_eq!(fault.call(), Call::Synchronize);
    drop(stream);
    assert!(core.backend.block(queue, 0, waiter, None).unwrap());
}

/// Memory that went back to the driver too early would be somebody else's by the time the work runs.
#[test]
fn work_on_memory_that_was_given_back_poisons_the_device() {
    let (device, stepper) = Device::stepped(DeviceOptions::new()).unwrap();
    let mut stream = device.stream().unwrap();
    let mut x = stream.alloc::<u32>(8).unwrap();
    stepper.run_all();
    stream.fill(&mut x, 1).unwrap();
    let (alloc, _, _) = x.as_slice().parts();
    if let Home::Placed { contents, .. } = &alloc.state.lock().home {
        stream.core().device.backend.free(&contents.page.memory).unwrap();
    }
    stepper.run_all();
    let error = device.check().unwrap_err();
    assert!(
        matches!(&error, Error::DeviceLost { first } if first.message().contains("given back")),
        "{error}"
    );
}

/// A range that does not lie in its memory resolves to nothing, as an empty one does: the operation would do nothing,
/// and succeed.
#[test]
fn work_on_bytes_outside_of_their_memory_poisons_the_device() {
    let (device, stepper) = Device::stepped(DeviceOptions::new()).unwrap();
    let mut stream = device.stream().unwrap();
    let x = stream.alloc::<u32>(8).unwrap();
    stepper.run_all();
    let contents = x.as_slice().parts().0.state.lock().resolve("test").unwrap().cloned();
    let end = contents.as_ref().unwrap().page.bytes + 1;
    let outside = Region { contents, start: 0, end, access: crate::access::Access::Write };
    let args = ArgBlock { regions: vec![outside], scalars: vec![0].into() };
    let mut command = Command { job: Job(crate::backend::command::Work::Fill), args };
    let (core, seq) = (&device.core, device.core.lane(0).seq + 1);
    core.backend.submit(&core.slot(0).queue, seq, &stream.core().by, &mut command).unwrap();
    stepper.run_all();
    let error = device.check().unwrap_err();
    assert!(matches!(&error, Error::DeviceLost { first } if first.message().contains("outside")), "{error}");
}

/// Two operations on the same bytes at once are a race, which only a missing wait can bring about.
#[test]
fn two_operations_on_the_same_bytes_at_once_poison_the_device() {
    let (device, stepper) = Device::stepped(DeviceOptions::new()).unwrap();
    let mut stream = device.stream().unwrap();
    let mut x = stream.alloc::<u32>(8).unwrap();
    stepper.run_all();
    stream.fill(&mut x, 1).unwrap();
    let (alloc, _, _) = x.as_slice().parts();
    let contents = alloc.state.lock().resolve("test").unwrap().cloned().unwrap();
    let range = contents.offset..contents.offset + 4;
    contents.page.memory.enter(range, crate::access::Access::Read).unwrap();
    stepper.run_all();
    let error = device.check().unwrap_err();
    assert!(matches!(&error, Error::DeviceLost { first } if first.message().contains("race")), "{error}");
}
