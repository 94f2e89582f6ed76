//! Files in: whatever PNG allows, and clear words for everything else. Files out.

use std::fs;
use std::path::Path;

use png::{BitDepth, ColorType};

use crate::picture::{MAX_PIXELS, Picture, PictureError, save_grey};
use crate::samples::{Kind, Samples, chelsea, folder, kinds};

/// What a viewer shows of a pixel on white paper, computed as PNG's own text describes it.
fn shown(samples: &Samples, pixel: &[u16]) -> [u8; 3] {
    let depth = samples.kind.depth as u32;
    let eight = |sample: u16| match depth {
        16 => f64::from(sample >> 8),
        _ => f64::from(sample) * 255.0 / f64::from((1u32 << depth) - 1),
    };
    let (color, alpha) = match *pixel {
        [index] if samples.kind.color == ColorType::Indexed => {
            let entry = &samples.palette[usize::from(index) * 3..][..3];
            let alpha = samples.transparency.as_ref().and_then(|alphas| alphas.get(usize::from(index)));
            ([0, 1, 2].map(|c| f64::from(entry[c])), f64::from(*alpha.unwrap_or(&255)))
        }
        [grey] => ([eight(grey); 3], keyed(samples, pixel)),
        [grey, alpha] => ([eight(grey); 3], eight(alpha)),
        [r, g, b] => ([r, g, b].map(eight), keyed(samples, pixel)),
        [r, g, b, alpha] => ([r, g, b].map(eight), eight(alpha)),
        _ => unreachable!("a pixel has one to four samples"),
    };
    color.map(|value| (255.0 - (255.0 - value) * alpha / 255.0).round() as u8)
}

/// Transparent where the pixel is the one colour that `tRNS` names.
fn keyed(samples: &Samples, pixel: &[u16]) -> f64 {
    let key: Vec<u8> = pixel.iter().flat_map(|sample| sample.to_be_bytes()).collect();
    if samples.transparency.as_deref() == Some(&key[..]) { 0.0 } else { 255.0 }
}

fn assert_loads_as_shown(folder: &Path, samples: &Samples) {
    let path = folder.join("picture.png");
    fs::write(&path, samples.png()).unwrap();
    let loaded = Picture::load(&path).unwrap();
    assert_eq!((loaded.width, loaded.height), (samples.width, samples.height));
    for (y, x) in (0..samples.height).flat_map(|y| (0..samples.width).map(move |x| (y, x))) {
        let found = loaded.planes.each_ref().map(|plane| plane[y * samples.width + x]);
        let expected = shown(samples, samples.pixel(x, y)).map(f32::from);
        assert_eq!(found, expected, "{:?} at {x}, {y}", samples.kind);
    }
}

/// A loader that expects 8-bit RGB shows noise, or reads out of bounds, for the rest of what PNG allows.
#[test]
fn every_kind_of_png_loads_as_a_viewer_shows_it() {
    let folder = folder("every_kind");
    for kind in kinds() {
        for (width, height) in [(1, 1), (5, 3), (13, 9)] {
            assert_loads_as_shown(&folder, &Samples::noise(kind, width, height));
        }
    }
}

/// Transparency that is not in the samples is easily missed: in the palette, or as one colour that counts as none.
#[test]
fn transparent_colours_are_laid_over_white() {
    let folder = folder("transparent");
    for kind in kinds() {
        let mut samples = Samples::noise(kind, 6, 5);
        samples.transparency = match kind.color {
            ColorType::Indexed => Some(vec![0, 100]),
            ColorType::Grayscale | ColorType::Rgb => {
                Some(samples.pixel(2, 3).iter().flat_map(|sample| sample.to_be_bytes()).collect())
            }
            ColorType::GrayscaleAlpha | ColorType::Rgba => continue,
        };
        assert_loads_as_shown(&folder, &samples);
    }
}

#[test]
fn the_sample_picture_has_an_odd_width_and_three_different_planes() {
    let picture = chelsea();
    assert_eq!((picture.width, picture.height), (451, 300));
    let [r, g, b] = &picture.planes;
    assert!(r != g && g != b);
}

