//! The whole pipeline on a GPU: the same pictures as the plain version's, and so as the host's, pixel for pixel.

use dacapo::{Backend, Device};

use crate::picture::Picture;
use crate::runs::shoot_on;
use crate::samples::{chelsea, crop, noise};

/// An edge one grey value off looks the same to whoever watches the film.
pub fn every_frame_is_the_plain_versions<B: Backend>(device: &Device<B>) {
    let thresholds = shoot_on(device, &crop(&chelsea(), 130, 80, 61, 40), 12);
    assert!(thresholds.iter().any(|threshold| *threshold != thresholds[0]), "all frames look alike");
}

/// Pictures smaller than a block, of one row and of one column, and one without any contrast.
pub fn tiny_and_flat_pictures_are_the_plain_versions<B: Backend>(device: &Device<B>) {
    for (width, height) in [(1, 1), (1, 9), (9, 1), (2, 2), (3, 4), (33, 17), (64, 8)] {
        shoot_on(device, &noise(width, height, 3), 3);
    }
    let flat = Picture { width: 9, height: 6, planes: [(); 3].map(|()| vec![255.0; 54]) };
    shoot_on(device, &flat, 2);
}
