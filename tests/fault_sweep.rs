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

/// The severities for the workers, whose every run meets its fault in an order of its own: with `DACAPO_SWEEP=long` all
/// of them many times, else those that differ most.
fn of_workers() -> Vec<Severity> {
    let is_long = std::env::var("DACAPO_SWEEP").is_ok_and(|mode| mode == "long");
    if is_long { SEVERITIES.repeat(20) } else { vec![Severity::Call, Severity::Sticky] }
}

/// The order of calls is the same in every run, so that the n-th is known by its number.
#[test]
fn any_call_may_fail_once_on_a_stepped_device() {
    SEVERITIES
        .into_iter()
        .for_each(|severity| all_calls(Scene::Everything, Clockwork::Stepped, severity, Manner::GoOn));
}

/// Where the first error ends the program, windows are open, replays in flight, and buffers half made.
#[test]
fn any_call_may_fail_once_in_a_program_that_stops_at_its_first_error() {
    SEVERITIES
        .into_iter()
        .for_each(|severity| each_kind(Scene::Everything, Clockwork::Stepped, severity, Manner::Stop));
}

/// By kind and number: what other threads call meanwhile does not shift these.
#[test]
fn any_call_of_any_kind_may_fail_once_on_a_device_with_workers() {
    of_workers()
        .into_iter()
        .for_each(|severity| each_kind(Scene::Everything, Clockwork::Workers, severity, Manner::GoOn));
}

#[test]
fn any_call_of_any_kind_may_fail_once_on_a_device_with_workers_whose_user_stops() {
    of_workers()
        .into_iter()
        .for_each(|severity| each_kind(Scene::Everything, Clockwork::Workers, severity, Manner::Stop));
}

/// Reclaiming waits, frees and moves on behalf of whoever needs room: what fails there may cost the room, and nothing
/// else.
#[test]
fn any_call_may_fail_once_where_memory_is_short() {
    for severity in SEVERITIES {
        all_calls(Scene::Pressure, Clockwork::Stepped, severity, Manner::GoOn);
        each_kind(Scene::Pressure, Clockwork::Stepped, severity, Manner::Stop);
    }
    of_workers()
        .into_iter()
        .for_each(|severity| each_kind(Scene::Pressure, Clockwork::Workers, severity, Manner::GoOn));
}

/// A driver that has come to refuse one kind of call for good, until it does not.
#[test]
fn all_calls_of_a_kind_may_fail_for_as_long_as_they_like() {
    SEVERITIES.into_iter().for_each(always);
}