fn plain() -> Samples {
    Samples::noise(Kind { color: ColorType::Rgb, depth: BitDepth::Eight, interlaced: false }, 4, 3)
}

/// What loading `bytes` says; it must name the file, in one line.
fn refusal(folder: &Path, bytes: &[u8]) -> PictureError {
    let path = folder.join("refused.png");
    fs::write(&path, bytes).unwrap();
    let error = Picture::load(&path).unwrap_err();
    let words = error.to_string();
    assert!(words.contains(&path.display().to_string()) && !words.contains('\n'), "{words}");
    error
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let path = folder("missing").join("nothing.png");
    let error = Picture::load(&path).unwrap_err();
    assert!(matches!(error, PictureError::Missing { .. }));
    assert_eq!(error.to_string(), format!("{} does not exist; name a PNG file with --input", path.display()));
}

#[test]
fn a_folder_is_not_a_picture() {
    let path = folder("a_folder");
    assert!(matches!(Picture::load(&path), Err(PictureError::Read { path: named, .. }) if named == path));
}

#[test]
fn what_does_not_start_as_a_png_is_not_called_a_damaged_one() {
    let folder = folder("not_png");
    for bytes in [&b""[..], b"hello", b"\xff\xd8\xff\xe0", b"\x89PNG"] {
        assert!(matches!(refusal(&folder, bytes), PictureError::NotPng { .. }));
    }
}

/// A picture that passes for a whole one although its end is missing has rows of zeros, which nobody asked for.
#[test]
fn a_file_that_is_cut_anywhere_is_refused() {
    let folder = folder("cut");
    let whole = plain().png();
    for len in 8..whole.len() {
        assert!(matches!(refusal(&folder, &whole[..len]), PictureError::Truncated { .. }), "cut at {len}");
    }
}

/// A flipped bit is found by a checksum, whichever chunk it is in.
#[test]
fn a_flipped_bit_is_refused() {
    let folder = folder("flipped");
    let whole = plain().png();
    let data = whole.windows(4).position(|name| name == b"IDAT").unwrap();
    for at in [17, data + 10, data + 20] {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        assert!(matches!(refusal(&folder, &bytes), PictureError::Damaged { .. }), "flipped at {at}");
    }
}

/// Ten bytes of header can promise more pixels than there is memory.
#[test]
fn a_header_that_promises_too_much_is_refused_before_memory_is_asked_for() {
    let folder = folder("too_big");
    let side = MAX_PIXELS.isqrt() as u32 + 1;
    let mut file = Vec::new();
    drop(png::Encoder::new(&mut file, side, side).write_header().unwrap());
    let error = refusal(&folder, &file);
    assert!(matches!(error, PictureError::TooBig { width, height, .. } if (width, height) == (side, side)));
}

#[test]
fn a_saved_picture_loads_as_it_was() {
    let path = folder("saved").join("edges.png");
    let pixels: Vec<u8> = (0..35).map(|i| i * 7).collect();
    save_grey(&path, 7, 5, &pixels).unwrap();
    let loaded = Picture::load(&path).unwrap();
    let expected: Vec<f32> = pixels.iter().copied().map(f32::from).collect();
    assert_eq!(loaded, Picture { width: 7, height: 5, planes: [(); 3].map(|()| expected.clone()) });
}

#[test]
fn a_picture_of_the_wrong_size_is_not_saved() {
    let path = folder("unsaved").join("edges.png");
    for (width, height, pixels) in [(0, 0, 0), (3, 3, 8), (3, 3, 10)] {
        let error = save_grey(&path, width, height, &vec![0; pixels]).unwrap_err();
        assert!(matches!(error, PictureError::Encode { .. }), "{error}");
        assert!(!path.exists());
    }
}

#[test]
fn a_picture_without_a_folder_to_go_to_is_not_saved() {
    let path = folder("no_folder").join("missing/edges.png");
    let error = save_grey(&path, 1, 1, &[0]).unwrap_err();
    assert!(matches!(&error, PictureError::Write { path: named, .. } if *named == path));
    assert!(error.to_string().starts_with(&path.display().to_string()));
}
