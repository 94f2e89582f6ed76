//! One operation: how it is enqueued, and what it does to the model.

use std::ops::Range;
use std::sync::Arc;

use dacapo::{Layout, Slice, SliceMut};

use super::support::{Buffer, Enqueue, Grid, Len, Stream, Subject};

use super::checks::same_bytes;
use super::kernels::{Kernels, add, mixed, tint, xor};
use super::model::Model;
use super::random::{Rng, fresh_bytes};

/// A range of the cell at an index.
#[derive(Clone)]
pub struct Part {
    pub cell: usize,
    pub range: Range<usize>,
}

#[derive(Clone)]
pub enum Step {
    Write {
        to: Part,
        data: Arc<[u8]>,
        handing: Handing,
    },
    /// Some of the bytes, in rows with padding between them.
    Rows {
        to: Part,
        layout: Layout,
        pitch: usize,
        data: Arc<[u8]>,
    },
    Fill {
        to: Part,
        value: u8,
    },
    Copy {
        from: Part,
        to: Part,
    },
    /// From one of the buffers that every thread reads.
    Weight {
        weight: usize,
        start: usize,
        to: Part,
    },
    Mask {
        on: Part,
        by: u8,
    },
    Words {
        on: Part,
        by: u32,
    },
    /// With a table of the host's.
    Tint {
        on: Part,
        table: Vec<u8>,
    },
    Shift {
        from: Part,
        to: Part,
        by: u8,
    },
    Mix {
        a: Part,
        b: Part,
        to: Part,
    },
    Break {
        from: Part,
        to: Part,
    },
}

/// How bytes are given to a write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Handing {
    Lent,
    Over,
}

/// A buffer that every thread reads and nobody writes.
pub struct Weight {
    pub buffer: Buffer<u8>,
    pub bytes: Vec<u8>,
}

/// What all steps may use beside the cells.
pub struct Tools {
    pub kernels: Kernels,
    pub weights: Vec<Weight>,
}

/// Buffers and what they must hold, by one index. A buffer may be gone while a graph still works on its bytes.
#[derive(Default)]
pub struct Cells {
    pub buffers: Vec<Option<Buffer<u8>>>,
    pub models: Vec<Model>,
    /// Whether words may start where the buffer does.
    pub aligned: Vec<bool>,
}

impl Cells {
    pub fn push(&mut self, buffer: Buffer<u8>, model: Model, aligned: bool) {
        self.buffers.push(Some(buffer));
        self.models.push(model);
        self.aligned.push(aligned);
    }

    pub fn swap_remove(&mut self, cell: usize) -> (Option<Buffer<u8>>, Model, bool) {
        let (buffer, model) = (self.buffers.swap_remove(cell), self.models.swap_remove(cell));
        (buffer, model, self.aligned.swap_remove(cell))
    }

    pub fn len(&self) -> usize {
        self.models.len()
    }

    /// The length of every buffer, 0 where it is gone.
    pub fn live_lens(&self) -> Vec<usize> {
        self.buffers.iter().map(|buffer| buffer.as_ref().map_or(0, Buffer::len)).collect()
    }

    /// A buffer that is not gone.
    pub fn any_live(&self, rng: &mut Rng) -> Option<(usize, &Buffer<u8>)> {
        let cell = rng.below(self.len());
        Some((cell, self.buffers.get(cell)?.as_ref()?))
    }

    /// Takes every buffer of `more` that is not gone.
    pub fn take_all(&mut self, more: Cells) {
        for ((buffer, model), aligned) in more.buffers.into_iter().zip(more.models).zip(more.aligned) {
            if let Some(buffer) = buffer {
                self.push(buffer, model, aligned);
            }
        }
    }

    /// Reads every byte.
    pub fn verify(&self, stream: &mut Stream) {
        for (buffer, model) in self.buffers.iter().zip(&self.models) {
            if let Some(buffer) = buffer {
                same_bytes("the last look", stream.read(buffer), model.read(&(0..model.len())));
            }
        }
    }

    pub fn bytes(&self) -> usize {
        self.models.iter().map(Model::len).sum()
    }
}

