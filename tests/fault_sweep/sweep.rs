//! Runs of the program, each with one fault, and what must hold after each of them.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use dacapo::host::{Severity, Stepper};
use dacapo::prelude::*;
use dacapo::{Call, DeviceOptions, Error, MemoryUsage};

use super::log::{Log, Manner};
use super::pressure;
use super::program::{self, Place};
use super::support_objects::{assert_let_go, eventually};

/// Who runs the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clockwork {
    Stepped,
    Workers,
}

/// Which calls fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Nth(u64),
    NthOf(Call, u64),
    All(Call),
}

/// One run.
#[derive(Clone, Copy, Debug)]
struct Case {
    scene: Scene,
    clockwork: Clockwork,
    which: Which,
    severity: Severity,
    manner: Manner,
}

/// Fails the n-th call of all, for every n.
pub fn all_calls(scene: Scene, clockwork: Clockwork, severity: Severity, manner: Manner) {
    let calls = Call::ALL.into_iter().map(|call| count(scene, call)).sum();
    for n in 1..=calls {
        Case { scene, clockwork, which: Which::Nth(n), severity, manner }.run();
    }
}

/// Fails the n-th call of each kind, for every n.
pub fn each_kind(scene: Scene, clockwork: Clockwork, severity: Severity, manner: Manner) {
    for call in Call::ALL.into_iter().filter(|call| *call != Call::Open) {
        let calls = count(scene, call);
        assert!(calls > 0 || !scene.makes(call), "the program never makes {call}");
        for n in 1..=calls {
            Case { scene, clockwork, which: Which::NthOf(call, n), severity, manner }.run();
        }
    }
}

/// Fails every call of each kind.
pub fn always(severity: Severity) {
    for call in Call::ALL.into_iter().filter(|call| *call != Call::Open) {
        for (clockwork, manner) in [(Clockwork::Stepped, Manner::GoOn), (Clockwork::Workers, Manner::Stop)] {
            for scene in [Scene::Everything, Scene::Pressure] {
                Case { scene, clockwork, which: Which::All(call), severity, manner }.run();
            }
        }
    }
}

/// How many calls of a kind a run makes in which none fails. Stepped, where everything that could wait must; pages go
/// back in their own time, but all of them do.
fn count(scene: Scene, call: Call) -> u64 {
    let subject = Subject::new(scene, Clockwork::Stepped);
    let opened = subject.device.faults().count(call);
    let log = subject.program(Manner::Stop);
    assert!(log.errors.is_empty(), "{:?}", log.errors);
    assert_eq!(log.reads, scene.reads(), "a read of the program is missing");
    subject.come_to_rest();
    subject.device.faults().count(call) - opened
}

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// A little of everything.
    Everything,
    /// Reservations that find room only by reclaiming and compacting.
    Pressure,
}

impl Scene {
    fn options(self) -> DeviceOptions {
        let options = DeviceOptions::new().max_streams(2);
        match self {
            Scene::Everything => options,
            Scene::Pressure => options.memory_limit(pressure::LIMIT),
        }
    }

    fn run(self, place: &Place<'_>, manner: Manner) -> Log {
        match self {
            Scene::Everything => program::run(place, manner),
            Scene::Pressure => pressure::run(place, manner),
        }
    }

    /// Whether it is there to make calls of this kind.
    fn makes(self, call: Call) -> bool {
        let squeezing = [Call::Allocate, Call::Free, Call::Copy, Call::Wait, Call::Synchronize];
        match self {
            // The host has no raw sections.
            Scene::Everything => call != Call::Section,
            Scene::Pressure => squeezing.contains(&call),
        }
    }

    /// How many reads it makes.
    fn reads(self) -> usize {
        match self {
            Scene::Everything => 24,
            Scene::Pressure => pressure::READS,
        }
    }
}

/// A fresh device, and what is needed to run a scene on it.
struct Subject {
    scene: Scene,
    device: Device,
    stepper: Option<Stepper>,
    token: Arc<()>,
}

impl Subject {
    fn new(scene: Scene, clockwork: Clockwork) -> Self {
        let options = scene.options();
        let (device, stepper) = match clockwork {
            Clockwork::Workers => (Device::open(options).unwrap(), None),
            Clockwork::Stepped => {
                let (device, stepper) = Device::<Host>::stepped(options).unwrap();
                (device, Some(stepper))
            }
        };
        Subject { scene, device, stepper, token: Arc::new(()) }
    }

    fn program(&self, manner: Manner) -> Log {
        let settle = || {
            self.stepper.iter().for_each(|stepper| {
                stepper.run_all();
            })
        };
        self.scene.run(&Place { device: &self.device, settle: &settle, token: &self.token }, manner)
    }

