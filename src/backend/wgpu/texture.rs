//! Copies from textures of the program's own into buffers.

#![forbid(unsafe_code)]

use std::sync::Arc;

use wgpu::{Extent3d, Origin3d, TextureAspect, TextureUsages};

use crate::Enqueue;
use crate::access::Access;
use crate::backend::command::Work;
use crate::backend::fault::Severity;
use crate::backend::wgpu::bytes::Rows;
use crate::backend::wgpu::memory::Place;
use crate::backend::wgpu::scope::{self, scoped};
use crate::backend::wgpu::steps::{Resolver, Step};
use crate::backend::wgpu::{Machine, Wgpu};
use crate::backend::{Call, Fault, Job, Region};
use crate::buffer::{Slice, Target};
use crate::capture::recorder::Kind;
use crate::error::{Error, Result};
use crate::kernel::Element;
use crate::kernel::args::UsesOf;
use crate::submit::Route;

/// The name of the call in errors.
pub(crate) const COPY: &str = "copy_from_texture";

/// What wgpu wants the rows of a texture to start at multiples of, in a buffer.
const STEP: u64 = 256;

/// Copies from textures, on whatever [`Enqueue`] is for.
pub trait EnqueueTexture: Enqueue<Wgpu> {
    /// Copies texels to `to`, tightly packed: row after row, layer after layer, as many bytes as `to` has, whatever its
    /// elements are.
    ///
    /// The texture is one of the device that this one was [opened with](crate::Device::from_parts). Its contents are what
    /// the program submitted before this call; of a graph's copy, before each replay, which keeps the texture alive and
    /// copies what it holds by then. What the program submits afterwards finds the copy made, unless the stream is behind a
    /// host callback at the time: then the copy sees what was submitted until it runs.
    ///
    /// A texture of another device is refused, but wgpu tells that device's handler of errors first.
    ///
    /// Only textures of one aspect and one sample, whose texels have 1, 2, 4, 8 or 16 bytes, can be copied. To
    /// [`destroy`](wgpu::Texture::destroy) the texture while a copy is to come loses the device.
    ///
    /// ```no_run
    /// use dacapo::prelude::*;
    /// use dacapo::wgpu::{EnqueueTexture, Texels, Wgpu, wgpu};
    ///
    /// # fn main() -> dacapo::Result<()> {
    /// # fn camera() -> (wgpu::Device, wgpu::Queue, wgpu::Texture) { unimplemented!() }
    /// let (device, queue, frame) = camera();
    /// let device = Device::<Wgpu>::from_parts(device, queue)?;
    /// let mut stream = device.stream()?;
    /// let (width, height) = (frame.width() as usize, frame.height() as usize);
    ///
    /// // Four bytes a texel: one `u32`.
    /// let mut pixels = stream.alloc_scratch::<u32>(width * height)?;
    /// let (mut graph, ()) = stream.record(|work| work.copy_from_texture(&frame, &mut pixels))?;
    /// graph.replay(&mut stream)?;
    ///
    /// let mut half = stream.alloc_scratch::<u32>((width / 2) * (height / 2))?;
    /// stream.copy_from_texture(Texels::of(&frame).mip_level(1), &mut half)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongTexture`] says what the texture lacks, or that it has no such texels; [`Error::LengthMismatch`] if `to`
    /// has another size, [`Error::CastSize`] if no number of its elements has it; [`Error::Driver`] for a texture of another
    /// device, or one that was destroyed; and as for [`launch`](Enqueue::launch). `to` is tainted.
    fn copy_from_texture<'t, T, D>(&mut self, from: impl Into<Texels<'t>>, to: D) -> Result<()>
    where
        T: Element,
        D: Target<Wgpu, Element = T>,
    {
        copy(&mut self.route(COPY)?, from.into(), to.target())
    }
}

#[diagnostic::do_not_recommend]
impl<S: Enqueue<Wgpu> + ?Sized> EnqueueTexture for S {}

