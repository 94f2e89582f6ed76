//! The kernels as the device runs them.

use std::cell::Cell;
use std::panic::resume_unwind;

use dacapo::Extent;
use dacapo::host::Chunk;

use super::subject;
use super::support::{Device, In, InOut, Kernel, Len, Out, Program};
use super::zoo::once;

type Add = (In<u8>, Out<u8>, u32, Len<0>, Len<1>);
type Mix = (In<u8>, In<u8>, Out<u8>, Len<0>, Len<1>, Len<2>);
type InPlace = (InOut<u8>, u32, Len<0>);
type Pair = (In<u8>, InOut<u8>, Out<u8>, Len<0>, Len<1>, Len<2>);
type Rows = (In<u8>, Out<u8>, Len<0>, Len<1>);
type Panics = (In<u8>, Out<u8>, u32);

#[derive(Clone)]
pub struct Kernels {
    pub add: Kernel<Add>,
    pub mix: Kernel<Mix>,
    pub bump: Kernel<InPlace>,
    pub pair: Kernel<Pair>,
    pub sparse: Kernel<InPlace>,
    pub rows: Kernel<Rows>,
    /// Where kernels can panic.
    pub panics: Option<Kernel<Panics>>,
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
        let add = move |(x, y, a, ..): (&[u8], &mut [u8], u32, usize, usize), _: Extent| {
            pace.breathe();
            y.iter_mut().enumerate().for_each(|(i, y)| *y = at(x, i).wrapping_add(a as u8));
        };
        let mix = move |(x, y, z, ..): (&[u8], &[u8], &mut [u8], usize, usize, usize), _: Extent| {
            pace.breathe();
            let mixed = |i| at(x, i).wrapping_mul(3).wrapping_add(at(y, i));
            z.iter_mut().enumerate().for_each(|(i, z)| *z = mixed(i));
        };
        let bump = move |(x, a, _): (&mut [u8], u32, usize), _: Extent| {
            for x in x {
                let bumped = x.wrapping_mul(5);
                pace.breathe();
                *x = bumped.wrapping_add(a as u8);
            }
        };
        let pair = move |(x, y, z, ..): (&[u8], &mut [u8], &mut [u8], usize, usize, usize), _: Extent| {
            for (i, z) in z.iter_mut().enumerate() {
                *z = at(x, i) ^ at(y, i);
            }
            pace.breathe();
            y.iter_mut().enumerate().for_each(|(i, y)| *y = y.wrapping_add(at(x, i).wrapping_mul(2)));
        };
        let sparse = move |(x, a, _): (&mut [u8], u32, usize), _: Extent| {
            pace.breathe();
            x.iter_mut().step_by(2).for_each(|x| *x = x.wrapping_mul(7).wrapping_add(a as u8));
        };
        let rows = move |(x, y, ..): (&[u8], &mut [u8], usize, usize), chunk: Chunk| {
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
        let add = once(
            Program::<Add>::new("add").host(add),
            "const u8* x, u8* y, unsigned a, u64 nx, u64 ny",
            "for (u64 i = 0; i < ny; i++) { y[i] = at(x, nx, i) + a; }",
        );
        let mix = once(
            Program::<Mix>::new("mix").host(mix),
            "const u8* x, const u8* y, u8* z, u64 nx, u64 ny, u64 nz",
            "for (u64 i = 0; i < nz; i++) { z[i] = at(x, nx, i) * 3 + at(y, ny, i); }",
        );
        let bump = once(
            Program::<InPlace>::new("bump").host(bump),
            "u8* x, unsigned a, u64 n",
            "for (u64 i = 0; i < n; i++) { x[i] = x[i] * 5 + a; }",
        );
        let pair = once(
            Program::<Pair>::new("pair").host(pair),
            "const u8* x, u8* y, u8* z, u64 nx, u64 ny, u64 nz",
            "for (u64 i = 0; i < nz; i++) { z[i] = at(x, nx, i) ^ at(y, ny, i); }
            for (u64 i = 0; i < ny; i++) { y[i] = y[i] + at(x, nx, i) * 2; }",
        );
        let sparse = once(
            Program::<InPlace>::new("sparse").host(sparse),
            "u8* x, unsigned a, u64 n",
            "for (u64 i = 0; i < n; i += 2) { x[i] = x[i] * 7 + a; }",
        );
        let rows = once(
            Program::<Rows>::new("rows").host_chunks(rows),
            "const u8* x, u8* y, u64 nx, u64 ny",
            "for (u64 i = 0; i < ny; i++) { y[i] = at(x, nx, i) + i * 17; }",
        );
        let panics = subject::KERNELS_PANIC.then(|| Program::new("panics").host(panics).load(device));
        Ok(Kernels {
            add: add.load(device)?,
            mix: mix.load(device)?,
            bump: bump.load(device)?,
            pair: pair.load(device)?,
            sparse: sparse.load(device)?,
            rows: rows.load(device)?,
            panics: panics.transpose()?,
        })
    }
}

/// An element of a buffer that repeats, or that has none.
fn at(values: &[u8], i: usize) -> u8 {
    if values.is_empty() { 9 } else { values[i % values.len()] }
}
