//! The kernels as the device runs them.

use std::cell::Cell;
use std::panic::resume_unwind;

use dacapo::Extent;
use dacapo::host::Chunk;
use dacapo::prelude::*;

pub struct Kernels {
    pub add: Kernel<(In<u8>, Out<u8>, u8)>,
    pub mix: Kernel<(In<u8>, In<u8>, Out<u8>)>,
    pub bump: Kernel<(InOut<u8>, u8)>,
    pub pair: Kernel<(In<u8>, InOut<u8>, Out<u8>)>,
    pub sparse: Kernel<(InOut<u8>, u8)>,
    pub rows: Kernel<(In<u8>, Out<u8>)>,
    pub panics: Kernel<(In<u8>, Out<u8>, u32)>,
}

/// Whether kernels give way to other threads in the middle of their work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    Straight,
    Yielding,
}

impl Pace {
    /// Gives way now and then, differently each time.
    fn breathe(self) {
        thread_local!(static STATE: Cell<u32> = const { Cell::new(0x9E37_79B9) });
        if self == Pace::Straight {
            return;
        }
        let random = STATE.with(|state| {
            let mut x = state.get();
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            state.set(x);
            x
        });
        (0..random % 4).for_each(|_| std::thread::yield_now());
    }
}

impl Kernels {
    pub fn load(device: &Device, pace: Pace) -> dacapo::Result<Self> {
        let add = move |(x, y, a): (&[u8], &mut [u8], u8), _: Extent| {
            pace.breathe();
            y.iter_mut().enumerate().for_each(|(i, y)| *y = at(x, i).wrapping_add(a));
        };
        let mix = move |(x, y, z): (&[u8], &[u8], &mut [u8]), _: Extent| {
            pace.breathe();
            let mixed = |i| at(x, i).wrapping_mul(3).wrapping_add(at(y, i));
            z.iter_mut().enumerate().for_each(|(i, z)| *z = mixed(i));
        };
        let bump = move |(x, a): (&mut [u8], u8), _: Extent| {
            for x in x {
                let bumped = x.wrapping_mul(5);
                pace.breathe();
                *x = bumped.wrapping_add(a);
            }
        };
        let pair = move |(x, y, z): (&[u8], &mut [u8], &mut [u8]), _: Extent| {
            for (i, z) in z.iter_mut().enumerate() {
                *z = at(x, i) ^ at(y, i);
            }
            pace.breathe();
            y.iter_mut().enumerate().for_each(|(i, y)| *y = y.wrapping_add(at(x, i).wrapping_mul(2)));
        };
        let sparse = move |(x, a): (&mut [u8], u8), _: Extent| {
            pace.breathe();
            x.iter_mut().step_by(2).for_each(|x| *x = x.wrapping_mul(7).wrapping_add(a));
        };
        let rows = move |(x, y): (&[u8], &mut [u8]), chunk: Chunk| {
            pace.breathe();
            let first = chunk.rows().start * (y.len() / chunk.rows().len());
            for (i, y) in (first..).zip(y) {
                *y = at(x, i).wrapping_add((i as u8).wrapping_mul(17));
            }
        };
        let panics = |(x, y, number): (&[u8], &mut [u8], u32), _: Extent| {
            y.iter_mut().take(2).for_each(|y| *y = at(x, 0));
            // Not `panic!`, whose hook would print a report for each of thousands.
            resume_unwind(Box::new(format!("no {number}")));
        };
        Ok(Kernels {
            add: Program::new("add").host(add).load(device)?,
            mix: Program::new("mix").host(mix).load(device)?,
            bump: Program::new("bump").host(bump).load(device)?,
            pair: Program::new("pair").host(pair).load(device)?,
            sparse: Program::new("sparse").host(sparse).load(device)?,
            rows: Program::new("rows").host_chunks(rows).load(device)?,
            panics: Program::new("panics").host(panics).load(device)?,
        })
    }
}

/// An element of a buffer that repeats, or that has none.
fn at(values: &[u8], i: usize) -> u8 {
    if values.is_empty() { 9 } else { values[i % values.len()] }
}
