//! The command line, and the bar that shows how far the frames are.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

/// Find the edges in every frame of a camera that moves over a picture: recorded once, replayed for each frame.
#[derive(Clone, Debug, Parser)]
#[command(name = "frames", version)]
pub struct Options {
    /// The device that finds the edges.
    #[arg(long, value_enum, default_value_t = On::Host)]
    pub backend: On,
    /// The picture that the camera moves over, a PNG file.
    #[arg(long, value_name = "PATH", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/chelsea.png"))]
    pub input: PathBuf,
    /// How many frames the camera takes to come back to where it started.
    #[arg(long, value_name = "N", default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..))]
    pub frames: u32,
    /// The folder for the last frame's edges (PNG) and the graph (DOT), made if it is missing.
    #[arg(long, value_name = "DIR", default_value = "frames-out")]
    pub out: PathBuf,
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

/// A bar of `frames` steps on standard error, hidden where that is no terminal.
pub fn progress_bar(frames: u32) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} frames, {per_sec}, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(u64::from(frames)).with_style(style)
}
