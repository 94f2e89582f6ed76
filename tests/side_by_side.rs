//! Host, wgpu and CUDA in one process: a step that is written once gives the same results on all of them, to the last bit.
//!
//! Devices that this machine lacks are left out, and say so; `DACAPO_REQUIRE` names those that must be there.

#[path = "conformance/suite/memory/kernels.rs"]
#[allow(dead_code, reason = "one of them is used")]
mod kernels;
mod subject {
    /// The zoo loads its kernels for one backend where it is not told for which.
    pub type Subject = dacapo::Host;
}
#[cfg(all(feature = "cuda", feature = "nvrtc"))]
mod support_cuda;
#[cfg(feature = "wgpu")]
mod support_wgpu;
#[path = "conformance/suite/zoo.rs"]
mod zoo;

use dacapo::Len;
use dacapo::prelude::*;

/// Elements: of a last block that is not full, and whose bytes fill no word.
const LEN: usize = 1543;

/// What a step leaves behind.
#[derive(Clone, Debug, PartialEq)]
struct Outcome {
    words: Vec<u32>,
    /// Of all steps so far.
    totals: Vec<u32>,
    bytes: Vec<u8>,
    /// The bits of sums and products of whole numbers, which every device computes exactly.
    floats: Vec<u32>,
}

/// A device with everything that a step needs, and the step's recording.
struct Player<B: Backend> {
    stream: Stream<NoCapture, B>,
    kernels: Kernels<B>,
    buffers: Buffers<B>,
    graph: Graph<B>,
}

struct Kernels<B: Backend> {
    noise_from: Kernel<(Out<u32>, In<u32>, Len<0>, Len<1>), B>,
    triple1: Kernel<zoo::Map<u32>, B>,
    accumulate: Kernel<zoo::Accumulate<u32>, B>,
    spread: Kernel<kernels::Show<u32>, B>,
    sum: Kernel<zoo::Sum<u32>, B>,
    add1: Kernel<zoo::Map<u8>, B>,
    axpy: Kernel<zoo::Axpy, B>,
}

struct Buffers<B: Backend> {
    seed: Buffer<u32, B>,
    words: Buffer<u32, B>,
    totals: Buffer<u32, B>,
    bytes: Buffer<u8, B>,
    weights: Buffer<f32, B>,
    floats: Buffer<f32, B>,
}

impl<B: Backend> Player<B> {
    fn new(device: &Device<B>) -> dacapo::Result<Self> {
        let mut stream = device.stream()?;
        let kernels = Kernels {
            noise_from: zoo::noise_from().load(device)?,
            triple1: zoo::triple1().load(device)?,
            accumulate: zoo::accumulate().load(device)?,
            spread: kernels::spread().load(device)?,
            sum: zoo::sum().load(device)?,
            add1: zoo::add1().load(device)?,
            axpy: zoo::axpy().load(device)?,
        };
        let mut buffers = Buffers {
            seed: stream.alloc(1)?,
            words: stream.alloc(LEN)?,
            totals: stream.alloc(LEN)?,
            bytes: stream.alloc(LEN)?,
            weights: stream.alloc(LEN)?,
            floats: stream.alloc(LEN)?,
        };
        let weights: Vec<f32> = (0..LEN).map(|i| (i % 17) as f32 - 8.0).collect();
        stream.write(&mut buffers.weights, &weights)?;
        let (graph, ()) = stream.record(|work| step(work, &kernels, &mut buffers))?;
        Ok(Player { stream, kernels, buffers, graph })
    }

    fn launch(&mut self, seed: u32) -> dacapo::Result<Outcome> {
        self.stream.write(&mut self.buffers.seed, &[seed])?;
        step(&mut self.stream, &self.kernels, &mut self.buffers)?;
        self.read()
    }

    fn replay(&mut self, seed: u32) -> dacapo::Result<Outcome> {
        self.stream.write(&mut self.buffers.seed, &[seed])?;
        self.graph.replay(&mut self.stream)?;
        self.read()
    }

    fn read(&mut self) -> dacapo::Result<Outcome> {
        let Player { stream: s, buffers, .. } = self;
        Ok(Outcome {
            words: s.read(&buffers.words)?,
            totals: s.read(&buffers.totals)?,
            bytes: s.read(&buffers.bytes)?,
            floats: s.read(&buffers.floats)?.into_iter().map(f32::to_bits).collect(),
        })
    }
}

/// A bit of everything: kernels with scalars, tables and parts of buffers, temporaries, copies and fills at odd places.
fn step<B: Backend>(s: &mut impl Enqueue<B>, k: &Kernels<B>, on: &mut Buffers<B>) -> dacapo::Result<()> {
    let grid = Grid::covering(LEN);
    let (mut noise, mut table) = (s.alloc_scratch(LEN)?, s.alloc_scratch(LEN)?);
    s.launch(&k.noise_from, grid, (&mut noise, &on.seed, Len, Len))?;
    s.launch(&k.spread, grid, (&[3, 141, 59], &mut table, Len, Len))?;
    let mut tripled = s.alloc_scratch(LEN)?;
    s.launch(&k.triple1, grid, (&noise, &mut tripled, Len, Len))?;
    s.launch(&k.sum, grid, (&tripled, &table, &mut on.words, Len, Len, Len))?;
    s.launch(&k.accumulate, grid, (&on.words, &mut on.totals, Len, Len))?;

    // Bytes that start and end within words.
    let (front, back) = on.bytes.split_at_mut(LEN / 2)?;
    s.launch(&k.add1, grid, (&back, front.into_range(1..)?, Len, Len))?;
    s.copy(on.words.as_slice().cast::<u8>()?.slice(5..306)?, on.bytes.slice_mut(3..304)?)?;
    s.fill(on.bytes.slice_mut(LEN - 5..LEN - 2)?, 0xA5)?;
    s.launch(&k.axpy, grid, (0.5f32, &on.weights, &mut on.floats, Len, Len))
}

/// Does a step of a seed both ways.
type Play = Box<dyn FnMut(u32) -> [Outcome; 2]>;

/// Every device of this machine.
fn players() -> Vec<(&'static str, Play)> {
    fn player<B: Backend>(device: &Device<B>) -> Play {
        let mut player = Player::new(device).unwrap();
        Box::new(move |seed| [player.launch(seed).unwrap(), player.replay(seed + 1).unwrap()])
    }
    #[allow(unused_mut, reason = "the host may be all that this build has")]
    let mut players = vec![("host", player(&Device::host().unwrap()))];
    #[cfg(feature = "wgpu")]
    players.extend(support_wgpu::device().map(|device| ("wgpu", player(&device))));
    #[cfg(all(feature = "cuda", feature = "nvrtc"))]
    players.extend(support_cuda::device().map(|device| ("cuda", player(&device))));
    players
}

/// What a backend rounds, orders or rides roughshod over differently shows where another one does the same.
#[test]
fn one_step_gives_the_same_results_on_every_backend_launched_and_replayed() {
    let mut players = players();
    let mut seen = Vec::new();
    for seed in [1, 20, 300, 4000] {
        let mut outcomes = players.iter_mut().map(|(name, play)| (*name, play(seed)));
        let (_, expected) = outcomes.next().expect("the host");
        assert!(!seen.contains(&expected[0].words), "every step is another one");
        for (name, outcome) in outcomes {
            assert_eq!(outcome, expected, "{name} and the host differ, seed {seed}");
        }
        seen.extend(expected.map(|outcome| outcome.words));
    }
}
