//! Whole sequences, decoded twice: by launching every kernel again, and by replaying the recording.

use std::time::{Duration, Instant};

use dacapo::prelude::*;
use dacapo::{Error, NoCapture};

use crate::kernels::Kernels;
use crate::model::{Model, Shape, Weights};
use crate::step::{Sequence, step};

/// A model on a device, and its recorded step.
#[derive(Debug)]
pub struct Session<B: Backend = Host> {
    stream: Stream<NoCapture, B>,
    kernels: Kernels<B>,
    model: Model<B>,
    launched: Sequence<B>,
    replayed: Sequence<B>,
    graph: Graph<B>,
}

/// One sequence, decoded to the end of its context.
#[derive(Clone, Debug)]
pub struct Decoded {
    /// The prompt, and what was chosen behind it.
    pub tokens: Vec<u32>,
    /// How likely each token was to be the last one.
    pub logits: Vec<f32>,
    /// From the first step to the end of the last one.
    pub took: Duration,
}

impl<B: Backend> Session<B> {
    /// Loads kernels and weights, and records the step once.
    ///
    /// # Errors
    /// What the device says; most likely that it has too little memory, or that there is no compiler for its kernels.
    pub fn new(device: &Device<B>, weights: &Weights<Vec<f32>>) -> dacapo::Result<Self> {
        let mut stream = device.stream()?;
        let kernels = Kernels::load(device)?;
        let model = weights.upload(&mut stream)?;
        // Sequences of their own for each, so that neither can pass for the other.
        let launched = Sequence::alloc(&mut stream, model.shape)?;
        let mut replayed = Sequence::alloc(&mut stream, model.shape)?;
        let (graph, ()) = stream.record(|work| step(work, &kernels, &model, &mut replayed))?;
        Ok(Self { stream, kernels, model, launched, replayed, graph })
    }

    /// The recorded step.
    pub fn graph(&self) -> &Graph<B> {
        &self.graph
    }

    /// The sizes of the model.
    pub fn shape(&self) -> Shape {
        self.model.shape
    }

    /// Decodes what follows `prompt` by launching every kernel of every step.
    ///
    /// # Errors
    /// `prompt` is empty or longer than the context, or what the device says.
    pub fn launch(&mut self, prompt: &[u32]) -> dacapo::Result<Decoded> {
        let Session { stream, kernels, model, launched, .. } = self;
        decode(stream, launched, prompt, |stream, sequence| step(stream, kernels, model, sequence))
    }

    /// Decodes what follows `prompt` by replaying the one recording for every step. Nobody looks at a token until all of
    /// them are there: a step finds what it needs on the device.
    ///
    /// # Errors
    /// As for [`launch`](Self::launch).
    pub fn replay(&mut self, prompt: &[u32]) -> dacapo::Result<Decoded> {
        let Session { stream, replayed, graph, .. } = self;
        decode(stream, replayed, prompt, |stream, _| graph.replay(stream).map(drop))
    }

    /// More replays, at the end of the last sequence; returns how long the device took for one of them.
    ///
    /// # Errors
    /// What the device says.
    pub fn replay_timed(&mut self) -> dacapo::Result<Duration> {
        // Behind another one: an idle device would start its clock and then wait for the host to hand it the graph.
        self.graph.replay(&mut self.stream)?;
        self.graph.replay_timed(&mut self.stream)?.wait()
    }
}

/// Takes every step of one sequence.
fn decode<B: Backend>(
    stream: &mut Stream<NoCapture, B>,
    sequence: &mut Sequence<B>,
    prompt: &[u32],
    mut step: impl FnMut(&mut Stream<NoCapture, B>, &mut Sequence<B>) -> dacapo::Result<()>,
) -> dacapo::Result<Decoded> {
    if prompt.is_empty() {
        return Err(Error::step("there is nothing to begin with: a prompt has at least one token"));
    }
    sequence.start(stream, prompt)?;
    stream.sync()?;
    let started = Instant::now();
    for _ in 1..sequence.tokens.len() {
        step(stream, sequence)?;
    }
    stream.sync()?;
    let took = started.elapsed();
    let (tokens, logits) = (stream.read(&sequence.tokens)?, stream.read(&sequence.logits)?);
    Ok(Decoded { tokens, logits, took })
}
