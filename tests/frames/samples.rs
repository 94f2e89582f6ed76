//! Pictures to test with: noise, a crop of the example's own picture, and PNG files of every kind.

use std::fs;
use std::path::{Path, PathBuf};

use png::{BitDepth, ColorType, Encoder, Info};

use crate::picture::Picture;

/// Numbers that look random and are the same every time.
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Self {
        Noise(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    pub fn below(&mut self, limit: u32) -> u32 {
        // Knuth's MMIX generator; its high bits are the good ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(limit)) as u32
    }
}

/// A picture of 8-bit noise.
pub fn noise(width: usize, height: usize, seed: u64) -> Picture {
    let mut noise = Noise::new(seed);
    let planes = [(); 3].map(|()| (0..width * height).map(|_| noise.below(256) as f32).collect());
    Picture { width, height, planes }
}

/// The example's own picture.
pub fn chelsea() -> Picture {
    Picture::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/chelsea.png")).unwrap()
}

/// A part of `picture`, so that a debug build is quick.
pub fn crop(picture: &Picture, left: usize, top: usize, width: usize, height: usize) -> Picture {
    let rows = |plane: &Vec<f32>| -> Vec<f32> {
        let rows = plane.chunks(picture.width).skip(top).take(height);
        rows.flat_map(|row| row[left..left + width].to_vec()).collect()
    };
    Picture { width, height, planes: picture.planes.each_ref().map(rows) }
}

/// A folder of this test's own, empty.
pub fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("frames").join(test);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// How pixels are stored in a PNG file.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub color: ColorType,
    pub depth: BitDepth,
    pub interlaced: bool,
}

/// Every colour type at every depth that PNG allows it, interlaced and not.
pub fn kinds() -> Vec<Kind> {
    use BitDepth::*;
    use ColorType::*;
    let depths: [(ColorType, &[BitDepth]); 5] = [
        (Grayscale, &[One, Two, Four, Eight, Sixteen]),
        (Rgb, &[Eight, Sixteen]),
        (Indexed, &[One, Two, Four, Eight]),
        (GrayscaleAlpha, &[Eight, Sixteen]),
        (Rgba, &[Eight, Sixteen]),
    ];
    let each = depths.into_iter().flat_map(|(color, depths)| depths.iter().map(move |depth| (color, *depth)));
    each.flat_map(|(color, depth)| [false, true].map(|interlaced| Kind { color, depth, interlaced }))
        .collect()
}

/// A picture as its samples: `width * height` pixels of as many samples as the kind has, each below `2^depth`.
pub struct Samples {
    pub kind: Kind,
    pub width: usize,
    pub height: usize,
    pub values: Vec<u16>,
    /// Red, green and blue of each index, for `Indexed`.
    pub palette: Vec<u8>,
    /// The `tRNS` chunk, if there is to be one.
    pub transparency: Option<Vec<u8>>,
}

impl Samples {
    pub fn noise(kind: Kind, width: usize, height: usize) -> Self {
        let mut noise = Noise::new((width * height) as u64);
        let limit = 1 << kind.depth as u32;
        let values = (0..width * height * kind.color.samples()).map(|_| noise.below(limit) as u16).collect();
        let palette = match kind.color {
            ColorType::Indexed => (0..limit * 3).map(|_| noise.below(256) as u8).collect(),
            _ => Vec::new(),
        };
        Samples { kind, width, height, values, palette, transparency: None }
    }

    /// The samples of one pixel.
    pub fn pixel(&self, x: usize, y: usize) -> &[u16] {
        let samples = self.kind.color.samples();
        &self.values[(y * self.width + x) * samples..][..samples]
    }

    /// The whole file.
    pub fn png(&self) -> Vec<u8> {
        let mut info = Info::with_size(self.width as u32, self.height as u32);
        info.color_type = self.kind.color;
        info.bit_depth = self.kind.depth;
        info.interlaced = self.kind.interlaced;
        info.palette = (!self.palette.is_empty()).then(|| self.palette.clone().into());
        info.trns = self.transparency.clone().map(Into::into);
        let mut file = Vec::new();
        let mut writer = Encoder::with_info(&mut file, info).unwrap().write_header().unwrap();
        // The encoder does not interlace, so that rows are packed here, for both.
        writer.write_chunk(png::chunk::IDAT, &stored(&self.scanlines())).unwrap();
        // Dropping the writer writes the end; `finish` would ask for a picture written through it.
        drop(writer);
        file
    }

    /// What is compressed: rows, each after the byte that says it is not filtered.
    fn scanlines(&self) -> Vec<u8> {
        // Adam7: the first column and row of each pass, and the steps between its columns and rows.
        let passes: &[[usize; 4]] = match self.kind.interlaced {
            false => &[[0, 0, 1, 1]],
            true => &[
                [0, 0, 8, 8],
                [4, 0, 8, 8],
                [0, 4, 4, 8],
                [2, 0, 4, 4],
                [0, 2, 2, 4],
                [1, 0, 2, 2],
                [0, 1, 1, 2],
            ],
        };
        let mut lines = Vec::new();
        for &[left, top, right, down] in passes.iter().filter(|pass| pass[0] < self.width) {
            for y in (top..self.height).step_by(down) {
                lines.push(0);
                let samples = (left..self.width).step_by(right).flat_map(|x| self.pixel(x, y));
                lines.extend(self.packed(samples.copied()));
            }
        }
        lines
    }

    fn packed(&self, samples: impl Iterator<Item = u16>) -> Vec<u8> {
        let depth = self.kind.depth as usize;
        let samples: Vec<u16> = samples.collect();
        match depth {
            16 => samples.iter().flat_map(|sample| sample.to_be_bytes()).collect(),
            _ => samples
                .chunks(8 / depth)
                .map(|byte| {
                    let shifts = (0..8 / depth).rev().map(|place| place * depth);
                    byte.iter().zip(shifts).map(|(sample, shift)| (*sample as u8) << shift).sum()
                })
                .collect(),
        }
    }
}

/// `bytes` as a zlib stream that does not compress them.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let len = u16::try_from(bytes.len()).expect("a block holds less than 64 KiB");
    let (mut a, mut b) = (1u32, 0u32);
    for &byte in bytes {
        a = (a + u32::from(byte)) % 65521;
        b = (b + a) % 65521;
    }
    let mut out = vec![0x78, 0x01, 0x01];
    out.extend(len.to_le_bytes());
    out.extend((!len).to_le_bytes());
    out.extend(bytes);
    out.extend((b << 16 | a).to_be_bytes());
    out
}