/// Texels of a texture: those of one mip level, or a part of them.
#[derive(Clone, Copy, Debug)]
pub struct Texels<'t> {
    texture: &'t wgpu::Texture,
    mip_level: u32,
    origin: Origin3d,
    extent: Option<Extent3d>,
}

impl<'t> Texels<'t> {
    /// All of the first mip level.
    pub fn of(texture: &'t wgpu::Texture) -> Self {
        Texels { texture, mip_level: 0, origin: Origin3d::ZERO, extent: None }
    }

    /// Another mip level.
    pub fn mip_level(mut self, level: u32) -> Self {
        self.mip_level = level;
        self
    }

    /// Where the first texel is: 0 in each dimension, unless said otherwise. The third one counts layers too.
    pub fn origin(mut self, origin: Origin3d) -> Self {
        self.origin = origin;
        self
    }

    /// How many texels there are in each dimension: all from the origin on, unless said otherwise.
    pub fn extent(mut self, extent: Extent3d) -> Self {
        self.extent = Some(extent);
        self
    }
}

impl<'t> From<&'t wgpu::Texture> for Texels<'t> {
    fn from(texture: &'t wgpu::Texture) -> Self {
        Texels::of(texture)
    }
}

/// The section of this backend: a copy from a texture, which lives as long as a graph may make the copy.
pub struct WgpuSection {
    texture: wgpu::Texture,
    mip_level: u32,
    origin: Origin3d,
    extent: Extent3d,
    /// Bytes of a texel.
    texel: u64,
}

/// One copy of wgpu's from a texture, ready to be encoded.
pub(crate) struct TextureCopy {
    texture: wgpu::Texture,
    mip_level: u32,
    origin: Origin3d,
    extent: Extent3d,
    to: wgpu::Buffer,
    at: u64,
    /// From row to row in the buffer, in bytes.
    step: u32,
}

impl WgpuSection {
    /// What is asked for, if the texture has it.
    fn new(from: Texels<'_>) -> Result<Self> {
        let Texels { texture, mip_level, origin, .. } = from;
        let texel = texel(texture)?;
        let whole = texture.size().mip_level_size(mip_level.min(31), texture.dimension());
        let rest = Extent3d {
            width: whole.width.saturating_sub(origin.x),
            height: whole.height.saturating_sub(origin.y),
            depth_or_array_layers: whole.depth_or_array_layers.saturating_sub(origin.z),
        };
        let extent = from.extent.unwrap_or(rest);
        if mip_level >= texture.mip_level_count() {
            return Err(Error::WrongTexture { reason: "it has no such mip level" });
        }
        let starts =
            origin.x <= whole.width && origin.y <= whole.height && origin.z <= whole.depth_or_array_layers;
        let ends = extent.width <= rest.width
            && extent.height <= rest.height
            && extent.depth_or_array_layers <= rest.depth_or_array_layers;
        if !(starts && ends) {
            return Err(Error::WrongTexture { reason: "the range reaches beyond the mip level" });
        }
        if is_depth_or_stencil(texture) && (extent.width, extent.height) != (whole.width, whole.height) {
            return Err(Error::WrongTexture { reason: "of depth and stencil, whole layers must be copied" });
        }
        Ok(WgpuSection { texture: texture.clone(), mip_level, origin, extent, texel })
    }

    /// Bytes of a row, without padding.
    fn row(&self) -> u64 {
        u64::from(self.extent.width) * self.texel
    }

    /// Rows of all layers.
    fn rows(&self) -> u64 {
        u64::from(self.extent.height) * u64::from(self.extent.depth_or_array_layers)
    }

    fn bytes(&self) -> u64 {
        self.row().saturating_mul(self.rows())
    }

