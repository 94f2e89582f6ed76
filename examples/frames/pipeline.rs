//! The stages as one step of device work, written once: it runs eagerly, as a warm-up and as a recording.

use dacapo::prelude::*;
use dacapo::{Len, Signature, Slice};

use crate::kernels;

/// The size of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Pixels in a row, at least 1.
    pub width: usize,
    /// Rows, at least 1.
    pub height: usize,
}

impl Size {
    /// Pixels of a frame, which is the length of each plane.
    pub fn pixels(self) -> usize {
        self.width * self.height
    }

    /// One thread a pixel; on the host, the rows are shared out over the cores.
    fn grid(self) -> Grid {
        Grid::covering((self.width, self.height))
    }
}

// Signatures: planes with their lengths, then the length of their rows, then how many rows there are if a kernel looks
// beyond its own.
type Blur = (In<f32>, Len<0>, Out<f32>, Len<2>, u32);
type Stencil = (In<f32>, Len<0>, Out<f32>, Len<2>, u32, u32);
type Luminance = (In<f32>, Len<0>, In<f32>, Len<2>, In<f32>, Len<4>, Out<f32>, Len<6>, u32);
type Magnitude = (In<f32>, Len<0>, In<f32>, Len<2>, Out<f32>, Len<4>, u32);
type Histogram = (In<f32>, Len<0>, Out<u32>, Len<2>);
type Threshold = (In<u32>, Len<0>, Out<u32>, Len<2>);
type Edges = (In<f32>, Len<0>, In<u32>, Len<2>, Out<u8>, Len<4>, u32);

/// Every kernel of the pipeline, loaded once for one device.
#[derive(Debug)]
pub struct Kernels<B: Backend = Host> {
    blur_rows: Kernel<Blur, B>,
    blur_columns: Kernel<Stencil, B>,
    luminance: Kernel<Luminance, B>,
    sobel_x: Kernel<Stencil, B>,
    sobel_y: Kernel<Stencil, B>,
    magnitude: Kernel<Magnitude, B>,
    histogram: Kernel<Histogram, B>,
    threshold: Kernel<Threshold, B>,
    edges: Kernel<Edges, B>,
}

impl<B: Backend> Kernels<B> {
    /// Loads all of them.
    ///
    /// # Errors
    /// The device's backend has no source for them, or does not accept it.
    pub fn load(device: &Device<B>) -> dacapo::Result<Self> {
        Ok(Self {
            blur_rows: blur_rows().load(device)?,
            blur_columns: stencil("blur columns", "blur_columns", kernels::blur_columns).load(device)?,
            luminance: luminance().load(device)?,
            sobel_x: stencil("sobel x", "sobel_x", kernels::sobel_x_rows).load(device)?,
            sobel_y: stencil("sobel y", "sobel_y", kernels::sobel_y_rows).load(device)?,
            magnitude: magnitude().load(device)?,
            histogram: histogram().load(device)?,
            threshold: threshold().load(device)?,
            edges: edges().load(device)?,
        })
    }
}

/// What a step leaves behind.
#[derive(Debug)]
pub struct Outputs<B: Backend = Host> {
    /// 255 on an edge, 0 elsewhere; one value a pixel.
    pub edges: Buffer<u8, B>,
    /// One element: the last bin of the histogram that does not count as an edge.
    pub threshold: Buffer<u32, B>,
}

impl<B: Backend> Outputs<B> {
    /// Room for the outputs of frames of `size`.
    ///
    /// # Errors
    /// The device has not so much memory.
    pub fn alloc(s: &mut impl Enqueue<B>, size: Size) -> dacapo::Result<Self> {
        Ok(Self { edges: s.alloc(size.pixels())?, threshold: s.alloc(1)? })
    }
}

/// Takes `frame` (the red plane, then the green and the blue one) through all stages.
///
/// What lies between is allocated here and let go here: in a recording, that leaves its place to the planner.
///
/// # Errors
/// `frame` or `out` is not of `size`, or the device has not so much memory.
pub fn step<B: Backend>(
    s: &mut impl Enqueue<B>,
    kernels: &Kernels<B>,
    size: Size,
    frame: &Buffer<f32, B>,
    out: &mut Outputs<B>,
) -> dacapo::Result<()> {
    let (grid, pixels) = (size.grid(), size.pixels());
    let (width, height) = (size.width as u32, size.height as u32);

    let r = blurred(s, kernels, size, frame.slice(..pixels)?)?;
    let g = blurred(s, kernels, size, frame.slice(pixels..2 * pixels)?)?;
    let b = blurred(s, kernels, size, frame.slice(2 * pixels..)?)?;
    let mut luminance = s.alloc(pixels)?;
    let colours = (&r, Len, &g, Len, &b, Len, &mut luminance, Len, width);
    s.launch(&kernels.luminance, grid, colours)?;

    let (mut gradient_x, mut gradient_y) = (s.alloc(pixels)?, s.alloc(pixels)?);
    s.launch(&kernels.sobel_x, grid, (&luminance, Len, &mut gradient_x, Len, width, height))?;
    s.launch(&kernels.sobel_y, grid, (&luminance, Len, &mut gradient_y, Len, width, height))?;
    let mut magnitude = s.alloc(pixels)?;
    let gradients = (&gradient_x, Len, &gradient_y, Len, &mut magnitude, Len, width);
    s.launch(&kernels.magnitude, grid, gradients)?;

    let mut histogram = s.alloc(kernels::BINS)?;
    s.launch(&kernels.histogram, Grid::blocks(1), (&magnitude, Len, &mut histogram, Len))?;
    s.launch(&kernels.threshold, Grid::blocks(1), (&histogram, Len, &mut out.threshold, Len))?;
    let edges = (&magnitude, Len, &out.threshold, Len, &mut out.edges, Len, width);
    s.launch(&kernels.edges, grid, edges)
}

