//! What a command comes to in wgpu's terms: dispatches and copies with everything in place.

#![forbid(unsafe_code)]

use std::sync::Arc;

use smallvec::SmallVec;

use crate::backend::command::ArgsRef;
use crate::backend::fault::Severity;
use crate::backend::wgpu::bind::{Bound, Groups};
use crate::backend::wgpu::bytes::{self, Rows};
use crate::backend::wgpu::code::{Passing, WgpuCode};
use crate::backend::wgpu::memory::{Place, WORD};
use crate::backend::wgpu::open;
use crate::backend::wgpu::scratch::{COUNTS, Scratch};
use crate::backend::wgpu::texture::TextureCopy;
use crate::backend::wgpu::{Machine, Wgpu};
use crate::backend::{Call, Fault, Region};
use crate::kernel::Loaded;
use crate::kernel::grid::Extent;
use crate::layout::Pitch;

/// One command of wgpu's, ready to be encoded any number of times.
pub(crate) enum Step {
    Dispatch(Dispatch),
    Copy { from: wgpu::Buffer, at: u64, to: wgpu::Buffer, to_at: u64, len: u64 },
    Clear { buffer: wgpu::Buffer, at: u64, len: u64 },
    Texture(TextureCopy),
}

/// A kernel on its memory.
pub(crate) struct Dispatch {
    pub(crate) code: Arc<WgpuCode>,
    pub(crate) group: wgpu::BindGroup,
    /// Where the scalars are, if they are in a uniform.
    pub(crate) offset: Option<u32>,
    pub(crate) immediates: Scalars,
    pub(crate) blocks: Blocks,
}

/// How many blocks a dispatch has.
pub(crate) enum Blocks {
    Known([u32; 3]),
    /// As many as are in the buffer when it runs.
    In(wgpu::Buffer),
}

/// Scalars as the shader has them.
pub(crate) type Scalars = SmallVec<[u8; 64]>;
pub(crate) type Steps = SmallVec<[Step; 1]>;
type Ranges<'r> = SmallVec<[Bound<'r>; 8]>;

/// Makes steps of commands.
pub(crate) struct Resolver<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) groups: &'a mut Groups,
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) steps: &'a mut Steps,
}

/// An argument that cannot be bound where it is, and where in the scratch memory it is instead.
struct Detour<'r> {
    argument: usize,
    place: Place<'r>,
    at: u64,
}

