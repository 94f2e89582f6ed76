//! A picture pipeline, recorded once and replayed for every frame of a camera.
//!
//! `cargo run --release --example frames` finds the edges in each of 120 frames, by launching some dozen kernels and
//! by replaying their recording, and holds both to a plain version of the same arithmetic, bit for bit. With `--features
//! nvrtc` or `--features wgpu` also on a GPU: `--backend cuda` and `--backend wgpu` find the same pictures.

mod camera;
mod cli;
mod film;
mod kernels;
mod picture;
mod pipeline;
mod reference;
mod report;

use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use dacapo::{Backend, Device};

use crate::camera::Camera;
use crate::cli::{On, Options};
use crate::film::{Film, Found};
use crate::picture::Picture;
use crate::pipeline::Size;
use crate::reference::Stages;
use crate::report::Report;

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
        On::Host => film(options, &Device::host()?),
        #[cfg(feature = "nvrtc")]
        On::Cuda => film(options, &Device::<dacapo::Cuda>::new(0)?),
        #[cfg(not(feature = "nvrtc"))]
        On::Cuda => anyhow::bail!("this build has no CUDA; build it with `--features nvrtc`"),
        #[cfg(feature = "wgpu")]
        On::Wgpu => film(options, &Device::<dacapo::Wgpu>::new()?),
        #[cfg(not(feature = "wgpu"))]
        On::Wgpu => anyhow::bail!("this build has no wgpu; build it with `--features wgpu`"),
    }
}

fn film<B: Backend>(options: &Options, device: &Device<B>) -> Result<()> {
    let picture = Picture::load(&options.input)?;
    fs::create_dir_all(&options.out)
        .with_context(|| format!("the folder {} cannot be made", options.out.display()))?;

    let camera = Camera::new(&picture, options.frames);
    let size = Size { width: camera.width(), height: camera.height() };
    let mut film = Film::new(device, size)?;
    let (report, last) = shoot(&camera, size, options.frames, &mut film)?;

    let (edges, dot) = (options.out.join("edges.png"), options.out.join("graph.dot"));
    picture::save_grey(&edges, size.width, size.height, &last.edges)?;
    fs::write(&dot, film.graph().to_dot()).with_context(|| format!("{} cannot be written", dot.display()))?;
    let (edges, dot) = (edges.display(), dot.display());
    writeln!(io::stdout(), "{report}\nThe last frame's edges: {edges}\nThe graph: {dot}")
        .context("the table cannot be printed")
}

/// Takes every frame both ways and verifies both; returns the times, and what was found in the last frame.
fn shoot<B: Backend>(
    camera: &Camera,
    size: Size,
    frames: u32,
    film: &mut Film<B>,
) -> Result<(Report, Found)> {
    let mut report = Report::new(size, film.graph());
    let mut rgb = vec![0.0; 3 * size.pixels()];
    let mut last = None;
    let bar = cli::progress_bar(frames);
    for frame in bar.wrap_iter(0..frames) {
        camera.frame(frame, &mut rgb)?;
        let (launched, eager) = film.launch(&rgb)?;
        let (replayed, replay) = film.replay(&rgb)?;
        report.add(eager, replay);

        let expected = Stages::of(planes(&rgb, size), size.width, size.height);
        launched.check(&expected).with_context(|| format!("frame {frame}, launched"))?;
        replayed.check(&expected).with_context(|| format!("frame {frame}, replayed"))?;
        last = Some(replayed);
    }
    Ok((report, last.context("there are no frames")?))
}

fn planes(rgb: &[f32], size: Size) -> [&[f32]; 3] {
    let (r, rest) = rgb.split_at(size.pixels());
    let (g, b) = rest.split_at(size.pixels());
    [r, g, b]
}
