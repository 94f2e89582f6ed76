//! Each kernel against the plain version of its stage, bit for bit.

use crate::kernels;
use crate::picture::Picture;
use crate::reference::Stages;
use crate::samples::{chelsea, crop, noise};

/// Runs `kernel(rows, first_row)` over a plane in runs of `run` rows, the last of which may be shorter.
fn in_runs<T: Copy + Default>(picture: &Picture, run: usize, kernel: impl Fn(&mut [T], usize)) -> Vec<T> {
    let mut plane = vec![T::default(); picture.width * picture.height];
    for (index, rows) in plane.chunks_mut(run * picture.width).enumerate() {
        kernel(rows, index * run);
    }
    plane
}

/// Equal to the last bit, so that zeros of different sign differ.
fn assert_same(stage: &str, found: &[f32], expected: &[f32]) {
    let bits = |plane: &[f32]| plane.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(found), bits(expected), "{stage}");
}

/// Every stage gets the plain version's input, so that a failure names the stage that is wrong.
fn assert_stages(picture: &Picture, run: usize) {
    let (width, height) = (picture.width, picture.height);
    let expected = Stages::of(picture.planes.each_ref().map(Vec::as_slice), width, height);
    for (channel, plane) in picture.planes.iter().enumerate() {
        let rows = in_runs(picture, run, |dst, first| kernels::blur_rows(plane, dst, width, first));
        assert_same("blur along rows", &rows, &expected.blurred_rows[channel]);
        let src = &expected.blurred_rows[channel];
        let both = in_runs(picture, run, |dst, first| kernels::blur_columns(src, dst, width, height, first));
        assert_same("blur along columns", &both, &expected.blurred[channel]);
    }
    let [r, g, b] = &expected.blurred;
    let luminance = in_runs(picture, run, |dst, first| kernels::luminance_rows(r, g, b, dst, width, first));
    assert_same("luminance", &luminance, &expected.luminance);

    let src = &expected.luminance;
    let across = in_runs(picture, run, |dst, first| kernels::sobel_x_rows(src, dst, width, height, first));
    assert_same("sobel x", &across, &expected.gradient_x);
    let down = in_runs(picture, run, |dst, first| kernels::sobel_y_rows(src, dst, width, height, first));
    assert_same("sobel y", &down, &expected.gradient_y);

    let (x, y) = (&expected.gradient_x, &expected.gradient_y);
    let magnitude = in_runs(picture, run, |dst, first| kernels::magnitude_rows(x, y, dst, width, first));
    assert_same("magnitude", &magnitude, &expected.magnitude);

    let mut histogram = vec![u32::MAX; kernels::BINS];
    kernels::histogram(&expected.magnitude, &mut histogram);
    assert_eq!(histogram, expected.histogram);
    assert_eq!(kernels::otsu(&histogram), expected.threshold);
    let (src, threshold) = (&expected.magnitude, expected.threshold);
    let edges = in_runs(picture, run, |dst, first| kernels::edges_rows(src, threshold, dst, width, first));
    assert_eq!(edges, expected.edges);
}

/// Borders that meet, or that lie beyond each other, are where a stencil goes wrong.
#[test]
fn kernels_equal_the_plain_version_on_tiny_pictures_of_every_shape() {
    for (width, height) in (1..=7).flat_map(|width| (1..=7).map(move |height| (width, height))) {
        assert_stages(&noise(width, height, (width * 8 + height) as u64), height);
    }
}

/// A kernel that takes the first row of its run for the first of the picture is right only when run as a whole.
#[test]
fn kernels_do_not_care_how_rows_are_shared_out() {
    let picture = noise(9, 8, 1);
    (1..=8).for_each(|run| assert_stages(&picture, run));
}

#[test]
fn kernels_equal_the_plain_version_on_parts_of_a_photograph() {
    let chelsea = chelsea();
    for (left, top) in [(0, 0), (150, 90), (410, 269)] {
        assert_stages(&crop(&chelsea, left, top, 41, 31), 5);
    }
}

/// The threshold of a picture without contrast, and of one with nothing else.
#[test]
fn extreme_histograms_have_the_plain_versions_threshold() {
    let flat = Picture { width: 5, height: 4, planes: [(); 3].map(|()| vec![255.0; 20]) };
    assert_stages(&flat, 2);
    let plane: Vec<f32> = (0..200).map(|i| if i % 20 < 10 { 0.0 } else { 255.0 }).collect();
    let step = Picture { width: 20, height: 10, planes: [(); 3].map(|()| plane.clone()) };
    assert_stages(&step, 3);
    let edges = Stages::of(step.planes.each_ref().map(Vec::as_slice), 20, 10).edges;
    // Two columns on either side of the step, in every row.
    let row: Vec<u8> = (0..20).map(|x| if (8..12).contains(&x) { 255 } else { 0 }).collect();
    assert_eq!(edges, row.repeat(10));
}
