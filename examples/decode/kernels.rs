//! The kernels: one definition each, with a source for the host beside those for CUDA and for wgpu.

#![expect(clippy::indexing_slicing, reason = "a kernel that is given too little memory fails as a whole")]

use bytemuck::{Pod, Zeroable};
use dacapo::Signature;
use dacapo::prelude::*;

use crate::arithmetic::{self, LANES, PARTS};

/// Where a sequence has got to: what a step reads to know which one it is, and the last kernel of a step moves on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Place {
    /// The position of the token that comes next; the cache holds as many.
    pub position: u32,
    /// How many tokens were given; from there on they are chosen.
    pub prompt: u32,
}

impl Place {
    /// How much of a cache of `context` positions is in use, once this one's are in.
    fn used(self, context: usize) -> usize {
        context.min(self.position as usize + 1)
    }
}

// Every buffer comes with its length, so that no kernel needs to trust its caller.
type Embed = (In<u32>, Len<0>, In<Place>, Len<2>, In<f32>, Len<4>, In<f32>, Len<6>, Out<f32>, Len<8>);
type Normalize = (In<f32>, Len<0>, In<f32>, Len<2>, Out<f32>, Len<4>);
type Multiply = (In<f32>, Len<0>, In<f32>, Len<2>, Out<f32>, Len<4>);
type Accumulate = (In<f32>, Len<0>, In<f32>, Len<2>, InOut<f32>, Len<4>);
type Remember = (In<f32>, Len<0>, In<f32>, Len<2>, In<Place>, Len<4>, InOut<f32>, Len<6>, InOut<f32>, Len<8>);
type Score = (In<f32>, Len<0>, In<f32>, Len<2>, In<Place>, Len<4>, Out<f32>, Len<6>, u32);
type Soften = (In<Place>, Len<0>, InOut<f32>, Len<2>, u32);
type Mix = (In<f32>, Len<0>, In<f32>, Len<2>, In<Place>, Len<4>, Out<f32>, Len<6>, u32);
type Swish = (In<f32>, Len<0>, InOut<f32>, Len<2>);
type Choose = (In<f32>, Len<0>, InOut<u32>, Len<2>, InOut<Place>, Len<4>);

/// Every kernel of a step, loaded for one device.
#[derive(Debug)]
pub struct Kernels<B: Backend = Host> {
    /// What the token at this position means, there.
    pub embed: Kernel<Embed, B>,
    /// [`arithmetic::normalize`].
    pub normalize: Kernel<Normalize, B>,
    /// A vector times a matrix.
    pub multiply: Kernel<Multiply, B>,
    /// A vector times a matrix, on top of what is there.
    pub accumulate: Kernel<Accumulate, B>,
    /// Puts this position's key and value into the cache.
    pub remember: Kernel<Remember, B>,
    /// How well the query meets each key of the cache, head by head.
    pub score: Kernel<Score, B>,
    /// [`arithmetic::soften`], head by head.
    pub soften: Kernel<Soften, B>,
    /// The values of the cache by their weights, head by head.
    pub mix: Kernel<Mix, B>,
    /// [`arithmetic::swish`].
    pub swish: Kernel<Swish, B>,
    /// Writes the likeliest token behind the others, unless one is given there, and moves on; at the end of the context
    /// it does neither.
    pub choose: Kernel<Choose, B>,
}

impl<B: Backend> Kernels<B> {
    /// Loads all of them.
    ///
    /// # Errors
    /// The device's backend has no source for them, or does not accept it.
    pub fn load(device: &Device<B>) -> dacapo::Result<Self> {
        Ok(Self {
            embed: embed().load(device)?,
            normalize: normalize().load(device)?,
            multiply: multiply().load(device)?,
            accumulate: accumulate().load(device)?,
            remember: remember().load(device)?,
            score: score().load(device)?,
            soften: soften().load(device)?,
            mix: mix().load(device)?,
            swish: swish().load(device)?,
            choose: choose().load(device)?,
        })
    }
}

/// A grid with a block for every 32 of `outputs`, for the kernels that add up products.
pub fn columns(outputs: usize) -> Grid {
    Grid::blocks(outputs.div_ceil(LANES))
}

/// A program whose threads have an element each.
fn elements<S: Signature>(name: &str) -> Program<S> {
    for_devices(Program::new(name), name)
}

/// A program whose blocks are one warp.
fn warps<S: Signature>(name: &str) -> Program<S> {
    for_devices(Program::new(name).block(LANES as u32, 1, 1), name)
}

/// A program whose blocks add up products: a warp for each part.
fn products<S: Signature>(name: &str) -> Program<S> {
    for_devices(Program::new(name).block(LANES as u32, PARTS as u32, 1), name)
}

/// Adds the sources for what this build has, beside the host.
fn for_devices<S: Signature>(program: Program<S>, entry: &str) -> Program<S> {
    with_wgsl(with_cuda(program, entry), entry)
}

