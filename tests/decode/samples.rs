//! The model of these tests, and what it says.

use crate::model::{Shape, Weights};
use crate::session::Decoded;

/// What the example begins with, a token a byte.
pub const PROMPT: &[u8] = b"da capo";

/// What follows it, with the example's own weights.
pub const SAYS: [u32; 16] = [35, 29, 14, 35, 213, 213, 67, 48, 129, 237, 72, 169, 46, 25, 117, 35];

pub fn tokens(text: &[u8]) -> Vec<u32> {
    text.iter().copied().map(u32::from).collect()
}

/// The example's model, with room for [`PROMPT`] and [`SAYS`].
pub fn weights() -> Weights<Vec<f32>> {
    Weights::random(Shape::small(PROMPT.len() + SAYS.len()), 7)
}

/// The bits of the logits: equal to the last one, so that zeros of different sign differ.
pub fn bits(decoded: &Decoded) -> Vec<u32> {
    decoded.logits.iter().map(|logit| logit.to_bits()).collect()
}
