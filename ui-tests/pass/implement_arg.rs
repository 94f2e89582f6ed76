//! A type that owns a buffer lends it as a slice.

use dacapo::Slice;
use dacapo::prelude::*;

struct Image(Buffer<f32>);

impl Image {
    fn pixels(&self) -> Slice<'_, f32> {
        self.0.as_slice()
    }
}

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    let image = Image(stream.alloc(4)?);
    assert_eq!(stream.read(image.pixels())?, [0.0; 4]);
    Ok(())
}
