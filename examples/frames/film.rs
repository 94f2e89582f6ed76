//! One frame after the other, each computed twice: by launching every kernel again, and by replaying the recording.

use std::time::{Duration, Instant};

use dacapo::NoCapture;
use dacapo::prelude::*;

use crate::pipeline::{Kernels, Outputs, Size, step};
use crate::reference::Stages;

/// A device's stream with the buffers of one frame, and the recorded step.
#[derive(Debug)]
pub struct Film<B: Backend = Host> {
    size: Size,
    stream: Stream<NoCapture, B>,
    kernels: Kernels<B>,
    frame: Buffer<f32, B>,
    eager: Outputs<B>,
    replayed: Outputs<B>,
    graph: Graph<B>,
}

/// Edges and threshold of one frame, on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// 255 on an edge, 0 elsewhere.
    pub edges: Vec<u8>,
    /// The last bin that does not count as an edge.
    pub threshold: u32,
}

impl<B: Backend> Film<B> {
    /// Loads the kernels, and records the step once, after a warm-up.
    ///
    /// # Errors
    /// What the device says; most likely that it has too little memory for frames of `size`.
    pub fn new(device: &Device<B>, size: Size) -> dacapo::Result<Self> {
        let mut stream = device.stream()?;
        let kernels = Kernels::load(device)?;
        let frame = stream.alloc(3 * size.pixels())?;
        // Outputs of their own for each, so that neither can pass for the other.
        let eager = Outputs::alloc(&mut stream, size)?;
        let mut replayed = Outputs::alloc(&mut stream, size)?;
        let (graph, ()) = stream.capture(|work| step(work, &kernels, size, &frame, &mut replayed))?;
        Ok(Self { size, stream, kernels, frame, eager, replayed, graph })
    }

    /// The recorded step.
    pub fn graph(&self) -> &Graph<B> {
        &self.graph
    }

    /// Writes `frame` to the device and launches every kernel; returns what came out, and how long it took until the
    /// device was done.
    ///
    /// # Errors
    /// `frame` is not three planes long, or what the device says.
    pub fn launch(&mut self, frame: &[f32]) -> dacapo::Result<(Found, Duration)> {
        let started = Instant::now();
        self.stream.write(&mut self.frame, frame)?;
        step(&mut self.stream, &self.kernels, self.size, &self.frame, &mut self.eager)?;
        self.stream.sync()?;
        let took = started.elapsed();
        Ok((found(&mut self.stream, &self.eager)?, took))
    }

    /// Writes `frame` to the device and replays the recording; returns what came out, and how long it took until the
    /// device was done.
    ///
    /// # Errors
    /// As for [`launch`](Self::launch).
    pub fn replay(&mut self, frame: &[f32]) -> dacapo::Result<(Found, Duration)> {
        let started = Instant::now();
        self.stream.write(&mut self.frame, frame)?;
        self.graph.replay(&mut self.stream)?.wait()?;
        let took = started.elapsed();
        Ok((found(&mut self.stream, &self.replayed)?, took))
    }
}

impl Found {
    /// Compares with what the plain version computed.
    ///
    /// # Errors
    /// They differ anywhere, be it in one pixel.
    pub fn check(&self, expected: &Stages) -> Result<(), Difference> {
        let differs = |(found, expected): (&u8, &u8)| found != expected;
        let pixels = || self.edges.iter().zip(&expected.edges);
        let wrong = pixels().filter(|pair| differs(*pair)).count();
        let same =
            wrong == 0 && self.threshold == expected.threshold && self.edges.len() == expected.edges.len();
        if same {
            return Ok(());
        }
        Err(Difference {
            wrong,
            first: pixels().position(differs),
            threshold: self.threshold,
            expected: expected.threshold,
        })
    }
}

/// The device and the plain version do not agree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{wrong} pixels differ from the plain version (the first: {}), with threshold {threshold} instead of {expected}",
    first.map_or("none".into(), |pixel| pixel.to_string())
)]
pub struct Difference {
    /// How many pixels differ.
    pub wrong: usize,
    /// The first of them, in row-major order.
    pub first: Option<usize>,
    /// The threshold that the device found.
    pub threshold: u32,
    /// The threshold of the plain version.
    pub expected: u32,
}

fn found<B: Backend>(stream: &mut Stream<NoCapture, B>, outputs: &Outputs<B>) -> dacapo::Result<Found> {
    let mut threshold = [0];
    stream.read_into(&outputs.threshold, &mut threshold)?;
    Ok(Found { edges: stream.read(&outputs.edges)?, threshold: threshold[0] })
}
