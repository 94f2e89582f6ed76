//! The command line.

use clap::{Parser, ValueEnum};

/// Let a small transformer say what comes next: its step is recorded once and replayed for every token.
#[derive(Clone, Debug, Parser)]
#[command(name = "decode", version)]
pub struct Options {
    /// The device that decodes.
    #[arg(long, value_enum, default_value_t = On::Host)]
    pub backend: On,
    /// How many tokens follow the prompt.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub tokens: u16,
    /// What the weights are made up from.
    #[arg(long, value_name = "SEED", default_value_t = 7)]
    pub seed: u64,
    /// What comes before, a token a byte.
    #[arg(long, value_name = "TEXT", default_value = "da capo", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub prompt: String,
    /// Hold launched and replayed tokens against each other to the last bit, and both against a plain version.
    #[arg(long)]
    pub check: bool,
}

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum On {
    /// This machine's processor, which is always there.
    Host,
    /// The first NVIDIA GPU; in builds with the feature `nvrtc`.
    Cuda,
    /// The fastest GPU that wgpu finds; in builds with the feature `wgpu`.
    Wgpu,
}

impl Options {
    /// The prompt as tokens.
    pub fn prompt(&self) -> Vec<u32> {
        self.prompt.bytes().map(u32::from).collect()
    }
}
