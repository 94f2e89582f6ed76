//! A camera over a still picture: each frame shows another part of it than the frame before.

use std::f64::consts::TAU;

use crate::picture::Picture;

/// A window of two thirds of a picture's sides, which follows a figure of eight over it and ends where it began.
#[derive(Clone, Copy, Debug)]
pub struct Camera<'p> {
    picture: &'p Picture,
    width: usize,
    height: usize,
    frames: u32,
}

impl<'p> Camera<'p> {
    /// A camera whose path over `picture` takes `frames` frames; none counts as one.
    pub fn new(picture: &'p Picture, frames: u32) -> Self {
        let (width, height) = (two_thirds(picture.width), two_thirds(picture.height));
        Self { picture, width, height, frames: frames.max(1) }
    }

    /// Pixels in a row of a frame, at least 1.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows of a frame, at least 1.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Pixels of a frame: `width * height`, the length of each of its three planes.
    pub fn pixels(&self) -> usize {
        self.width * self.height
    }

    /// Where the top left pixel of frame `i` lies in the picture, as column and row.
    ///
    /// The path is a Lissajous curve, `(cos t, sin 2t)`, within the picture; frame `frames` is frame 0 again.
    pub fn position(&self, i: u32) -> (usize, usize) {
        let turn = TAU * f64::from(i % self.frames) / f64::from(self.frames);
        (
            along(turn.cos(), self.picture.width - self.width),
            along((2.0 * turn).sin(), self.picture.height - self.height),
        )
    }

    /// Copies frame `i` into `rgb`: the red plane, then the green and the blue one, each of [`pixels`](Self::pixels)
    /// values in row-major order.
    ///
    /// # Errors
    /// `rgb` is not exactly three planes long; nothing is written then.
    pub fn frame(&self, i: u32, rgb: &mut [f32]) -> Result<(), WrongLength> {
        let needed = 3 * self.pixels();
        if rgb.len() != needed {
            return Err(WrongLength { given: rgb.len(), needed });
        }
        let (left, top) = self.position(i);
        for (plane, out) in self.picture.planes.iter().zip(rgb.chunks_exact_mut(self.pixels())) {
            let rows = plane.chunks_exact(self.picture.width).skip(top);
            for (row, out) in rows.zip(out.chunks_exact_mut(self.width)) {
                out.iter_mut().zip(row.iter().skip(left)).for_each(|(out, value)| *out = *value);
            }
        }
        Ok(())
    }
}

/// The room for a frame is not the size of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame takes room for {needed} values (three planes), not {given}")]
pub struct WrongLength {
    /// The values that there is room for.
    pub given: usize,
    /// The values of a frame.
    pub needed: usize,
}

fn two_thirds(side: usize) -> usize {
    (side * 2 / 3).max(1)
}

/// The offset in `0..=slack` that `swing`, from -1 to 1, stands for.
fn along(swing: f64, slack: usize) -> usize {
    let offset = (swing + 1.0) / 2.0 * slack as f64;
    (offset.round() as usize).min(slack)
}
