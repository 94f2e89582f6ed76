//! What a recording does: births, then steps. The same list runs as a warm-up, as a recording, and on the model.

use std::ops::Range;

use super::support::{Buffer, Enqueue, Subject};

use super::model::Model;
use super::random::{Rng, fresh_bytes};
use super::steps::{Cells, Handing, Part, Step, Tools};

/// A buffer that is born in the recording.
struct Birth {
    len: usize,
    fresh: Fresh,
    stays: Stays,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fresh {
    Zeroed,
    Scratch,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stays {
    /// The user keeps it beyond the recording.
    Kept,
    /// It is dropped after its last step, so that it lies in the graph's arena.
    Dropped,
}

pub struct Plan {
    /// Cells that were there before.
    outside: usize,
    births: Vec<Birth>,
    steps: Vec<Step>,
}

impl Plan {
    pub fn random(rng: &mut Rng, cells: &Cells, tools: &Tools) -> Self {
        const LARGEST: usize = 256 << 10;
        let births = (0..rng.below(4)).map(|_| Birth {
            len: rng.size(LARGEST),
            fresh: if rng.once_in(2) { Fresh::Zeroed } else { Fresh::Scratch },
            stays: if rng.once_in(3) { Stays::Kept } else { Stays::Dropped },
        });
        let births: Vec<Birth> = births.collect();
        let outside = cells.len();
        let mut lens: Vec<usize> = cells.models.iter().map(Model::len).collect();
        let mut aligned = cells.aligned.clone();
        let mut steps = Vec::new();
        for birth in &births {
            if birth.fresh == Fresh::Scratch {
                let (cell, data) = (lens.len(), fresh_bytes(birth.len).into());
                let to = Part { cell, range: 0..birth.len };
                steps.push(Step::Write { to, data, handing: Handing::Lent });
            }
            lens.push(birth.len);
            aligned.push(true);
        }
        let more = 2 + rng.below(9);
        steps.extend((0..more).filter_map(|_| Step::random(rng, &lens, &aligned, &tools.weights)));
        Plan { outside, births, steps }
    }

    /// How many operations it has.
    pub fn len(&self) -> usize {
        self.births.len() + self.steps.len()
    }

    /// Enqueues the operations of `range`, the first of which comes after those that were; counts them in `done`.
    pub fn enqueue(
        &self,
        on: &mut impl Enqueue<Subject>,
        tools: &Tools,
        buffers: &mut Vec<Option<Buffer<u8>>>,
        range: Range<usize>,
        done: &mut usize,
    ) -> dacapo::Result<()> {
        for at in range {
            match self.births.get(at) {
                Some(Birth { len, fresh: Fresh::Zeroed, .. }) => buffers.push(Some(on.alloc(*len)?)),
                Some(Birth { len, .. }) => buffers.push(Some(on.alloc_scratch(*len)?)),
                None => {
                    let step = at - self.births.len();
                    self.steps[step].enqueue(on, tools, buffers)?;
                    self.let_go(step, buffers);
                }
            }
            *done += 1;
        }
        Ok(())
    }

    /// Drops the temporaries that no later step uses.
    fn let_go(&self, after: usize, buffers: &mut [Option<Buffer<u8>>]) {
        for (birth, cell) in self.births.iter().zip(self.outside..) {
            let uses = |step: &Step| step.to().cell == cell || step.sources().any(|part| part.cell == cell);
            if birth.stays == Stays::Dropped && !self.steps[after + 1..].iter().any(uses) {
                buffers[cell] = None;
            }
        }
    }

    /// Models for the buffers that are born.
    pub fn bear(&self, cells: &mut Cells) {
        for birth in &self.births {
            cells.models.push(Model::unwritten(birth.len));
            cells.aligned.push(true);
        }
    }

    /// Nothing has written them: only a replay does.
    pub fn unborn(&self, models: &mut [Model]) {
        for (birth, model) in self.births.iter().zip(&mut models[self.outside..]) {
            *model = Model::unwritten(birth.len);
        }
    }

    /// How many cells were there before.
    pub fn outside(&self) -> usize {
        self.outside
    }

    /// Forgets them: the buffers that are born are others.
    pub fn unbear(&self, cells: &mut Cells) {
        cells.buffers.truncate(self.outside);
        cells.models.truncate(self.outside);
        cells.aligned.truncate(self.outside);
    }

    /// What the first `done` operations do where they run; and the next one failed, if it is not past the end.
    pub fn apply(&self, tools: &Tools, models: &mut [Model], done: usize) {
        for (birth, model) in self.births.iter().zip(&mut models[self.outside..]).take(done) {
            if birth.fresh == Fresh::Zeroed {
                *model = Model::zeroed(birth.len);
            }
        }
        let Some(ran) = done.checked_sub(self.births.len()) else { return };
        self.steps[..ran].iter().for_each(|step| step.apply(tools, models));
        if let Some(step) = self.steps.get(ran) {
            step.spoil(models);
        }
    }

    /// What becomes of the bytes if the driver refuses a replay.
    pub fn spoil(&self, models: &mut [Model]) {
        self.steps.iter().for_each(|step| step.spoil(models));
        for (birth, model) in self.births.iter().zip(&mut models[self.outside..]) {
            if birth.fresh == Fresh::Zeroed {
                model.spoil(&(0..birth.len));
            }
        }
    }
}
