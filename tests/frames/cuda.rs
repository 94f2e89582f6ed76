//! The whole pipeline on a GPU: the same pictures as the plain version's, and so as the host's, pixel for pixel.

use crate::picture::Picture;
use crate::runs::shoot_on;
use crate::samples::{chelsea, crop, noise};
use crate::support_cuda;

/// An edge one grey value off looks the same to whoever watches the film.
#[test]
fn every_frame_on_cuda_is_the_plain_versions() {
    let Some(device) = support_cuda::device() else { return };
    let thresholds = shoot_on(&device, &crop(&chelsea(), 130, 80, 61, 40), 12);
    assert!(thresholds.iter().any(|threshold| *threshold != thresholds[0]), "all frames look alike");
}

/// Pictures smaller than a block, of one row and of one column, and one without any contrast.
#[test]
fn tiny_and_flat_pictures_on_cuda_are_the_plain_versions() {
    let Some(device) = support_cuda::device() else { return };
    for (width, height) in [(1, 1), (1, 9), (9, 1), (2, 2), (3, 4), (33, 17), (64, 8)] {
        shoot_on(&device, &noise(width, height, 3), 3);
    }
    let flat = Picture { width: 9, height: 6, planes: [(); 3].map(|()| vec![255.0; 54]) };
    shoot_on(&device, &flat, 2);
}
