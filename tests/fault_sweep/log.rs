//! What a program that meets a fault was told, and the buffers whose contents it keeps book of.

use dacapo::prelude::*;
use dacapo::{Error, Result};

use super::support_objects::N;

/// What a program does after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It goes on with what it has, as a server does.
    GoOn,
    /// It returns, and drops everything where it stands, as `?` does.
    Stop,
}

/// The program ends here.
pub struct End;

/// Everything that the library said.
pub struct Log {
    manner: Manner,
    pub errors: Vec<(&'static str, Error)>,
    /// How many reads gave bytes, each of which was right.
    pub reads: usize,
}

impl Log {
    pub fn new(manner: Manner) -> Self {
        Log { manner, errors: Vec::new(), reads: 0 }
    }

    /// What a call came to; `None` if it failed and the program goes on without it.
    pub fn met<T>(&mut self, step: &'static str, outcome: Result<T>) -> Result<Option<T>, End> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                self.errors.push((step, error));
                if self.manner == Manner::GoOn { Ok(None) } else { Err(End) }
            }
        }
    }

    /// What no program can do without.
    pub fn need<T>(&mut self, step: &'static str, outcome: Result<T>) -> Result<T, End> {
        self.met(step, outcome)?.ok_or(End)
    }

    /// A zeroed buffer.
    pub fn cell(&mut self, step: &'static str, buffer: Result<Buffer<u32>>) -> Result<Cell, End> {
        self.need(step, buffer).map(|buffer| Cell { buffer, holds: Some(0) })
    }

    /// A read that may fail, but gives nothing that was not computed.
    pub fn read(&mut self, s: &mut Stream, cell: &Cell) -> Result<(), End> {
        let read = s.read(&cell.buffer);
        self.landed("read", read, cell.holds)
    }

    pub fn landed(
        &mut self,
        step: &'static str,
        read: Result<Vec<u32>>,
        holds: Option<u32>,
    ) -> Result<(), End> {
        if let Some(found) = self.met(step, read)? {
            let Some(value) = holds else { panic!("{step}: nothing computed what it gave: {found:?}") };
            assert_eq!(found, [value; N], "{step}");
            self.reads += 1;
        }
        Ok(())
    }
}

/// A buffer of [`N`] elements, and the value of all of them; `None` once a call that was to write it failed, so that
/// reading it must fail too.
pub struct Cell {
    pub buffer: Buffer<u32>,
    pub holds: Option<u32>,
}

impl Cell {
    pub fn write(&mut self, log: &mut Log, s: &mut Stream, value: u32) -> Result<(), End> {
        let written = s.write(&mut self.buffer, &[value; N]);
        self.holds = None;
        self.holds = log.met("write", written)?.map(|()| value);
        Ok(())
    }

    pub fn fill(&mut self, log: &mut Log, s: &mut Stream, value: u32) -> Result<(), End> {
        let filled = s.fill(&mut self.buffer, value);
        self.holds = log.met("fill", filled)?.map(|()| value);
        Ok(())
    }

    pub fn copy(&mut self, log: &mut Log, s: &mut Stream, from: &Cell) -> Result<(), End> {
        let copied = s.copy(&from.buffer, &mut self.buffer);
        self.holds = log.met("copy", copied)?.and(from.holds);
        Ok(())
    }

    /// What a launch that reads `inputs` leaves here.
    pub fn launched(
        &mut self,
        log: &mut Log,
        outcome: Result<()>,
        inputs: &[&Cell],
        f: impl FnOnce(&[u32]) -> u32,
    ) -> Result<(), End> {
        let inputs: Option<Vec<u32>> = inputs.iter().map(|input| input.holds).collect();
        self.holds = log.met("launch", outcome)?.and(inputs).map(|inputs| f(&inputs));
        Ok(())
    }
}

/// A buffer of which a page has room for a few.
pub struct Part {
    pub buffer: Buffer<u8>,
    /// What all of its bytes are; `None` once a call that was to write them failed.
    holds: Option<u8>,
}

impl Part {
    /// Bytes of one.
    pub const BYTES: usize = 400 << 10;
    /// More than a page has room for.
    const COUNT: usize = 7;

    /// Two that are left of many: the first and the last, on two pages that they hardly use.
    pub fn spread(log: &mut Log, s: &mut Stream) -> Result<Vec<Part>, End> {
        let mut parts = Vec::new();
        for _ in 0..Self::COUNT {
            let part = log.met("alloc", s.alloc_scratch::<u8>(Self::BYTES))?;
            parts.extend(part.map(|buffer| Part { buffer, holds: None }));
        }
        let last = parts.len().saturating_sub(1);
        let mut left: Vec<Part> = Vec::new();
        left.extend(
            parts.into_iter().enumerate().filter(|(at, _)| *at == 0 || *at == last).map(|(_, part)| part),
        );
        for (value, part) in (17..).zip(&mut left) {
            part.fill(log, s, value)?;
        }
        Ok(left)
    }

    pub fn fill(&mut self, log: &mut Log, s: &mut Stream, value: u8) -> Result<(), End> {
        let filled = s.fill(&mut self.buffer, value);
        self.holds = log.met("fill", filled)?.map(|()| value);
        Ok(())
    }

    pub fn check(&mut self, log: &mut Log, s: &mut Stream) -> Result<(), End> {
        if let Some(found) = log.met("read", s.read(&self.buffer))? {
            let Some(value) = self.holds else { panic!("nothing computed what was read") };
            assert!(found == vec![value; Self::BYTES], "what was moved is what it was");
            log.reads += 1;
        }
        Ok(())
    }
}