impl Step {
    /// A step over cells of these lengths; `None` where the dice find none.
    pub fn random(rng: &mut Rng, lens: &[usize], aligned: &[bool], weights: &[Weight]) -> Option<Step> {
        let cell = rng.below(lens.len());
        let range = rng.range(*lens.get(cell).filter(|len| **len > 0)?);
        let to = Part { cell, range };
        let len = to.range.len();
        match rng.below(20) {
            0..3 => {
                let handing = if rng.once_in(2) { Handing::Lent } else { Handing::Over };
                Some(Step::Write { data: fresh_bytes(len).into(), handing, to })
            }
            3 => {
                let pitch = len.div_ceil(1 + rng.below(64));
                let columns = rng.size(pitch);
                let layout = Layout::pitched(&[(len - columns) / pitch + 1, columns], pitch).unwrap();
                Some(Step::Rows { data: fresh_bytes(layout.len()).into(), layout, pitch, to })
            }
            4..6 => Some(Step::Fill { to, value: rng.byte() }),
            6..9 => Some(Step::Copy { from: other(rng, lens, &to)?, to }),
            9..11 => {
                let weight = rng.below(weights.len());
                let start = weights.get(weight)?.bytes.len().checked_sub(len)?;
                Some(Step::Weight { weight, start: rng.below(start + 1), to })
            }
            11..13 => Some(Step::Mask { on: to, by: rng.byte() }),
            13 => {
                // The same few again and again, and new ones.
                let len = 1 + rng.below(300);
                let table = if rng.once_in(2) { vec![len as u8; len] } else { fresh_bytes(len) };
                Some(Step::Tint { on: to, table })
            }
            14 => {
                let words = to.range.start.next_multiple_of(4)..to.range.end / 4 * 4;
                let fits = *aligned.get(cell)? && !words.is_empty();
                fits.then(|| Step::Words { on: Part { cell, range: words }, by: rng.next() as u32 })
            }
            15..17 => Some(Step::Shift { from: other(rng, lens, &to)?, to, by: rng.byte() }),
            17..19 => Some(Step::Mix { a: other(rng, lens, &to)?, b: other(rng, lens, &to)?, to }),
            _ if rng.once_in(4) => Some(Step::Break { from: other(rng, lens, &to)?, to }),
            _ => None,
        }
    }

    pub fn enqueue(
        &self,
        on: &mut impl Enqueue<Subject>,
        tools: &Tools,
        buffers: &mut [Option<Buffer<u8>>],
    ) -> dacapo::Result<()> {
        let kernels = &tools.kernels;
        let grid = Grid::covering(self.to().range.len());
        let (mut to, rest) = target(buffers, self.to());
        match self {
            Step::Write { data, handing: Handing::Lent, .. } => on.write(&mut to, &data[..]),
            Step::Write { data, .. } => on.write(&mut to, data.to_vec()),
            Step::Rows { layout, data, .. } => on.write_pitched(&mut to, layout, &data[..]),
            Step::Tint { table, .. } => on.launch(&kernels.tint, grid, (&mut to, table, Len, Len)),
            Step::Fill { value, .. } => on.fill(&mut to, *value),
            Step::Copy { from, .. } => on.copy(rest.source(from), &mut to),
            Step::Weight { weight, start, to: part } => {
                let from = tools.weights[*weight].buffer.slice(*start..start + part.range.len())?;
                on.copy(from, &mut to)
            }
            Step::Mask { by, .. } => on.launch(&kernels.mask, grid, (&mut to, u32::from(*by), Len)),
            Step::Words { by, .. } => on.launch(&kernels.words, grid, (&mut to.cast::<u32>()?, *by, Len)),
            Step::Shift { from, by, .. } => {
                on.launch(&kernels.shift, grid, (rest.source(from), &mut to, u32::from(*by), Len, Len))
            }
            Step::Mix { a, b, .. } => {
                on.launch(&kernels.mix, grid, (rest.source(a), rest.source(b), &mut to, Len, Len, Len))
            }
            Step::Break { from, .. } => kernels.breaks.enqueue(on, rest.source(from), &mut to),
        }
    }