#[cfg(feature = "nvrtc")]
fn with_cuda<S: Signature>(program: Program<S>, entry: &str) -> Program<S> {
    // SAFETY: every function of the source has the parameters of its signature here, and is written for the blocks that its
    // program declares. It compares every index with the lengths that come with its buffers, whatever its grid and scalars
    // are, and writes only what is `Out` or `InOut`, each element by one thread and none that another thread reads; what
    // threads share is shuffled or lies behind a barrier that all of a block reach. Its loops run over lengths.
    unsafe { program.cuda(include_str!("kernels.cu"), entry) }
}

#[cfg(not(feature = "nvrtc"))]
fn with_cuda<S: Signature>(program: Program<S>, _entry: &str) -> Program<S> {
    program
}

#[cfg(feature = "wgpu")]
fn with_wgsl<S: Signature>(program: Program<S>, entry: &str) -> Program<S> {
    program.wgsl(concat!(include_str!("../rounding.wgsl"), include_str!("kernels.wgsl")), entry)
}

#[cfg(not(feature = "wgpu"))]
fn with_wgsl<S: Signature>(program: Program<S>, _entry: &str) -> Program<S> {
    program
}

fn embed() -> Program<Embed> {
    elements::<Embed>("embed").host(|(tokens, _, place, _, embedding, _, positions, _, x, n), _| {
        let position = place[0].position as usize;
        let token = tokens[position] as usize;
        let (token, position) = (&embedding[token * n..][..n], &positions[position * n..][..n]);
        x.iter_mut().zip(token.iter().zip(position)).for_each(|(x, (token, position))| *x = token + position);
    })
}

fn normalize() -> Program<Normalize> {
    warps::<Normalize>("normalize").host(|(x, _, gain, _, y, _), _| arithmetic::normalize(x, gain, y))
}

fn multiply() -> Program<Multiply> {
    products::<Multiply>("multiply")
        .host(|(x, _, matrix, _, y, n), _| arithmetic::product(x, matrix, n, 0, y))
}

fn accumulate() -> Program<Accumulate> {
    products::<Accumulate>("accumulate").host(|(x, _, matrix, _, y, n), _| {
        let mut product = vec![0.0; n];
        arithmetic::product(x, matrix, n, 0, &mut product);
        y.iter_mut().zip(product).for_each(|(y, product)| *y += product);
    })
}

fn remember() -> Program<Remember> {
    elements::<Remember>("remember").host(|(key, n, value, _, place, _, keys, len, values, _), _| {
        let (context, position) = (len / n, place[0].position as usize);
        // Keys lie by dimension, values by position: as threads of a GPU read them side by side.
        keys.chunks_exact_mut(context).zip(key).for_each(|(keys, key)| keys[position] = *key);
        values[position * n..][..n].copy_from_slice(value);
    })
}

fn score() -> Program<Score> {
    elements::<Score>("score").host(|(query, n, keys, _, place, _, scores, len, heads), _| {
        let (context, size) = (len / heads as usize, n / heads as usize);
        let used = place[0].used(context);
        scores.fill(0.0);
        for (head, scores) in scores.chunks_exact_mut(context).enumerate() {
            let scores = &mut scores[..used];
            for i in head * size..(head + 1) * size {
                let keys = &keys[i * context..][..used];
                scores.iter_mut().zip(keys).for_each(|(score, key)| *score += query[i] * key);
            }
            scores.iter_mut().for_each(|score| *score /= (size as f32).sqrt());
        }
    })
}

fn soften() -> Program<Soften> {
    warps::<Soften>("soften").host(|(place, _, scores, len, heads), _| {
        let context = len / heads as usize;
        let used = place[0].used(context);
        scores.chunks_exact_mut(context).for_each(|scores| arithmetic::soften(&mut scores[..used]));
    })
}

fn mix() -> Program<Mix> {
    products::<Mix>("mix").host(|(weights, len, values, _, place, _, y, n, heads), _| {
        let (context, size) = (len / heads as usize, n / heads as usize);
        let used = place[0].used(context);
        for (head, y) in y.chunks_exact_mut(size).enumerate() {
            let weights = &weights[head * context..][..used];
            arithmetic::product(weights, values, n, head * size, y);
        }
    })
}

fn swish() -> Program<Swish> {
    elements::<Swish>("swish").host(|(gate, _, up, _), _| {
        up.iter_mut().zip(gate).for_each(|(up, gate)| *up = arithmetic::swish(*gate, *up));
    })
}

fn choose() -> Program<Choose> {
    warps::<Choose>("choose").host(|(logits, _, tokens, _, place, _), _| {
        let place = &mut place[0];
        let next = place.position + 1;
        let Some(token) = tokens.get_mut(next as usize) else { return };
        if next >= place.prompt {
            *token = arithmetic::largest(logits);
        }
        place.position = next;
    })
}
