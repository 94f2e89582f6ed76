//! The model: its sizes, and weights that are made up from a seed.

use dacapo::prelude::*;

/// The sizes of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many tokens there are.
    pub vocabulary: usize,
    /// Elements of what is known of one token: a multiple of `heads`.
    pub width: usize,
    /// Parts of the attention, each with a width of its own.
    pub heads: usize,
    /// Layers of attention and perceptron.
    pub layers: usize,
    /// Elements in the middle of a perceptron.
    pub hidden: usize,
    /// The most tokens of one sequence.
    pub context: usize,
}

impl Shape {
    /// Small enough for a debug build: a token for each byte, 240,000 weights.
    pub fn small(context: usize) -> Self {
        Shape { vocabulary: 256, width: 64, heads: 4, layers: 4, hidden: 128, context }
    }
}

/// The weights of a model, of which each matrix or vector is a `T`: on the host a `Vec`, on a device a `Buffer`.
///
/// Matrices lie by rows, one row an input.
#[derive(Clone, Debug)]
pub struct Weights<T> {
    pub shape: Shape,
    /// What a token means: a row each.
    pub embedding: T,
    /// What a position means: a row each.
    pub positions: T,
    pub layers: Vec<Layer<T>>,
    pub norm: T,
    /// From what is known of a token to how likely each token is to be the next.
    pub head: T,
}

/// The weights of one layer.
#[derive(Clone, Debug)]
pub struct Layer<T> {
    pub attention_norm: T,
    pub query: T,
    pub key: T,
    pub value: T,
    pub output: T,
    pub mlp_norm: T,
    pub gate: T,
    pub up: T,
    pub down: T,
}

/// A model on a device.
pub type Model<B = Host> = Weights<Buffer<f32, B>>;

impl Weights<Vec<f32>> {
    /// Weights that nobody trained, the same ones for the same seed on every machine.
    pub fn random(shape: Shape, seed: u64) -> Self {
        let mut draw = Draw(seed);
        let Shape { vocabulary, width, hidden, context, .. } = shape;
        Weights {
            shape,
            embedding: draw.uniform(vocabulary * width, 1.0),
            layers: (0..shape.layers)
                .map(|_| Layer {
                    attention_norm: draw.gain(width),
                    query: draw.matrix(width, width),
                    key: draw.matrix(width, width),
                    value: draw.matrix(width, width),
                    output: draw.matrix(width, width),
                    mlp_norm: draw.gain(width),
                    gate: draw.matrix(width, hidden),
                    up: draw.matrix(width, hidden),
                    down: draw.matrix(hidden, width),
                })
                .collect(),
            norm: draw.gain(width),
            head: draw.matrix(width, vocabulary),
            // Last, so that a longer context is no other model.
            positions: draw.uniform(context * width, 0.5),
        }
    }

    /// The same weights on a device.
    ///
    /// # Errors
    /// The device has not so much memory.
    pub fn upload<B: Backend>(&self, s: &mut impl Enqueue<B>) -> dacapo::Result<Model<B>> {
        self.try_map(&mut |host| {
            let mut device = s.alloc_scratch(host.len())?;
            s.write(&mut device, host)?;
            Ok(device)
        })
    }
}

impl<T> Weights<T> {
    /// Everything as a `U`.
    fn try_map<U, E>(&self, f: &mut impl FnMut(&T) -> Result<U, E>) -> Result<Weights<U>, E> {
        Ok(Weights {
            shape: self.shape,
            embedding: f(&self.embedding)?,
            positions: f(&self.positions)?,
            layers: self.layers.iter().map(|layer| layer.try_map(f)).collect::<Result<_, E>>()?,
            norm: f(&self.norm)?,
            head: f(&self.head)?,
        })
    }
}

impl<T> Layer<T> {
    fn try_map<U, E>(&self, f: &mut impl FnMut(&T) -> Result<U, E>) -> Result<Layer<U>, E> {
        Ok(Layer {
            attention_norm: f(&self.attention_norm)?,
            query: f(&self.query)?,
            key: f(&self.key)?,
            value: f(&self.value)?,
            output: f(&self.output)?,
            mlp_norm: f(&self.mlp_norm)?,
            gate: f(&self.gate)?,
            up: f(&self.up)?,
            down: f(&self.down)?,
        })
    }
}

/// Numbers that look random: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), of which the upper 24 bits make an `f32`
/// without rounding.
struct Draw(u64);

impl Draw {
    /// From -1 to 1, without 1.
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn uniform(&mut self, len: usize, largest: f32) -> Vec<f32> {
        (0..len).map(|_| self.next() * largest).collect()
    }

    /// A matrix that keeps the size of what it is multiplied with.
    fn matrix(&mut self, inputs: usize, outputs: usize) -> Vec<f32> {
        self.uniform(inputs * outputs, (3.0 / inputs as f32).sqrt())
    }

    fn gain(&mut self, len: usize) -> Vec<f32> {
        self.uniform(len, 0.25).iter().map(|gain| 1.0 + gain).collect()
    }
}