    /// Everything is done, and everything that the device held is with the driver again.
    fn come_to_rest(&self) {
        let mut stream = self.device.stream().unwrap();
        let usage = || self.device.memory_usage();
        eventually(
            || {
                self.stepper.iter().for_each(|stepper| {
                    stepper.run_all();
                });
                let cleaned = stream.memory_cleanup();
                let MemoryUsage { held, in_use, pending, .. } = usage();
                cleaned.is_ok() && (held, in_use, pending) == (0, 0, 0)
            },
            || format!("the device still holds {:?}", usage()),
        );
    }
}

impl Case {
    /// Runs it on a thread of its own, so that one that hangs can be named.
    fn run(self) {
        const PATIENCE: Duration = Duration::from_secs(60);
        let (done, ends) = mpsc::channel();
        let runner = std::thread::spawn(move || {
            self.check();
            done.send(()).unwrap();
        });
        match ends.recv_timeout(PATIENCE) {
            Ok(()) => runner.join().unwrap(),
            Err(RecvTimeoutError::Timeout) => panic!("it hangs: {self}"),
            Err(RecvTimeoutError::Disconnected) => {
                let panic = runner.join().unwrap_err();
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                panic!("{self}: {}", text.unwrap_or("a panic without a message"));
            }
        }
    }

    fn check(self) {
        let subject = Subject::new(self.scene, self.clockwork);
        let device = subject.device.clone();
        let faults = device.faults();
        let counts = Call::ALL.map(|call| faults.count(call));
        let total = faults.total();
        match self.which {
            Which::Nth(n) => faults.fail_nth_of_all(n, self.severity),
            Which::NthOf(call, n) => faults.fail_nth(call, n, self.severity),
            Which::All(call) => faults.fail_all(call, self.severity),
        }
        let log = subject.program(self.manner);
        let met = match self.which {
            Which::Nth(n) => faults.total() - total >= n,
            Which::NthOf(call, n) => faults.count(call) - counts[call as usize] >= n,
            Which::All(call) => faults.count(call) > counts[call as usize],
        };
        log.errors.iter().for_each(|(step, error)| self.judge(step, error));
        if met && self.severity == Severity::Sticky {
            // A call of the library's own thread is counted before that thread has told of its fault.
            let left = || "a sticky fault left the device usable".to_owned();
            eventually(|| device.check().is_err(), left);
        }
        match device.check() {
            Err(lost) => {
                self.judge("check", &lost);
                assert!(!log.errors.is_empty() || self.is_absorbed(), "the loss was never told");
                assert_eq!(device.stream().unwrap_err().to_string(), lost.to_string());
            }
            Ok(()) => {
                assert!(!met || !log.errors.is_empty() || self.is_absorbed(), "nobody was told");
                let keeps = self.which == Which::All(Call::Free);
                assert!(!keeps || device.memory_usage().held > 0, "what the driver keeps is off the books");
                faults.clear();
                let good = subject.program(Manner::GoOn);
                assert!(good.errors.is_empty(), "and later, on the same device: {:?}", good.errors);
                assert_eq!(good.reads, self.scene.reads());
                subject.come_to_rest();
            }
        }
        let token = subject.token.clone();
        drop((subject, device));
        assert_let_go(&token);
    }

    /// Whether `error` says what was made to fail.
    fn judge(&self, step: &str, error: &Error) {
        let (call, message) = match error.root() {
            Error::OutOfMemory { .. } if self.may_find_no_memory() => return,
            Error::Driver { call, message } if self.severity != Severity::Sticky => (*call, &**message),
            Error::DeviceLost { first } if self.severity == Severity::Sticky => {
                (first.call(), first.message())
            }
            other => panic!("{step}: {other}"),
        };
        assert_eq!(message, "injected fault", "{step}");
        match self.which {
            Which::Nth(_) => {}
            Which::NthOf(failed, _) | Which::All(failed) => assert_eq!(call, failed, "{step}"),
        }
    }

    /// Whether there may be no memory to be had: the driver has none for good, or what would have made room failed.
    fn may_find_no_memory(&self) -> bool {
        let has_none = self.which == Which::All(Call::Allocate) && self.severity == Severity::Memory;
        has_none || (self.scene == Scene::Pressure && self.severity != Severity::Sticky)
    }

    /// Whether the library may get over it by itself: a page that is not given back now is given back later, and one
    /// that cannot be had is asked for again.
    fn is_absorbed(&self) -> bool {
        if self.scene == Scene::Pressure {
            // Reclaiming and compacting may fail for their part, and the reservation find room all the same.
            return true;
        }
        match self.which {
            // It may have been any of these; by kind it is known.
            Which::Nth(_) => true,
            Which::NthOf(call, _) => match call {
                Call::Free => true,
                // Staging goes on with ordinary memory.
                Call::Pin => self.severity != Severity::Sticky,
                Call::Allocate => self.severity == Severity::Memory,
                _ => false,
            },
            Which::All(call) => call == Call::Free || call == Call::Pin && self.severity != Severity::Sticky,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { scene, clockwork, which, severity, manner } = self;
        write!(f, "{which:?} with severity {severity:?} ({scene:?}, {clockwork:?}, {manner:?})")
    }
}
