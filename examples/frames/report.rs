//! The table at the end.

use std::fmt;
use std::time::Duration;

use dacapo::prelude::*;

use crate::pipeline::Size;

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The size of each frame.
    pub size: Size,
    /// How many frames there were, at least 1.
    pub frames: u32,
    /// All frames, each launched kernel by kernel.
    pub eager: Duration,
    /// All frames, each replayed.
    pub replay: Duration,
    /// Operations of one replay.
    pub nodes: usize,
    /// Pairs of them that are ordered directly.
    pub edges: usize,
    /// Bytes of the arena, as planned.
    pub arena_bytes: usize,
    /// Bytes that one buffer each would have taken.
    pub unshared_bytes: usize,
}

impl Report {
    /// A report on `graph`, before the first frame.
    pub fn new<B: Backend>(size: Size, graph: &Graph<B>) -> Self {
        Self {
            size,
            frames: 0,
            eager: Duration::ZERO,
            replay: Duration::ZERO,
            nodes: graph.nodes(),
            edges: graph.edges(),
            arena_bytes: graph.arena_bytes(),
            unshared_bytes: graph.unshared_bytes(),
        }
    }

    /// Counts one more frame.
    pub fn add(&mut self, eager: Duration, replay: Duration) {
        self.frames += 1;
        self.eager += eager;
        self.replay += replay;
    }

    fn milliseconds_a_frame(&self, total: Duration) -> f64 {
        total.as_secs_f64() * 1e3 / f64::from(self.frames.max(1))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Size { width, height } = self.size;
        writeln!(
            f,
            "frames           {:>12}  of {width} x {height} pixels, each verified twice",
            self.frames
        )?;
        writeln!(f, "eager            {:>12.3}  ms/frame", self.milliseconds_a_frame(self.eager))?;
        writeln!(f, "replay           {:>12.3}  ms/frame", self.milliseconds_a_frame(self.replay))?;
        writeln!(f, "nodes            {:>12}", self.nodes)?;
        writeln!(f, "edges            {:>12}", self.edges)?;
        writeln!(f, "arena, planned   {:>12}  bytes", grouped(self.arena_bytes))?;
        writeln!(f, "one buffer each  {:>12}  bytes", grouped(self.unshared_bytes))
    }
}

/// A number with a comma before every third digit from the right.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
