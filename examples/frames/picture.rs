//! Pictures as planes of numbers: from a PNG file, and back to one.

use std::fs;
use std::io::{self, Cursor, ErrorKind};
use std::path::{Path, PathBuf};

use png::{BitDepth, ColorType, Decoder, DecodingError, Encoder, EncodingError, Transformations};

/// The most pixels that a picture may have, so that a forged header cannot ask for all memory.
pub const MAX_PIXELS: u64 = 1 << 25;

const SIGNATURE: [u8; 8] = *b"\x89PNG\r\n\x1a\n";

/// A picture of at least one pixel, as one row-major plane per colour, each of `width * height` values in `0..=255`.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Red, green and blue.
    pub planes: [Vec<f32>; 3],
}

impl Picture {
    /// Loads any PNG: grey, palette or colour, of any bit depth, interlaced or not.
    ///
    /// 16-bit samples keep their upper 8 bits, and transparent pixels are laid over white. Colour profiles and
    /// gamma are ignored; of an animation, only the still picture counts.
    ///
    /// # Errors
    /// The file cannot be read, is not a PNG, is cut short or damaged, or has more than [`MAX_PIXELS`].
    pub fn load(path: &Path) -> Result<Self, PictureError> {
        let bytes = fs::read(path).map_err(|source| PictureError::from_reading(path, source))?;
        if !bytes.starts_with(&SIGNATURE) {
            return Err(PictureError::NotPng { path: path.into() });
        }
        let damaged = |source| PictureError::from_decoding(path, source);

        let mut decoder = Decoder::new(Cursor::new(bytes));
        decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
        decoder.set_ignore_text_chunk(true);
        decoder.set_ignore_iccp_chunk(true);
        let (width, height) = decoder.read_header_info().map_err(damaged)?.size();
        check_size(path, width, height)?;

        let mut reader = decoder.read_info().map_err(damaged)?;
        let room = reader.output_buffer_size().ok_or(DecodingError::LimitsExceeded).map_err(damaged)?;
        let mut samples = vec![0; room];
        let color = reader.next_frame(&mut samples).map_err(damaged)?.color_type;
        // The pixels are there; this looks for the file's end, so that one cut short never passes for a whole one.
        reader.finish().map_err(damaged)?;

        Ok(Self { width: width as usize, height: height as usize, planes: planes(&samples, color) })
    }
}

/// Saves `pixels`, `width * height` of them in row-major order, as an 8-bit grey PNG.
///
/// # Errors
/// The size is zero or is not that of `pixels`, in which case no file is touched; or the file cannot be written.
pub fn save_grey(path: &Path, width: usize, height: usize, pixels: &[u8]) -> Result<(), PictureError> {
    let bytes = encode_grey(width, height, pixels).map_err(|source| PictureError::Encode {
        path: path.into(),
        width,
        height,
        pixels: pixels.len(),
        source,
    })?;
    fs::write(path, bytes).map_err(|source| PictureError::Write { path: path.into(), source })
}

/// Why a picture could not be loaded or saved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PictureError {
    /// There is no such file.
    #[error("{} does not exist; name a PNG file with --input", path.display())]
    Missing {
        /// The path that was given.
        path: PathBuf,
    },
    /// The file is there, but its bytes are not to be had.
    #[error("{} cannot be read; check that it is a file and that you may read it", path.display())]
    Read {
        /// The path that was given.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file does not start as a PNG does.
    #[error("{} is not a PNG file; convert the picture to PNG first", path.display())]
    NotPng {
        /// The path that was given.
        path: PathBuf,
    },
    /// The file ends before the picture does.
    #[error("{} is cut short; copy or download the whole file again", path.display())]
    Truncated {
        /// The path that was given.
        path: PathBuf,
    },
    /// The file breaks PNG's rules.
    #[error("{} is damaged; save it again with the program that made it", path.display())]
    Damaged {
        /// The path that was given.
        path: PathBuf,
        /// The rule that it breaks.
        source: DecodingError,
    },
    /// The picture is larger than this program accepts.
    #[error("{} has {width} x {height} pixels; scale it down to {MAX_PIXELS} pixels or fewer", path.display())]
    TooBig {
        /// The path that was given.
        path: PathBuf,
        /// Pixels in a row.
        width: u32,
        /// Rows.
        height: u32,
    },
    /// What was to be saved is not a picture.
    #[error("{pixels} pixels do not make a picture of {width} x {height} for {}", path.display())]
    Encode {
        /// Where it was to be saved.
        path: PathBuf,
        /// Pixels in a row, as given.
        width: usize,
        /// Rows, as given.
        height: usize,
        /// How many pixels were given.
        pixels: usize,
        /// What PNG's rules say.
        source: EncodingError,
    },
    /// The file could not be written.
    #[error("{} cannot be written; check that its folder exists and that the disk has room", path.display())]
    Write {
        /// Where it was to be saved.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

impl PictureError {
    fn from_reading(path: &Path, source: io::Error) -> Self {
        let path = path.into();
        match source.kind() {
            ErrorKind::NotFound => Self::Missing { path },
            _ => Self::Read { path, source },
        }
    }

    /// The bytes are in memory by then, so the one way for reading them to fail is that they end.
    fn from_decoding(path: &Path, source: DecodingError) -> Self {
        let path = path.into();
        match source {
            DecodingError::IoError(_) => Self::Truncated { path },
            source => Self::Damaged { path, source },
        }
    }
}

fn check_size(path: &Path, width: u32, height: u32) -> Result<(), PictureError> {
    if u64::from(width) * u64::from(height) > MAX_PIXELS {
        return Err(PictureError::TooBig { path: path.into(), width, height });
    }
    Ok(())
}

/// Takes interleaved 8-bit samples apart.
fn planes(samples: &[u8], color: ColorType) -> [Vec<f32>; 3] {
    let pixels = samples.chunks_exact(color.samples());
    let mut planes = [(); 3].map(|()| Vec::with_capacity(pixels.len()));
    for pixel in pixels {
        for (plane, value) in planes.iter_mut().zip(opaque(pixel)) {
            plane.push(f32::from(value));
        }
    }
    planes
}

/// One pixel's red, green and blue, laid over white as far as it is transparent.
fn opaque(samples: &[u8]) -> [u8; 3] {
    match *samples {
        [] => [u8::MAX; 3],
        [grey] => [grey; 3],
        [grey, alpha] => [over_white(grey, alpha); 3],
        [r, g, b] => [r, g, b],
        [r, g, b, alpha, ..] => [r, g, b].map(|value| over_white(value, alpha)),
    }
}

fn over_white(value: u8, alpha: u8) -> u8 {
    let hidden = u32::from(u8::MAX - value) * u32::from(alpha);
    // Rounded to nearest; at most 255, as both factors are.
    u8::MAX - ((hidden + 127) / 255) as u8
}

fn encode_grey(width: usize, height: usize, pixels: &[u8]) -> Result<Vec<u8>, EncodingError> {
    let side = |side: usize| u32::try_from(side).map_err(|_| EncodingError::LimitsExceeded);
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, side(width)?, side(height)?);
    encoder.set_color(ColorType::Grayscale);
    encoder.set_depth(BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(bytes)
}