impl Resolver<'_> {
    /// A launch of the user's.
    pub(crate) fn launch(
        &mut self,
        kernel: &Loaded<Wgpu>,
        blocks: Blocks,
        args: ArgsRef<'_, Wgpu>,
    ) -> Result<(), Fault> {
        let mut ranges = Ranges::new();
        for region in args.regions {
            let place = Place::of(Call::Launch, region)?;
            if place.as_ref().is_some_and(|place| !self.binds(place)) {
                return self.launch_aside(&kernel.code, blocks, args);
            }
            ranges.push(range(self.machine, place.as_ref()));
        }
        self.dispatch(&kernel.code, &ranges, args.scalars, blocks)
    }

    /// A launch with arguments that cannot be bound where they are.
    fn launch_aside(
        &mut self,
        code: &Arc<WgpuCode>,
        blocks: Blocks,
        args: ArgsRef<'_, Wgpu>,
    ) -> Result<(), Fault> {
        let places = args.regions.iter().map(|region| Place::of(Call::Launch, region));
        let places: SmallVec<[Option<Place<'_>>; 8]> = places.collect::<Result<_, _>>()?;
        let (machine, regions) = (self.machine, args.regions);
        let detours = self.detours(&places);
        let scratch = self.scratch.provide(self.machine)?;
        let inside = |detour: &Detour<'_>| Place { memory: &scratch, at: detour.at, len: detour.place.len };
        let is_written =
            |detour: &&Detour<'_>| regions.get(detour.argument).is_some_and(|region| region.access.writes());
        // Also what is only written: a kernel that leaves some of it unwritten must not show what others left here.
        for detour in &detours {
            self.copy(&detour.place, &inside(detour))?;
        }
        let ranges = places.iter().enumerate().map(|(argument, place)| {
            match detours.iter().find(|detour| detour.argument == argument) {
                Some(detour) => range(machine, Some(&inside(detour))),
                None => range(machine, place.as_ref()),
            }
        });
        let ranges: Ranges<'_> = ranges.collect();
        self.dispatch(code, &ranges, args.scalars, blocks)?;
        for detour in detours.iter().filter(is_written) {
            self.copy(&inside(detour), &detour.place)?;
        }
        Ok(())
    }

    /// The blocks that a region counts: copied to memory of the library's own, since no page can be both bound and counted by
    /// in one dispatch, and as zeros if they are more than the device allows.
    pub(crate) fn count(&mut self, counts: &Region<Wgpu>) -> Result<Blocks, Fault> {
        let counts = Place::of(Call::Launch, counts)?.filter(|counts| counts.len == COUNTS);
        let Some(counts) = counts else {
            return Err(Fault::new(Call::Launch, Severity::Call, "a launch without three counts"));
        };
        let counted = self.scratch.counts(self.machine)?;
        let source = self.window(&counts);
        let target = Bound { memory: &counted, at: 0, len: COUNTS };
        let most = open::most_blocks(&self.machine.limits);
        let code = self.machine.bytes.counts.clone();
        let scalars = [(counts.at - source.at) / WORD, most.into()];
        self.own(&code, [source, target], &scalars, [1, 1, 1])?;
        Ok(Blocks::In(counted.buffer.clone()))
    }

    /// Copies between two ranges of one length that do not overlap.
    pub(crate) fn copy(&mut self, from: &Place<'_>, to: &Place<'_>) -> Result<(), Fault> {
        if from.len != to.len {
            return Err(Fault::new(Call::Copy, Severity::Call, "a copy between ranges of two lengths"));
        }
        if !(from.is_whole_words() && to.is_whole_words()) {
            let rows = Rows { first: 0, step: from.len, to_first: 0, to_step: to.len, row: to.len, rows: 1 };
            return self.rows(from, to, rows);
        }
        // wgpu refuses to copy within one buffer.
        if from.memory.buffer != to.memory.buffer && to.len > self.machine.by_kernel {
            self.push_copy(&from.memory.buffer, from.at, to);
            return Ok(());
        }
        let (source, target) = (self.window(from), self.window(to));
        let [first, to_first] = [(from.at - source.at) / WORD, (to.at - target.at) / WORD];
        let count = to.len / WORD;
        let code = self.machine.bytes.words.clone();
        self.own(&code, [source, target], &[first, to_first, count], bytes::blocks(count))
    }

    /// Copies whole words from a buffer of the library's that is no page.
    pub(crate) fn push_copy(&mut self, from: &wgpu::Buffer, at: u64, to: &Place<'_>) {
        let (to, to_at, len) = (to.memory.buffer.clone(), to.at, to.len);
        self.steps.push(Step::Copy { from: from.clone(), at, to, to_at, len });
    }

    /// Repeats `pattern` over a range.
    pub(crate) fn fill(&mut self, to: &Place<'_>, pattern: &[u8]) -> Result<(), Fault> {
        let word = match *pattern {
            [a] => Some([a; 4]),
            [a, b] => Some([a, b, a, b]),
            [a, b, c, d] => Some([a, b, c, d]),
            _ if pattern.iter().all(|byte| *byte == 0) => Some([0; 4]),
            _ => None,
        };
        match word {
            Some([0, 0, 0, 0]) if to.is_whole_words() && to.len > self.machine.by_kernel => {
                let (buffer, at, len) = (to.memory.buffer.clone(), to.at, to.len);
                self.steps.push(Step::Clear { buffer, at, len });
                Ok(())
            }
            Some(word) if to.is_whole_words() => {
                let (target, count) = (self.window(to), to.len / WORD);
                let scalars = [u32::from_le_bytes(word).into(), (to.at - target.at) / WORD, count];
                let code = self.machine.bytes.repeat.clone();
                self.own(&code, [target], &scalars, bytes::blocks(count))
            }
            _ => self.repeat(to, pattern),
        }
    }

    /// Repeats a pattern of any length at any place.
    fn repeat(&mut self, to: &Place<'_>, pattern: &[u8]) -> Result<(), Fault> {
        let row = pattern.len() as u64;
        if row == 0 || !to.len.is_multiple_of(row) {
            return Err(Fault::new(Call::Fill, Severity::Call, "a fill of a part of a pattern"));
        }
        let mut words: SmallVec<[u8; 64]> = SmallVec::from_slice(pattern);
        words.resize(pattern.len().next_multiple_of(WORD as usize), 0);
        let constant = self.machine.patterns.find(self.machine, &words, self.machine.alignment())?;
        let from = Place { memory: &constant.page, at: constant.at.into(), len: row };
        let rows = Rows { first: 0, step: 0, to_first: 0, to_step: row, row, rows: to.len / row };
        self.rows(&from, to, rows)
    }

    /// Copies the rows of `to`, or all of it, from `from`, where they lie side by side.
    pub(crate) fn scatter(
        &mut self,
        from: &Place<'_>,
        to: &Place<'_>,
        pitch: Option<Pitch>,
    ) -> Result<(), Fault> {
        match pitch {
            None => self.copy(&Place { len: to.len, ..*from }, to),
            Some(Pitch { rows, row, step }) => {
                let [rows, row, step] = [rows, row, step].map(|number| number as u64);
                self.rows(from, to, Rows { first: 0, step: row, to_first: 0, to_step: step, row, rows })
            }
        }
    }

    /// Copies rows of bytes, counted from the starts of the two ranges.
    pub(crate) fn rows(&mut self, from: &Place<'_>, to: &Place<'_>, rows: Rows) -> Result<(), Fault> {
        if rows.rows == 0 || rows.row == 0 {
            return Ok(());
        }
        let (source, target) = (self.window(from), self.window(to));
        let (first, to_first) = (rows.first + from.at - source.at, rows.to_first + to.at - target.at);
        let rows = Rows { first, to_first, ..rows };
        let code = self.machine.bytes.rows.clone();
        self.own(&code, [source, target], &rows.scalars(), bytes::blocks(rows.words()))
    }

    /// A launch of one of the library's own kernels, whose scalars are words.
    fn own<const N: usize>(
        &mut self,
        code: &Arc<WgpuCode>,
        ranges: [Bound<'_>; N],
        scalars: &[u64],
        blocks: [u32; 3],
    ) -> Result<(), Fault> {
        let mut packed = Scalars::new();
        for scalar in scalars {
            let word = u32::try_from(*scalar);
            let word = word.map_err(|_| Fault::new(Call::Copy, Severity::Call, "a range beyond 4 GiB"))?;
            packed.extend_from_slice(&word.to_ne_bytes());
        }
        self.dispatch(code, &ranges, &packed, Blocks::Known(blocks))
    }

    fn dispatch(
        &mut self,
        code: &Arc<WgpuCode>,
        ranges: &[Bound<'_>],
        packed: &[u8],
        blocks: Blocks,
    ) -> Result<(), Fault> {
        fits(code, ranges)?;
        let machine = self.machine;
        let (mut immediates, mut offset) = (Scalars::new(), None);
        let group = match code.params.passing {
            Passing::Nothing => self.groups.find(machine, code, ranges)?,
            Passing::Immediates => {
                immediates = code.params.lay_out(packed);
                self.groups.find(machine, code, ranges)?
            }
            Passing::Uniform => {
                let step = u64::from(machine.limits.min_uniform_buffer_offset_alignment);
                let constant = machine.uniforms.find(machine, &code.params.lay_out(packed), step)?;
                offset = Some(constant.at);
                let mut bound: Ranges<'_> = ranges.iter().copied().collect();
                bound.push(Bound { memory: &constant.page, at: 0, len: code.params.bytes as u64 });
                self.groups.find(machine, code, &bound)?
            }
        };
        self.steps.push(Step::Dispatch(Dispatch { code: code.clone(), group, offset, immediates, blocks }));
        Ok(())
    }

    /// Whether a range can be bound as it is: it starts where a binding may, and no word of it belongs to somebody else.
    fn binds(&self, place: &Place<'_>) -> bool {
        place.at.is_multiple_of(self.machine.alignment()) && place.len.is_multiple_of(WORD)
    }

    /// The arguments that cannot be bound where they are, with room in the scratch memory for each.
    fn detours<'r>(&mut self, places: &[Option<Place<'r>>]) -> SmallVec<[Detour<'r>; 2]> {
        self.scratch.restart();
        let mut detours = SmallVec::new();
        for (argument, place) in places.iter().enumerate() {
            let Some(place) = place.filter(|place| !self.binds(place)) else { continue };
            let at = self.scratch.reserve(self.machine, place.len);
            detours.push(Detour { argument, place, at });
        }
        detours
    }

    /// What is bound for the library's own kernels: the range, from the place before it where a binding may start.
    fn window<'r>(&self, place: &Place<'r>) -> Bound<'r> {
        let at = place.at - place.at % self.machine.alignment();
        Bound { memory: place.memory, at, len: place.end().next_multiple_of(WORD) - at }
    }
}