    /// Asks wgpu whether the copy can be made, so that no submission has to fail for it: this encodes one and submits
    /// nothing.
    fn admit(&self, machine: &Machine) -> std::result::Result<(), Fault> {
        // A view of no mip level is refused; before that, one of a texture that was destroyed, of which wgpu else speaks at
        // the submission only.
        let none = wgpu::TextureViewDescriptor { mip_level_count: Some(0), ..Default::default() };
        let refusal = scope::refusal(&machine.device, || drop(self.texture.create_view(&none)));
        let refused = |message| Err(Fault::new(Call::Section, Severity::Call, message));
        match refusal {
            Some(message) if message.contains("destroyed") => return refused(message),
            Some(_) => {}
            None => {
                machine.check(Call::Section);
                return refused("the texture is of another device".to_owned());
            }
        }
        let (extent, bytes) = match is_depth_or_stencil(&self.texture) {
            // A part of one cannot be copied.
            true => (self.extent, self.row().next_multiple_of(STEP).saturating_mul(self.rows())),
            false => (Extent3d { width: 1, height: 1, depth_or_array_layers: 1 }, STEP),
        };
        scoped(&machine.device, Call::Section, || {
            let to = match bytes <= machine.nothing.bytes() {
                true => machine.nothing.buffer.clone(),
                false => machine.device.create_buffer(&wgpu::BufferDescriptor {
                    label: None,
                    size: bytes,
                    usage: wgpu::BufferUsages::COPY_DST,
                    mapped_at_creation: false,
                }),
            };
            let mut encoder =
                machine.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            self.piece(self.origin, extent, to, 0).encode(&mut encoder);
            drop(encoder.finish());
        })
    }

    /// The steps that make the copy. wgpu pads rows to multiples of 256 bytes: others go through scratch memory.
    pub(crate) fn resolve(
        &self,
        resolver: &mut Resolver<'_>,
        to: &Region<Wgpu>,
    ) -> std::result::Result<(), Fault> {
        let Some(to) = Place::of(Call::Section, to)? else { return Ok(()) };
        let (row, rows) = (self.row(), self.rows());
        let step = row.next_multiple_of(STEP);
        if to.is_whole_words() && to.at.is_multiple_of(self.texel) && (row == step || rows == 1) {
            let piece = self.piece(self.origin, self.extent, to.memory.buffer.clone(), to.at);
            resolver.steps.push(Step::Texture(piece));
            return Ok(());
        }
        // No more at once than a kernel can be given.
        let limits = &resolver.machine.limits;
        let most = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size) / step;
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        if most == 0 {
            return Err(Fault::new(
                Call::Section,
                Severity::Call,
                "a row of texels is too long to be copied",
            ));
        }
        let mut done = 0;
        for (origin, extent) in self.bands(most) {
            let rows = u64::from(extent.height) * u64::from(extent.depth_or_array_layers);
            resolver.scratch.restart();
            resolver.scratch.reserve(resolver.machine, step * rows);
            let scratch = resolver.scratch.provide(resolver.machine)?;
            let piece = self.piece(origin, extent, scratch.buffer.clone(), 0);
            resolver.steps.push(Step::Texture(piece));
            let target = Place { memory: to.memory, at: to.at + done, len: row * rows };
            let packed = Rows { first: 0, step, to_first: 0, to_step: row, row, rows };
            resolver.rows(&Place::start_of(&scratch, step * rows), &target, packed)?;
            done += row * rows;
        }
        Ok(())
    }

    /// All texels in parts of `most` rows or fewer, in their order.
    fn bands(&self, most: u32) -> Vec<(Origin3d, Extent3d)> {
        let Extent3d { height, depth_or_array_layers: layers, .. } = self.extent;
        if self.rows() <= u64::from(most) || is_depth_or_stencil(&self.texture) {
            return vec![(self.origin, self.extent)];
        }
        let mut bands = Vec::new();
        for layer in 0..layers {
            for first in (0..height).step_by(most as usize) {
                let origin = Origin3d { y: self.origin.y + first, z: self.origin.z + layer, ..self.origin };
                let height = most.min(height - first);
                bands.push((origin, Extent3d { height, depth_or_array_layers: 1, ..self.extent }));
            }
        }
        bands
    }

    fn piece(&self, origin: Origin3d, extent: Extent3d, to: wgpu::Buffer, at: u64) -> TextureCopy {
        // A texture's row is far shorter than 4 GiB.
        let step = u32::try_from(self.row().next_multiple_of(STEP)).unwrap_or(u32::MAX);
        TextureCopy { texture: self.texture.clone(), mip_level: self.mip_level, origin, extent, to, at, step }
    }
}

