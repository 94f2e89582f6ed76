//! Every call of the driver fails once, in a program that does a little of everything: what fails is told, what is
//! read was computed, and the device is lost with its cause or as good as new.

#[path = "fault_sweep/log.rs"]
mod log;
#[path = "fault_sweep/program.rs"]
mod program;
mod support_objects;
#[path = "fault_sweep/sweep.rs"]
mod sweep;

use dacapo::host::Severity;
use log::Manner;
use sweep::{Clockwork, all_calls, always, each_kind};

/// How often the workers' runs are repeated, each of which meets the faults in an order of its own:
/// `DACAPO_SWEEP=long` is for those who have the time.
fn rounds() -> usize {
    if std::env::var("DACAPO_SWEEP").is_ok_and(|mode| mode == "long") { 20 } else { 1 }
}

/// The order of calls is the same in every run, so that the n-th is known by its number.
#[test]
fn any_call_may_fail_once_on_a_stepped_device() {
    for severity in [Severity::Call, Severity::Memory, Severity::Sticky] {
        all_calls(Clockwork::Stepped, severity, Manner::GoOn);
    }
}

/// Where the first error ends the program, windows are open, replays in flight, and buffers half made.
#[test]
fn any_call_may_fail_once_in_a_program_that_stops_at_its_first_error() {
    for severity in [Severity::Call, Severity::Memory, Severity::Sticky] {
        each_kind(Clockwork::Stepped, severity, Manner::Stop);
    }
}

/// By kind and number: what other threads call meanwhile does not shift these.
#[test]
fn any_call_of_any_kind_may_fail_once_on_a_device_with_workers() {
    for severity in [Severity::Call, Severity::Memory, Severity::Sticky] {
        (0..rounds()).for_each(|_| each_kind(Clockwork::Workers, severity, Manner::GoOn));
    }
}

#[test]
fn any_call_of_any_kind_may_fail_once_on_a_device_with_workers_whose_user_stops() {
    for severity in [Severity::Call, Severity::Memory, Severity::Sticky] {
        (0..rounds()).for_each(|_| each_kind(Clockwork::Workers, severity, Manner::Stop));
    }
}

/// A driver that has come to refuse one kind of call for good, until it does not.
#[test]
fn all_calls_of_a_kind_may_fail_for_as_long_as_they_like() {
    for severity in [Severity::Call, Severity::Memory, Severity::Sticky] {
        always(severity);
    }
}
