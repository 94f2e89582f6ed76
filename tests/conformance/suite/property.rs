//! Random programs, run on a device and in an interpreter that knows nothing of queues: every answer must be the same.
//!
//! A program interleaves streams, phases, buffers, graphs, drops, faults, steps and hold-ups. The interpreter runs the same
//! operations one after the other on one memory, which is what the library promises in effect. A program that differs
//! is shrunk and printed line by line. `DACAPO_PROPTEST_CASES` asks for more programs than usual, or for fewer where a
//! checker makes each of them slow, here and of the random graphs and tables; `DACAPO_PROPTEST_SEED` asks for others.

mod book;
pub mod driver;
mod enqueue;
mod kernels;
mod model;
mod program;
mod steps;
mod streams;
mod windows;

use std::cell::Cell;

use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestCaseError, TestError, TestRunner};

use super::{subject, support, zoo};
use driver::{Bench, Driver, Mode};
use program::{Line, program};

/// Parts of the longest program, most of which are one line.
const PARTS: usize = 120;

/// Runs one program; returns how many operations it came to, and in words what they were.
fn run(lines: &[Line], bench: &Bench) -> (Result<usize, String>, Vec<String>) {
    let mut driver = match Driver::new(bench) {
        Ok(driver) => driver,
        Err(error) => return (Err(error.to_string()), Vec::new()),
    };
    for line in lines {
        if let Err(difference) = driver.run(line) {
            return (Err(difference), driver.trace);
        }
        if driver.is_unsure() {
            return (Ok(driver.performed), driver.trace);
        }
    }
    let (performed, trace) = (driver.performed, std::mem::take(&mut driver.trace));
    let (outcome, end) = driver.finish();
    (outcome.map(|()| performed), trace.into_iter().chain(end).collect())
}

fn from_env(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is not a number: {value}")))
}

/// How many random programs a test runs: as many as usual, or as many as somebody asks for.
pub fn cases(usual: u32) -> u32 {
    from_env("DACAPO_PROPTEST_CASES").map_or(usual, |asked| asked.max(1) as u32)
}

/// Runs the `usual` number of programs or more, which come to `operations` or more, unless there is no device.
pub fn check(mode: Mode, usual: u32, operations: usize) {
    let Some(bench) = Bench::open(mode) else { return };
    let seed = from_env("DACAPO_PROPTEST_SEED").unwrap_or(1);
    let config = Config {
        cases: cases(usual),
        rng_seed: RngSeed::Fixed(seed),
        // Enough for this, and several times as fast in a debug build.
        rng_algorithm: RngAlgorithm::XorShift,
        failure_persistence: None,
        max_shrink_iters: 5_000,
        ..Config::default()
    };
    let performed = Cell::new(0);
    let outcome = TestRunner::new(config).run(&program(PARTS), |lines| {
        let (outcome, _) = run(&lines, &bench);
        performed.set(performed.get() + outcome.map_err(TestCaseError::fail)?);
        Ok(())
    });
    match outcome {
        Ok(()) => {
            let performed = performed.get();
            println!("{performed} operations");
            assert!(
                performed >= operations || std::env::var_os("DACAPO_PROPTEST_CASES").is_some(),
                "{performed}"
            );
        }
        Err(TestError::Fail(reason, lines)) => {
            let (again, trace) = run(&lines, &bench);
            let again = again.map_or_else(|difference| difference, |_| "it passes when run again".to_owned());
            panic!("{reason}\n{}\nseed {seed}, run again: {again}", trace.join("\n"));
        }
        Err(TestError::Abort(reason)) => panic!("no program came of it: {reason}"),
    }
}

/// Any order that is not that of the program, any failure that is lost, spread, or blamed on the wrong cause, any byte
/// that is used too early, too late or after its end. On the host, its detector of races looks on.
#[test]
fn a_device_answers_as_if_every_operation_ran_in_program_order() {
    check(Mode::Free, 700, 25_000);
}