impl TextureCopy {
    pub(crate) fn encode(&self, encoder: &mut wgpu::CommandEncoder) {
        let from = wgpu::TexelCopyTextureInfo {
            texture: &self.texture,
            mip_level: self.mip_level,
            origin: self.origin,
            aspect: TextureAspect::All,
        };
        let layout = wgpu::TexelCopyBufferLayout {
            offset: self.at,
            bytes_per_row: Some(self.step),
            rows_per_image: Some(self.extent.height),
        };
        encoder.copy_texture_to_buffer(
            from,
            wgpu::TexelCopyBufferInfo { buffer: &self.to, layout },
            self.extent,
        );
    }
}

/// Enqueues or records a copy.
fn copy<T: Element>(route: &mut Route<'_, Wgpu>, from: Texels<'_>, to: Slice<'_, T, Wgpu>) -> Result<()> {
    let len = to.len();
    let mut uses = UsesOf::new();
    let gathered = route.gather(COPY, &mut uses, |into| into.buffer(to, Access::Write));
    let section = match gathered {
        Some(problem) => Err(*problem),
        None => section(&route.core.device.backend.machine, from, len, size_of::<T>()),
    };
    match section {
        Ok(section) if section.bytes() == 0 => Ok(()),
        Ok(section) => {
            let job = Job(Work::Raw { section: Arc::new(section) });
            route.perform(COPY, &uses, job, Kind::Plain, None).map(drop)
        }
        // Whatever job it is that does not run: what it was to write is not written.
        Err(error) => {
            let job = Job(Work::Copy);
            route.perform(COPY, &uses, job, Kind::Plain, Some(Box::new(error))).map(drop)
        }
    }
}

/// The copy of `from` to `len` elements, if it can be made.
fn section(machine: &Machine, from: Texels<'_>, len: usize, element: usize) -> Result<WgpuSection> {
    let section = WgpuSection::new(from)?;
    let bytes = usize::try_from(section.bytes()).unwrap_or(usize::MAX);
    if !bytes.is_multiple_of(element) {
        return Err(Error::CastSize { bytes, element });
    }
    if bytes / element != len {
        return Err(Error::LengthMismatch { operation: COPY, source_len: bytes / element, target_len: len });
    }
    if bytes > 0 {
        let admitted = section.admit(machine);
        machine.poison.check()?;
        admitted.map_err(|fault| machine.poison.absorb(fault))?;
    }
    Ok(section)
}

/// The bytes of a texel, if such textures can be copied from at all.
fn texel(texture: &wgpu::Texture) -> Result<u64> {
    let format = texture.format();
    let reason = if texture.sample_count() != 1 {
        "it has several samples a texel; resolve it to one with a single sample, and copy that"
    } else if !texture.usage().contains(TextureUsages::COPY_SRC) {
        "it was made without the usage COPY_SRC"
    } else if format.is_combined_depth_stencil_format() || format.is_multi_planar_format() {
        "its format has several aspects; copy one of them to a texture of its own, and that"
    } else if format.block_dimensions() != (1, 1) {
        "its format is compressed; draw it to a texture of a plain format, and copy that"
    } else {
        match format.block_copy_size(None) {
            Some(bytes @ (1 | 2 | 4 | 8 | 16)) => return Ok(u64::from(bytes)),
            _ => "texels of its format cannot be copied to a buffer",
        }
    };
    Err(Error::WrongTexture { reason })
}

fn is_depth_or_stencil(texture: &wgpu::Texture) -> bool {
    texture.format().has_depth_aspect() || texture.format().has_stencil_aspect()
}
