//! The stages as one step of device work, written once: it runs eagerly, as a warm-up and as a recording.

use dacapo::Slice;
use dacapo::prelude::*;

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

// Signatures: planes, then the length of their rows, then how many there are if a kernel looks beyond its own.
type Blur = (In<f32>, Out<f32>, u32);
type Stencil = (In<f32>, Out<f32>, u32, u32);
type Luminance = (In<f32>, In<f32>, In<f32>, Out<f32>, u32);
type Magnitude = (In<f32>, In<f32>, Out<f32>, u32);
type Histogram = (In<f32>, Out<u32>);
type Threshold = (In<u32>, Out<u32>);
type Edges = (In<f32>, In<u32>, Out<u8>, u32);

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
            blur_columns: stencil("blur columns", kernels::blur_columns).load(device)?,
            luminance: luminance().load(device)?,
            sobel_x: stencil("sobel x", kernels::sobel_x_rows).load(device)?,
            sobel_y: stencil("sobel y", kernels::sobel_y_rows).load(device)?,
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
    s.launch(&kernels.luminance, grid, (&r, &g, &b, &mut luminance, width))?;

    let (mut gradient_x, mut gradient_y) = (s.alloc(pixels)?, s.alloc(pixels)?);
    s.launch(&kernels.sobel_x, grid, (&luminance, &mut gradient_x, width, height))?;
    s.launch(&kernels.sobel_y, grid, (&luminance, &mut gradient_y, width, height))?;
    let mut magnitude = s.alloc(pixels)?;
    s.launch(&kernels.magnitude, grid, (&gradient_x, &gradient_y, &mut magnitude, width))?;

    let mut histogram = s.alloc(kernels::BINS)?;
    s.launch(&kernels.histogram, Grid::covering(1), (&magnitude, &mut histogram))?;
    s.launch(&kernels.threshold, Grid::covering(1), (&histogram, &mut out.threshold))?;
    s.launch(&kernels.edges, grid, (&magnitude, &out.threshold, &mut out.edges, width))
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
    s.launch(&kernels.blur_rows, size.grid(), (plane, &mut along_rows, width))?;
    let mut blurred = s.alloc(size.pixels())?;
    s.launch(&kernels.blur_columns, size.grid(), (&along_rows, &mut blurred, width, height))?;
    Ok(blurred)
}

fn blur_rows() -> Program<Blur> {
    Program::<Blur>::new("blur rows").host_chunks(|(src, dst, width), chunk| {
        kernels::blur_rows(src, dst, width as usize, chunk.rows().start);
    })
}

/// What one pixel's neighbours in all directions make of it.
fn stencil(name: &str, rows: fn(&[f32], &mut [f32], usize, usize, usize)) -> Program<Stencil> {
    Program::<Stencil>::new(name).host_chunks(move |(src, dst, width, height), chunk| {
        rows(src, dst, width as usize, height as usize, chunk.rows().start);
    })
}

fn luminance() -> Program<Luminance> {
    Program::<Luminance>::new("luminance").host_chunks(|(r, g, b, dst, width), chunk| {
        kernels::luminance_rows(r, g, b, dst, width as usize, chunk.rows().start);
    })
}

fn magnitude() -> Program<Magnitude> {
    Program::<Magnitude>::new("magnitude").host_chunks(|(gradient_x, gradient_y, dst, width), chunk| {
        kernels::magnitude_rows(gradient_x, gradient_y, dst, width as usize, chunk.rows().start);
    })
}

fn histogram() -> Program<Histogram> {
    Program::<Histogram>::new("histogram")
        .host(|(magnitude, counts), _grid| kernels::histogram(magnitude, counts))
}

fn threshold() -> Program<Threshold> {
    Program::<Threshold>::new("threshold")
        .host(|(counts, threshold), _grid| threshold.fill(kernels::otsu(counts)))
}

fn edges() -> Program<Edges> {
    Program::<Edges>::new("edges").host_chunks(|(magnitude, threshold, dst, width), chunk| {
        kernels::edges_rows(magnitude, threshold[0], dst, width as usize, chunk.rows().start);
    })
}
