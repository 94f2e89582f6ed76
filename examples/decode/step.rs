//! One token's step, written once: it runs eagerly and as a recording, on every backend.

use dacapo::Len;
use dacapo::prelude::*;

use crate::kernels::{Kernels, Place, columns};
use crate::model::{Layer, Model, Shape};

/// A sequence of tokens on a device, with all that the model remembers of it.
#[derive(Debug)]
pub struct Sequence<B: Backend = Host> {
    /// What was given, then what was chosen, and room for the rest of the context.
    pub tokens: Buffer<u32, B>,
    /// One element.
    pub place: Buffer<Place, B>,
    /// For each layer.
    pub caches: Vec<Cache<B>>,
    /// How likely each token was to be the last one.
    pub logits: Buffer<f32, B>,
}

/// Keys and values of every position so far, of one layer.
#[derive(Debug)]
pub struct Cache<B: Backend = Host> {
    keys: Buffer<f32, B>,
    values: Buffer<f32, B>,
}

impl<B: Backend> Sequence<B> {
    /// Room for a sequence of a model of `shape`.
    ///
    /// # Errors
    /// The device has not so much memory.
    pub fn alloc(s: &mut impl Enqueue<B>, shape: Shape) -> dacapo::Result<Self> {
        let len = shape.context * shape.width;
        let mut cache = |_| Ok(Cache { keys: s.alloc(len)?, values: s.alloc(len)? });
        let caches = (0..shape.layers).map(&mut cache).collect::<dacapo::Result<_>>()?;
        let (tokens, place) = (s.alloc(shape.context)?, s.alloc(1)?);
        Ok(Sequence { tokens, place, caches, logits: s.alloc(shape.vocabulary)? })
    }

    /// Starts anew with `prompt`. What the caches hold is behind the first position, where nobody looks.
    ///
    /// # Errors
    /// `prompt` is longer than the context, or what the device says.
    pub fn start(&mut self, s: &mut impl Enqueue<B>, prompt: &[u32]) -> dacapo::Result<()> {
        s.write(self.tokens.slice_mut(..prompt.len())?, prompt)?;
        s.write(&mut self.place, &[Place { position: 0, prompt: prompt.len() as u32 }])
    }
}

/// Takes the token at the sequence's place through the model, writes the next one, and moves on.
///
/// Nothing here depends on which step it is: token, position and length of the cache are read from the sequence by the
/// kernels, so that one recording serves every step of every sequence. What lies between is allocated here and let go here,
/// which in a recording leaves its place to the planner.
///
/// # Errors
/// The device has not so much memory, or what the driver says.
pub fn step<B: Backend>(
    s: &mut impl Enqueue<B>,
    k: &Kernels<B>,
    model: &Model<B>,
    sequence: &mut Sequence<B>,
) -> dacapo::Result<()> {
    let Shape { width, vocabulary, .. } = model.shape;
    let Sequence { tokens, place, caches, logits } = sequence;
    let mut x = s.alloc_scratch(width)?;
    let (embedding, positions) = (&model.embedding, &model.positions);
    let embed = (&*tokens, Len, &*place, Len, embedding, Len, positions, Len, &mut x, Len);
    s.launch(&k.embed, Grid::covering(width), embed)?;
    for (layer, cache) in model.layers.iter().zip(caches) {
        attend(s, k, model.shape, layer, cache, place, &mut x)?;
        think(s, k, model.shape, layer, &mut x)?;
    }
    let x = normalized(s, k, &x, &model.norm)?;
    s.launch(&k.multiply, columns(vocabulary), (&x, Len, &model.head, Len, &mut *logits, Len))?;
    s.launch(&k.choose, Grid::blocks(1), (&*logits, Len, tokens, Len, place, Len))
}

/// Adds to `x` what the positions so far have to say to it.
fn attend<B: Backend>(
    s: &mut impl Enqueue<B>,
    k: &Kernels<B>,
    shape: Shape,
    layer: &Layer<Buffer<f32, B>>,
    cache: &mut Cache<B>,
    place: &Buffer<Place, B>,
    x: &mut Buffer<f32, B>,
) -> dacapo::Result<()> {
    let Shape { width, heads, context, .. } = shape;
    let Cache { keys, values } = cache;
    let of_heads = heads as u32;
    let n = normalized(s, k, x, &layer.attention_norm)?;
    let query = product(s, k, &n, &layer.query, width)?;
    let key = product(s, k, &n, &layer.key, width)?;
    let value = product(s, k, &n, &layer.value, width)?;
    let remember = (&key, Len, &value, Len, place, Len, &mut *keys, Len, &mut *values, Len);
    s.launch(&k.remember, Grid::covering(width), remember)?;

    let mut weights = s.alloc_scratch(heads * context)?;
    let score = (&query, Len, &*keys, Len, place, Len, &mut weights, Len, of_heads);
    s.launch(&k.score, Grid::covering((context, heads)), score)?;
    s.launch(&k.soften, Grid::blocks(heads), (place, Len, &mut weights, Len, of_heads))?;
    let mut mixed = s.alloc_scratch(width)?;
    let mix = (&weights, Len, &*values, Len, place, Len, &mut mixed, Len, of_heads);
    s.launch(&k.mix, columns(width), mix)?;
    s.launch(&k.accumulate, columns(width), (&mixed, Len, &layer.output, Len, x, Len))
}

/// Adds to `x` what the perceptron makes of it.
fn think<B: Backend>(
    s: &mut impl Enqueue<B>,
    k: &Kernels<B>,
    shape: Shape,
    layer: &Layer<Buffer<f32, B>>,
    x: &mut Buffer<f32, B>,
) -> dacapo::Result<()> {
    let Shape { width, hidden, .. } = shape;
    let n = normalized(s, k, x, &layer.mlp_norm)?;
    let gate = product(s, k, &n, &layer.gate, hidden)?;
    let mut up = product(s, k, &n, &layer.up, hidden)?;
    s.launch(&k.swish, Grid::covering(hidden), (&gate, Len, &mut up, Len))?;
    s.launch(&k.accumulate, columns(width), (&up, Len, &layer.down, Len, x, Len))
}

fn normalized<B: Backend>(
    s: &mut impl Enqueue<B>,
    k: &Kernels<B>,
    x: &Buffer<f32, B>,
    gain: &Buffer<f32, B>,
) -> dacapo::Result<Buffer<f32, B>> {
    let mut y = s.alloc_scratch(x.len())?;
    s.launch(&k.normalize, Grid::blocks(1), (x, Len, gain, Len, &mut y, Len))?;
    Ok(y)
}

fn product<B: Backend>(
    s: &mut impl Enqueue<B>,
    k: &Kernels<B>,
    x: &Buffer<f32, B>,
    matrix: &Buffer<f32, B>,
    outputs: usize,
) -> dacapo::Result<Buffer<f32, B>> {
    let mut y = s.alloc_scratch(outputs)?;
    s.launch(&k.multiply, columns(outputs), (x, Len, matrix, Len, &mut y, Len))?;
    Ok(y)
}
