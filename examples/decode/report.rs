//! The table at the end.

use std::fmt;
use std::time::Duration;

use dacapo::prelude::*;

use crate::session::{Decoded, Session};

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// What was chosen.
    pub tokens: Vec<u32>,
    /// How many steps a sequence takes, at least 1.
    pub steps: u32,
    /// All steps, launched kernel by kernel.
    pub eager: Duration,
    /// All steps, replayed.
    pub replay: Duration,
    /// One replay, by the device's clock.
    pub device: Duration,
    /// Operations of one step.
    pub nodes: usize,
    /// Pairs of them that are ordered directly.
    pub edges: usize,
}

impl Report {
    /// A report on what `session` decoded behind `prompt` tokens.
    pub fn new<B: Backend>(
        session: &Session<B>,
        prompt: usize,
        launched: &Decoded,
        replayed: &Decoded,
        device: Duration,
    ) -> Self {
        Self {
            tokens: replayed.tokens.iter().skip(prompt).copied().collect(),
            steps: session.shape().context.saturating_sub(1).max(1) as u32,
            eager: launched.took,
            replay: replayed.took,
            device,
            nodes: session.graph().nodes(),
            edges: session.graph().edges(),
        }
    }

    fn microseconds_a_token(&self, total: Duration) -> f64 {
        total.as_secs_f64() * 1e6 / f64::from(self.steps.max(1))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens: Vec<String> = self.tokens.iter().map(u32::to_string).collect();
        writeln!(f, "tokens     {}", tokens.join(" "))?;
        writeln!(f, "eager      {:>9.1}  us/token", self.microseconds_a_token(self.eager))?;
        let times = self.eager.as_secs_f64() / self.replay.as_secs_f64().max(f64::MIN_POSITIVE);
        let replay = self.microseconds_a_token(self.replay);
        writeln!(f, "replay     {replay:>9.1}  us/token, {times:.2} times as fast")?;
        writeln!(f, "device     {:>9.1}  us, one replay by its own clock", self.device.as_secs_f64() * 1e6)?;
        writeln!(f, "nodes      {:>9}", self.nodes)?;
        write!(f, "edges      {:>9}", self.edges)
    }
}