/// What is bound for an argument that can be bound; a few bytes of nobody's for one without any.
fn range<'r>(machine: &'r Machine, place: Option<&Place<'r>>) -> Bound<'r> {
    match place {
        Some(place) => Bound { memory: place.memory, at: place.at, len: place.len.next_multiple_of(WORD) },
        None => Bound { memory: &machine.nothing, at: 0, len: machine.nothing.bytes() },
    }
}

/// The extent in wgpu's numbers.
pub(crate) fn shape(extent: &Extent) -> Result<Blocks, Fault> {
    let [x, y, z] = extent.blocks().map(u32::try_from);
    match (x, y, z) {
        (Ok(x), Ok(y), Ok(z)) => Ok(Blocks::Known([x, y, z])),
        _ => Err(Fault::new(Call::Launch, Severity::Call, "more blocks than the device can count")),
    }
}

/// Whether every range has the bytes that the shader says it uses.
fn fits(code: &WgpuCode, ranges: &[Bound<'_>]) -> Result<(), Fault> {
    for (index, (binding, range)) in code.bindings.iter().zip(ranges).enumerate() {
        if range.len < binding.least {
            let message = format!(
                "binding {index} of the shader is declared with {} bytes at least, and its argument has {}",
                binding.least, range.len
            );
            return Err(Fault::new(Call::Launch, Severity::Call, message));
        }
    }
    Ok(())
}
