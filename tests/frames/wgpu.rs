//! What every device must do, on wgpu.

use crate::devices;
use crate::support_wgpu;

#[test]
fn every_frame_on_wgpu_is_the_plain_versions() {
    let Some(device) = support_wgpu::device() else { return };
    devices::every_frame_is_the_plain_versions(&device);
}

#[test]
fn tiny_and_flat_pictures_on_wgpu_are_the_plain_versions() {
    let Some(device) = support_wgpu::device() else { return };
    devices::tiny_and_flat_pictures_are_the_plain_versions(&device);
}
