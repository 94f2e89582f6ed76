//! The decode step of a small transformer, recorded once and replayed for every token.
//!
//! What to look at:
//! - `step.rs`: the step, written once for every backend, eager or recorded. Which token it reads, at which position and
//!   with how long a cache is in buffers that the step itself moves on, so that one graph serves every step.
//! - `kernels.rs`, `kernels.cu` and `kernels.wgsl`: each kernel once, with a source for every backend.
//! - `arithmetic.rs`: why all devices say the same tokens.
//! - `session.rs`: a whole sequence is so many replays in a row, and nobody looks at a token before the last one.
//!
//! `cargo run --release --example decode -- --check`, with `--features nvrtc` also `--backend cuda`, and with
//! `--features wgpu` also `--backend wgpu`. The weights are made up from a seed, so that what the model says means nothing; it
//! is the same everywhere.

mod arithmetic;
mod cli;
mod kernels;
mod model;
mod reference;
mod report;
mod session;
mod step;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use dacapo::host::HostOptions;
use dacapo::{Backend, Device, DeviceOptions};

use crate::cli::{On, Options};
use crate::model::{Shape, Weights};
use crate::report::Report;
use crate::session::Session;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    match options.backend {
        On::Host => decode(options, &host()?),
        #[cfg(feature = "nvrtc")]
        On::Cuda => decode(options, &Device::<dacapo::Cuda>::new(0)?),
        #[cfg(not(feature = "nvrtc"))]
        On::Cuda => anyhow::bail!("this build has no CUDA; build it with `--features nvrtc`"),
        #[cfg(feature = "wgpu")]
        On::Wgpu => decode(options, &Device::<dacapo::Wgpu>::new()?),
        #[cfg(not(feature = "wgpu"))]
        On::Wgpu => anyhow::bail!("this build has no wgpu; build it with `--features wgpu`"),
    }
}

/// The host with one thread: a node takes microseconds, and so does handing it to another one.
fn host() -> dacapo::Result<Device> {
    Device::open(DeviceOptions::new().backend(HostOptions::new().threads(1)))
}

fn decode<B: Backend>(options: &Options, device: &Device<B>) -> Result<()> {
    let prompt = options.prompt();
    let shape = Shape::small(prompt.len() + usize::from(options.tokens));
    let weights = Weights::random(shape, options.seed);
    let mut session = Session::new(device, &weights)?;
    // Once without looking at the clock: the first time everything is new to the device.
    session.launch(&prompt)?;
    session.replay(&prompt)?;
    let (launched, replayed) = (session.launch(&prompt)?, session.replay(&prompt)?);
    ensure!(launched.tokens == replayed.tokens, "what was launched and what was replayed differ");
    if options.check {
        let bits = |logits: &[f32]| logits.iter().map(|logit| logit.to_bits()).collect::<Vec<_>>();
        ensure!(bits(&launched.logits) == bits(&replayed.logits), "launched and replayed logits differ");
        let verdict = reference::judge(&weights, &replayed.tokens, prompt.len())
            .context("the plain version disagrees with the device")?;
        let closest = verdict.closest;
        writeln!(io::stdout(), "checked    every token; the closest choice won by {closest:.4}")?;
    }
    let device = session.replay_timed()?;
    let report = Report::new(&session, prompt.len(), &launched, &replayed, device);
    writeln!(io::stdout(), "{report}").context("the table cannot be printed")
}
