//! What every device must do, on CUDA.

use crate::devices;
use crate::support_cuda;

#[test]
fn every_frame_on_cuda_is_the_plain_versions() {
    let Some(device) = support_cuda::device() else { return };
    devices::every_frame_is_the_plain_versions(&device);
}

#[test]
fn tiny_and_flat_pictures_on_cuda_are_the_plain_versions() {
    let Some(device) = support_cuda::device() else { return };
    devices::tiny_and_flat_pictures_are_the_plain_versions(&device);
}
