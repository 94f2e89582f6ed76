//! A type that owns elements lends them as a slice.

use dacapo::prelude::*;

struct Image(Vec<f32>);

impl Image {
    fn pixels(&self) -> &[f32] {
        &self.0
    }
}

pub fn main() -> dacapo::Result<()> {
    let mut s = Device::host()?.stream()?;
    let image = Image(vec![1.0; 4]);
    let mut to = s.alloc::<f32>(4)?;
    s.write(&mut to, image.pixels())?;
    assert_eq!(s.read(&to)?, [1.0; 4]);
    Ok(())
}