    /// What it does where it runs.
    pub fn apply(&self, tools: &Tools, models: &mut [Model]) {
        let to = self.to();
        let sources: Option<Vec<Vec<u8>>> =
            self.sources().map(|from| Some(models[from.cell].read(&from.range)?.to_vec())).collect();
        let model = &mut models[to.cell];
        if let Step::Rows { data, .. } = self {
            let rows = self.written().zip(data.chunks_exact(self.columns()));
            return rows.for_each(|(row, data)| model.write(&row).copy_from_slice(data));
        }
        let (Some(sources), true) = (sources, !self.keeps() || model.read(&to.range).is_some()) else {
            return model.spoil(&to.range);
        };
        if matches!(self, Step::Break { .. }) {
            return model.spoil(&to.range);
        }
        let bytes = model.write(&to.range);
        match (self, sources.as_slice()) {
            (Step::Write { data, .. }, _) => bytes.copy_from_slice(data),
            (Step::Fill { value, .. }, _) => bytes.fill(*value),
            (Step::Weight { weight, start, .. }, _) => {
                bytes.copy_from_slice(&tools.weights[*weight].bytes[*start..start + to.range.len()]);
            }
            (Step::Mask { by, .. }, _) => xor(bytes, *by),
            (Step::Tint { table, .. }, _) => tint(bytes, table),
            (Step::Words { by, .. }, _) => {
                let mut words: Vec<u32> = bytemuck::pod_collect_to_vec(bytes);
                add(&mut words, *by);
                bytes.copy_from_slice(bytemuck::cast_slice(&words));
            }
            (Step::Copy { .. }, [from]) => bytes.copy_from_slice(from),
            (Step::Shift { by, .. }, [from]) => {
                bytes.copy_from_slice(from);
                xor(bytes, *by);
            }
            (Step::Mix { .. }, [a, b]) => mixed(a, b, bytes),
            _ => unreachable!("a step has the sources that it has"),
        }
    }

    /// What it does where it was refused.
    pub fn spoil(&self, models: &mut [Model]) {
        self.written().for_each(|range| models[self.to().cell].spoil(&range));
    }

    /// The bytes that it writes.
    fn written(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let Range { start, end } = self.to().range;
        let (rows, columns, pitch) = match self {
            Step::Rows { layout, pitch, .. } => (layout.len() / self.columns(), self.columns(), *pitch),
            _ => (1, end - start, end - start),
        };
        (0..rows).map(move |row| start + row * pitch..start + row * pitch + columns)
    }

    fn columns(&self) -> usize {
        match self {
            Step::Rows { layout, pitch, .. } => {
                // What is left of the span once every other row has taken a pitch.
                let rows = (layout.span() - 1) / pitch + 1;
                layout.span() - (rows - 1) * pitch
            }
            _ => self.to().range.len(),
        }
    }

    pub fn to(&self) -> &Part {
        match self {
            Step::Write { to, .. }
            | Step::Rows { to, .. }
            | Step::Fill { to, .. }
            | Step::Copy { to, .. }
            | Step::Weight { to, .. }
            | Step::Shift { to, .. }
            | Step::Mix { to, .. }
            | Step::Break { to, .. } => to,
            Step::Mask { on, .. } | Step::Words { on, .. } | Step::Tint { on, .. } => on,
        }
    }

    pub fn sources(&self) -> impl Iterator<Item = &Part> {
        let (first, second) = match self {
            Step::Copy { from, .. } | Step::Shift { from, .. } | Step::Break { from, .. } => {
                (Some(from), None)
            }
            Step::Mix { a, b, .. } => (Some(a), Some(b)),
            _ => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// Whether it needs the bytes that it writes.
    fn keeps(&self) -> bool {
        matches!(self, Step::Mask { .. } | Step::Words { .. } | Step::Tint { .. })
    }
}

/// A range of another cell, as long as `to`.
fn other(rng: &mut Rng, lens: &[usize], to: &Part) -> Option<Part> {
    let len = to.range.len();
    let fits = |cell: &usize| *cell != to.cell && lens[*cell] >= len;
    let cells: Vec<usize> = (0..lens.len()).filter(fits).collect();
    let cell = *rng.pick(&cells)?;
    let start = rng.below(lens[cell] - len + 1);
    Some(Part { cell, range: start..start + len })
}

/// The cells beside the one that is written.
struct Rest<'b>(&'b [Option<Buffer<u8>>], usize, &'b [Option<Buffer<u8>>]);

impl<'b> Rest<'b> {
    fn source(&self, part: &Part) -> Slice<'b, u8, Subject> {
        let Rest(before, written, after) = self;
        let buffer = if part.cell < *written { &before[part.cell] } else { &after[part.cell - written - 1] };
        buffer.as_ref().unwrap().slice(part.range.clone()).unwrap()
    }
}

fn target<'b>(buffers: &'b mut [Option<Buffer<u8>>], to: &Part) -> (SliceMut<'b, u8, Subject>, Rest<'b>) {
    let (before, from) = buffers.split_at_mut(to.cell);
    let (written, after) = from.split_first_mut().unwrap();
    let target = written.as_mut().unwrap().slice_mut(to.range.clone()).unwrap();
    (target, Rest(before, to.cell, after))
}
