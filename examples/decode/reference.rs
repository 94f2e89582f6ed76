//! What the model says, written to be read rather than to be fast, in `f64` and without a cache of anybody's design.
//!
//! It shares no arithmetic with the kernels: neither the precision, nor the order of sums, nor the exponential. So it
//! cannot agree to the last bit, and need not: the device's choice is right if no other token is likelier by more than
//! [`TOLERANCE`], which is far above what an `f32` can be wrong here and far below how much likelier a choice usually is.

use crate::model::{Layer, Weights};

/// What the logits of device and reference may differ by; they are of the order of 1.
pub const TOLERANCE: f64 = 1e-4;

/// A model that reads one sequence.
#[derive(Debug)]
pub struct Reference<'w> {
    weights: &'w Weights<Vec<f32>>,
    /// For each layer, for each position so far: key and value.
    past: Vec<Vec<(Vec<f64>, Vec<f64>)>>,
}

/// What a sequence came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// By how much a choice was at least likelier than the runner-up.
    pub closest: f64,
    /// The logits of the last choice.
    pub logits: Vec<f64>,
}

/// The device chose a token that is not the likeliest.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("token {position} is {chosen}, and {likeliest} is likelier by {by:.6}")]
pub struct Wrong {
    /// The place of the token in its sequence.
    pub position: usize,
    /// What the device chose.
    pub chosen: u32,
    /// What it should have chosen.
    pub likeliest: u32,
    /// The difference of their logits.
    pub by: f64,
}

/// Reads `tokens`, of which `prompt` were given, and judges every one that was chosen.
///
/// # Errors
/// The first token that was chosen although another one is clearly likelier.
pub fn judge(weights: &Weights<Vec<f32>>, tokens: &[u32], prompt: usize) -> Result<Verdict, Wrong> {
    let mut reference = Reference::new(weights);
    let mut verdict = Verdict { closest: f64::INFINITY, logits: Vec::new() };
    for (position, pair) in (1..).zip(tokens.windows(2)) {
        let &[token, chosen] = pair else { continue };
        verdict.logits = reference.read(token);
        if position < prompt {
            continue;
        }
        let logit = |token: u32| verdict.logits.get(token as usize).copied().unwrap_or(f64::NEG_INFINITY);
        let mut ranking: Vec<u32> = (0..verdict.logits.len() as u32).collect();
        ranking.sort_by(|a, b| logit(*b).total_cmp(&logit(*a)));
        let &[likeliest, second, ..] = ranking.as_slice() else { continue };
        let by = logit(likeliest) - logit(chosen);
        if by > TOLERANCE {
            return Err(Wrong { position, chosen, likeliest, by });
        }
        verdict.closest = verdict.closest.min(logit(likeliest) - logit(second));
    }
    Ok(verdict)
}

impl<'w> Reference<'w> {
    /// A model that has read nothing yet.
    pub fn new(weights: &'w Weights<Vec<f32>>) -> Self {
        Reference { weights, past: vec![Vec::new(); weights.layers.len()] }
    }

    /// Reads one more token; returns the logits of the next one.
    pub fn read(&mut self, token: u32) -> Vec<f64> {
        let Reference { weights, past } = self;
        let (shape, position) = (weights.shape, past.first().map_or(0, Vec::len));
        let row = |matrix: &[f32], row: usize| -> Vec<f64> {
            let elements = matrix.iter().skip(row * shape.width).take(shape.width);
            elements.map(|element| f64::from(*element)).collect()
        };
        let mut x = plus(&row(&weights.embedding, token as usize), &row(&weights.positions, position));
        for (layer, past) in weights.layers.iter().zip(past) {
            let n = normalized(&x, &layer.attention_norm);
            past.push((times(&n, &layer.key), times(&n, &layer.value)));
            let mixed = attend(&times(&n, &layer.query), past, shape.width / shape.heads);
            x = plus(&x, &times(&mixed, &layer.output));
            x = plus(&x, &think(&normalized(&x, &layer.mlp_norm), layer));
        }
        times(&normalized(&x, &weights.norm), &weights.head)
    }
}

/// For each head of `size` elements: the values of the past, by how well their keys meet the query.
fn attend(query: &[f64], past: &[(Vec<f64>, Vec<f64>)], size: usize) -> Vec<f64> {
    let of = |head: usize, vector: &[f64]| -> Vec<f64> {
        vector.iter().skip(head * size).take(size).copied().collect()
    };
    let attend = |head: usize| {
        let query = of(head, query);
        let meets = |key: &[f64]| query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>();
        let scores = past.iter().map(|(key, _)| (meets(&of(head, key)) / (size as f64).sqrt()).exp());
        let scores: Vec<f64> = scores.collect();
        let total: f64 = scores.iter().sum();
        let weighted = scores.iter().zip(past).map(|(score, (_, value))| {
            of(head, value).iter().map(|value| value * score / total).collect::<Vec<_>>()
        });
        weighted.reduce(|sum, next| plus(&sum, &next)).unwrap_or_default()
    };
    (0..query.len() / size).flat_map(attend).collect()
}

fn think(n: &[f64], layer: &Layer<Vec<f32>>) -> Vec<f64> {
    let gates = times(n, &layer.gate).into_iter().map(|gate| gate / (1.0 + (-gate).exp()));
    let through: Vec<f64> = gates.zip(times(n, &layer.up)).map(|(gate, up)| gate * up).collect();
    times(&through, &layer.down)
}

fn plus(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

fn normalized(x: &[f64], gain: &[f32]) -> Vec<f64> {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    x.iter().zip(gain).map(|(x, gain)| x / (mean + 1e-5).sqrt() * f64::from(*gain)).collect()
}

/// A vector times a matrix with a row for each element of the vector.
fn times(x: &[f64], matrix: &[f32]) -> Vec<f64> {
    let outputs = matrix.len() / x.len().max(1);
    let column = |column: usize| {
        x.iter().zip(matrix.iter().skip(column).step_by(outputs)).map(|(x, w)| x * f64::from(*w))
    };
    (0..outputs).map(|index| column(index).sum()).collect()
}
