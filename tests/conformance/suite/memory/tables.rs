//! Small tables that launches bring along: what a kernel sees of them, how often they are uploaded, what is kept and what
//! is let go, and what of it a window, a graph and a failure change.

mod arguments;
mod cache;
mod failures;
mod pins;
mod random;
mod recording;
mod threads;

use dacapo::{Arg, Call};

use super::kernels::{self, Show};
use super::support;
use super::support::*;

/// Elements of an output: more than one table repeats in it.
const N: usize = 8;

/// Repeats its table over its output; an empty table leaves zeros.
type Spread = Kernel<Show<u32>>;

fn spread(device: &Device) -> Spread {
    kernels::spread().load(device).unwrap()
}

/// What [`spread`] makes of a table.
fn repeated(table: &[u32]) -> Vec<u32> {
    if table.is_empty() { vec![0; N] } else { table.iter().copied().cycle().take(N).collect() }
}

fn launch(stream: &mut impl Enqueue<Subject>, k: &Spread, table: &[u32], out: impl Arg<Out<u32>, Subject>) {
    try_launch(stream, k, table, out).unwrap();
}

/// [`launch`], for a step that is recorded.
fn try_launch(
    stream: &mut impl Enqueue<Subject>,
    k: &Spread,
    table: &[u32],
    out: impl Arg<Out<u32>, Subject>,
) -> dacapo::Result<()> {
    stream.launch(k, Grid::covering(N), (table, out, Len, Len))
}

/// The output of one launch with `table`.
fn spread_of(stream: &mut Stream, k: &Spread, table: &[u32]) -> Vec<u32> {
    let mut out = stream.alloc_scratch(N).unwrap();
    launch(stream, k, table, &mut out);
    stream.read(&out).unwrap()
}

/// A table that no other number has.
fn table(n: u32) -> [u32; 3] {
    [n, n ^ 0x5555_5555, 7]
}

/// How often host bytes were sent to the device, where the backend counts that.
fn uploads(device: &Device) -> Option<u64> {
    subject::calls_of(device, Call::Write)
}

/// What [`uploads`] says after so many more.
fn plus(before: Option<u64>, more: u64) -> Option<u64> {
    before.map(|before| before + more)
}
