//! Pages with holes: what there is to bring together.

use super::support::*;

/// How many buffers of [`LEN`] a page has room for.
pub const PAGE: usize = 32;

/// The bytes of a page.
pub const PAGE_BYTES: usize = 2 << 20;

/// Buffers on `pages` full pages of the stream's slot, of which `kept` stay on each: sparse pages. Buffer `i` holds the
/// value `i`.
pub fn sparse(stream: &mut Stream, pages: usize, kept: usize) -> Vec<(f32, Buffer<f32>)> {
    let all: Vec<_> = (0..pages * PAGE).map(|i| (i as f32, filled(stream, i as f32))).collect();
    let of_page = |(i, kept_one): (usize, (f32, Buffer<f32>))| (i % PAGE < kept).then_some(kept_one);
    let left = all.into_iter().enumerate().filter_map(of_page).collect();
    // Freed bytes wait in their pool for buffers of the same size, until something else is to be done with them.
    stream.memory_cleanup().unwrap();
    left
}

/// Whether each buffer holds its value.
pub fn verify(stream: &mut Stream, buffers: &[(f32, Buffer<f32>)]) {
    for (value, buffer) in buffers {
        let read = stream.read(buffer).unwrap();
        assert!(read.len() == LEN && read.iter().all(|x| x == value), "{value}: {:?}", read.first());
    }
}
