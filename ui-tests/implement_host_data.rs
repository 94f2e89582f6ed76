//! How long host memory is kept is this crate's business, so that only its types are some: lend a slice.

use dacapo::HostData;

struct Image(Vec<f32>);

impl HostData<f32> for &Image {}

fn main() {}
