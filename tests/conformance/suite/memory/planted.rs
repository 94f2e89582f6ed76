//! The canary, and how it gets everywhere.

use super::kernels;
use super::support::*;
use super::zoo::{InPlace, Map};
use dacapo::{AllocationMode, Zeroing};

pub const CANARY: u8 = 0xA5;

/// Sizes of every class: within a granule and around its border, parts of a shared page, its largest tenants, and pages
/// to themselves.
pub const SIZES: [usize; 12] =
    [1, 3, 255, 256, 257, 4096, 100_003, (512 << 10) - 1, 512 << 10, (512 << 10) + 1, 1 << 20, (3 << 20) + 5];

pub const MODES: [AllocationMode; 3] =
    [AllocationMode::Pooled, AllocationMode::Persistent, AllocationMode::Dedicated];

/// A device whose memory was full of the canary, and is free now.
pub struct Ground {
    pub device: Device,
    /// One stream a slot.
    pub streams: [Stream; 2],
    /// Copies bytes, so that a kernel has read what is compared.
    pub copy: Kernel<Map<u8>>,
    /// Adds one to every byte, in place.
    pub inc: Kernel<InPlace<u8>>,
}

impl Ground {
    /// The ground, unless there is no device.
    pub fn new(zeroing: Zeroing) -> Option<Self> {
        let device = open(DeviceOptions::new().max_streams(2).zeroing(zeroing))?;
        let (copy, inc) = (kernels::copy().load(&device).unwrap(), kernels::inc().load(&device).unwrap());
        let streams = [device.stream().unwrap(), device.stream().unwrap()];
        let mut ground = Ground { device, streams, copy, inc };
        ground.plant();
        Some(ground)
    }

    /// Fills memory of every kind with the canary and lets go of all of it.
    pub fn plant(&mut self) {
        let Ground { streams, copy, .. } = self;
        for s in streams.iter_mut() {
            let mut held: Vec<Buffer<u8>> = Vec::new();
            for mode in MODES {
                // Twice, so that neither the first nor the last tenant of a page is special.
                for size in SIZES.into_iter().chain(SIZES) {
                    held.push(s.allocating(mode, |w| w.alloc_scratch(size)).unwrap());
                }
            }
            // What is left of the shared pages.
            held.extend((0..64).map(|_| s.alloc_scratch(60 << 10).unwrap()));
            for buffer in &mut held {
                let canary = vec![CANARY; buffer.len()];
                s.write(&mut *buffer, &canary).unwrap();
                assert!(s.read(&*buffer).unwrap() == canary);
            }
            drop(held);
            plant_graph(s, copy);
        }
    }

    /// What a kernel reads in `buffer`.
    pub fn seen(&mut self, on: usize, buffer: &Buffer<u8>) -> Vec<u8> {
        let s = &mut self.streams[on];
        let mut seen = s.alloc_scratch::<u8>(buffer.len()).unwrap();
        s.launch(&self.copy, Grid::covering(buffer.len()), (buffer, &mut seen, Len, Len)).unwrap();
        s.read(&seen).unwrap()
    }
}

/// An arena and survivors full of the canary, of a graph that is gone afterwards.
fn plant_graph(s: &mut Stream, copy: &Kernel<Map<u8>>) {
    let (mut graph, survivors) = s.record(|w| plant_in_window(w, copy)).unwrap();
    assert!(graph.arena_bytes() >= 1 << 20);
    graph.replay(s).unwrap();
    for survivor in &survivors {
        assert!(s.read(survivor).unwrap() == vec![CANARY; survivor.len()]);
    }
}

/// Records temporaries and survivors that are all set to the canary.
pub fn plant_in_window(
    w: &mut impl Enqueue<Subject>,
    copy: &Kernel<Map<u8>>,
) -> dacapo::Result<Vec<Buffer<u8>>> {
    let mut survivors = Vec::new();
    for size in SIZES {
        let (mut tmp, mut out) = (w.alloc_scratch::<u8>(size)?, w.alloc_scratch::<u8>(size)?);
        w.fill(&mut tmp, CANARY)?;
        w.launch(copy, Grid::covering(size), (&tmp, &mut out, Len, Len))?;
        survivors.push(out);
    }
    Ok(survivors)
}

/// Whether nothing is there but zeros.
pub fn clean(bytes: &[u8]) -> bool {
    bytes == vec![0; bytes.len()]
}
