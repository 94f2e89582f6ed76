//! Every call of the driver fails once, in a program that does a little of everything: what fails is told, what is
//! read was computed, and the device is lost with its cause or as good as new.

#[path = "fault_sweep/log.rs"]
mod log;
#[path = "fault_sweep/pressure.rs"]
mod pressure;
#[path = "fault_sweep/program.rs"]
mod program;
mod support_objects;
#[path = "fault_sweep/sweep.rs"]
mod sweep;

use dacapo::host::Severity;
use log::Manner;
use sweep::{Clockwork, Scene, all_calls, always, each_kind};

const SEVERITIES: [Severity; 3] = [Severity::Call, Severity::Memory, Severity::Sticky];

/// The sweeps of the workers, whose every run meets its fault in an order of its own: with `DACAPO_SWEEP=long` all of
/// them many times, else those that differ most.
fn of_workers() -> Vec<(Severity, Manner)> {
    if std::env::var("DACAPO_SWEEP").is_ok_and(|mode| mode == "long") {
        let both = |severity| [(severity, Manner::GoOn), (severity, Manner::Stop)];
        return SEVERITIES.map(both).concat().repeat(20);
    }
    vec![(Severity::Call, Manner::GoOn), (Severity::Sticky, Manner::Stop)]
}

/// The order of calls is the same in every run, so that the n-th is known by its number.
#[test]
fn any_call_may_fail_once_on_a_stepped_device() {
    for severity in SEVERITIES {
        all_calls(Scene::Everything, Clockwork::Stepped, severity, Manner::GoOn);
    }
}

/// Where the first error ends the program, windows are open, replays in flight, and buffers half made.
#[test]
fn any_call_may_fail_once_in_a_program_that_stops_at_its_first_error() {
    for severity in [Severity::Call, Severity::Sticky] {
        each_kind(Scene::Everything, Clockwork::Stepped, severity, Manner::Stop);
    }
}

/// By kind and number: what other threads call meanwhile does not shift these.
#[test]
fn any_call_of_any_kind_may_fail_once_on_a_device_with_workers() {
    for (severity, manner) in of_workers() {
        each_kind(Scene::Everything, Clockwork::Workers, severity, manner);
    }
}

/// Reclaiming waits, frees and moves on behalf of whoever needs room: what fails there may cost the room, and nothing
/// else.
#[test]
fn any_call_may_fail_once_where_memory_is_short() {
    for severity in SEVERITIES {
        all_calls(Scene::Pressure, Clockwork::Stepped, severity, Manner::GoOn);
    }
    each_kind(Scene::Pressure, Clockwork::Stepped, Severity::Call, Manner::Stop);
    for (severity, manner) in of_workers() {
        each_kind(Scene::Pressure, Clockwork::Workers, severity, manner);
    }
}

/// A driver that has come to refuse one kind of call for good, until it does not.
#[test]
fn all_calls_of_a_kind_may_fail_for_as_long_as_they_like() {
    SEVERITIES.into_iter().for_each(always);
}