/// One plane, blurred in both directions.
fn blurred<B: Backend>(
    s: &mut impl Enqueue<B>,
    kernels: &Kernels<B>,
    size: Size,
    plane: Slice<'_, f32, B>,
) -> dacapo::Result<Buffer<f32, B>> {
    let (width, height) = (size.width as u32, size.height as u32);
    let mut along_rows = s.alloc(size.pixels())?;
    s.launch(&kernels.blur_rows, size.grid(), (plane, Len, &mut along_rows, Len, width))?;
    let mut blurred = s.alloc(size.pixels())?;
    s.launch(&kernels.blur_columns, size.grid(), (&along_rows, Len, &mut blurred, Len, width, height))?;
    Ok(blurred)
}

/// A program whose threads have a pixel each.
fn pixels<S: Signature>(name: &str, entry: &str) -> Program<S> {
    for_devices(Program::new(name).block(32, 8, 1), entry)
}

/// Adds the sources for what this build has, beside the host.
fn for_devices<S: Signature>(program: Program<S>, entry: &str) -> Program<S> {
    with_wgsl(with_cuda(program, entry), entry)
}

#[cfg(feature = "nvrtc")]
fn with_cuda<S: Signature>(program: Program<S>, entry: &str) -> Program<S> {
    // SAFETY: every function of the source has the parameters of its signature here, and is written for the blocks that its
    // program declares. It compares every index with the lengths that come with its buffers, whatever its grid and scalars
    // are, and writes only what is `Out`, each element by one thread; what the threads of a block share they count
    // atomically or read behind a barrier that all of them reach. Its loops run over lengths.
    unsafe { program.cuda(include_str!("kernels.cu"), entry) }
}

#[cfg(not(feature = "nvrtc"))]
fn with_cuda<S: Signature>(program: Program<S>, _entry: &str) -> Program<S> {
    program
}

#[cfg(feature = "wgpu")]
fn with_wgsl<S: Signature>(program: Program<S>, entry: &str) -> Program<S> {
    program.wgsl(concat!(include_str!("../rounding.wgsl"), include_str!("kernels.wgsl")), entry)
}

#[cfg(not(feature = "wgpu"))]
fn with_wgsl<S: Signature>(program: Program<S>, _entry: &str) -> Program<S> {
    program
}

fn blur_rows() -> Program<Blur> {
    pixels::<Blur>("blur rows", "blur_rows").host_chunks(|(src, _, dst, _, width), chunk| {
        kernels::blur_rows(src, dst, width as usize, chunk.rows().start);
    })
}

/// What one pixel's neighbours in all directions make of it.
fn stencil(name: &str, entry: &str, rows: fn(&[f32], &mut [f32], usize, usize, usize)) -> Program<Stencil> {
    pixels::<Stencil>(name, entry).host_chunks(move |(src, _, dst, _, width, height), chunk| {
        rows(src, dst, width as usize, height as usize, chunk.rows().start);
    })
}

fn luminance() -> Program<Luminance> {
    pixels::<Luminance>("luminance", "luminance").host_chunks(|(r, _, g, _, b, _, dst, _, width), chunk| {
        kernels::luminance_rows(r, g, b, dst, width as usize, chunk.rows().start);
    })
}

fn magnitude() -> Program<Magnitude> {
    let program = pixels::<Magnitude>("magnitude", "magnitude");
    program.host_chunks(|(gradient_x, _, gradient_y, _, dst, _, width), chunk| {
        kernels::magnitude_rows(gradient_x, gradient_y, dst, width as usize, chunk.rows().start);
    })
}

fn histogram() -> Program<Histogram> {
    let program = Program::<Histogram>::new("histogram").block(256, 1, 1);
    for_devices(program, "histogram")
        .host(|(magnitude, _, counts, _), _grid| kernels::histogram(magnitude, counts))
}

fn threshold() -> Program<Threshold> {
    let program = Program::<Threshold>::new("threshold").block(kernels::BINS as u32, 1, 1);
    for_devices(program, "threshold")
        .host(|(counts, _, threshold, _), _grid| threshold.fill(kernels::otsu(counts)))
}

fn edges() -> Program<Edges> {
    pixels::<Edges>("edges", "edges").host_chunks(|(magnitude, _, threshold, _, dst, _, width), chunk| {
        kernels::edges_rows(magnitude, threshold[0], dst, width as usize, chunk.rows().start);
    })
}
