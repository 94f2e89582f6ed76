//! Small tables that launches bring along, where uploads fail, and what else only the host can show.

#[path = "tables/arguments.rs"]
mod arguments;
#[path = "tables/cache.rs"]
mod cache;
#[path = "tables/failures.rs"]
mod failures;
mod support;

use dacapo::prelude::*;
use dacapo::{Arg, Call, DeviceOptions};

/// Elements of an output: more than one table repeats in it.
pub const N: usize = 8;

/// A device with `slots` slots, each with a worker.
pub fn device(slots: usize) -> Device {
    Device::open(DeviceOptions::new().max_streams(slots)).unwrap()
}

/// Repeats its table over its output; an empty table leaves zeros.
pub type Spread = Kernel<(Uniform<u32>, Out<u32>)>;

pub fn spread(device: &Device) -> Spread {
    let program = Program::<(Uniform<u32>, Out<u32>)>::new("spread");
    let spread = program.host(|(table, out), _| {
        out.fill(0);
        out.iter_mut().zip(table.iter().cycle()).for_each(|(out, element)| *out = *element);
    });
    spread.load(device).unwrap()
}

/// What [`spread`] makes of a table.
pub fn repeated(table: &[u32]) -> Vec<u32> {
    if table.is_empty() { vec![0; N] } else { table.iter().copied().cycle().take(N).collect() }
}

pub fn launch(stream: &mut impl Enqueue<Host>, k: &Spread, table: &[u32], out: impl Arg<Out<u32>, Host>) {
    try_launch(stream, k, table, out).unwrap();
}

/// [`launch`], for a step that is recorded.
pub fn try_launch(
    stream: &mut impl Enqueue<Host>,
    k: &Spread,
    table: &[u32],
    out: impl Arg<Out<u32>, Host>,
) -> dacapo::Result<()> {
    stream.launch(k, Grid::covering(N), (table, out))
}

/// The output of one launch with `table`.
pub fn spread_of(stream: &mut Stream, k: &Spread, table: &[u32]) -> Vec<u32> {
    let mut out = stream.alloc_scratch(N).unwrap();
    launch(stream, k, table, &mut out);
    stream.read(&out).unwrap()
}

/// A table that no other number has.
pub fn table(n: u32) -> [u32; 3] {
    [n, n ^ 0x5555_5555, 7]
}

/// How often host bytes were sent to the device.
pub fn uploads(device: &Device) -> u64 {
    device.faults().count(Call::Write)
}
