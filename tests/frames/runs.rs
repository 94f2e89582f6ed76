//! The whole pipeline, launched and replayed, frame after frame.

use std::time::Duration;

use dacapo::{Backend, Device, Enqueue, Error, ErrorKind};

use crate::camera::{Camera, WrongLength};
use crate::film::{Difference, Film};
use crate::picture::Picture;
use crate::pipeline::{Kernels, Outputs, Size, step};
use crate::reference::Stages;
use crate::report::Report;
use crate::samples::{chelsea, crop, noise};

fn size(camera: &Camera) -> Size {
    Size { width: camera.width(), height: camera.height() }
}

fn plain(rgb: &[f32], size: Size) -> Stages {
    let planes: Vec<&[f32]> = rgb.chunks(size.pixels()).collect();
    Stages::of([planes[0], planes[1], planes[2]], size.width, size.height)
}

fn shoot(picture: &Picture, frames: u32) -> Vec<u32> {
    shoot_on(&Device::host().unwrap(), picture, frames)
}

/// Takes `frames` frames of `picture` both ways and checks both; returns the thresholds.
pub fn shoot_on<B: Backend>(device: &Device<B>, picture: &Picture, frames: u32) -> Vec<u32> {
    let camera = Camera::new(picture, frames);
    let size = size(&camera);
    let mut film = Film::new(device, size).unwrap();
    let mut rgb = vec![0.0; 3 * size.pixels()];
    let mut shot = |frame| {
        camera.frame(frame, &mut rgb).unwrap();
        let expected = plain(&rgb, size);
        let (replayed, _) = film.replay(&rgb).unwrap();
        let (launched, _) = film.launch(&rgb).unwrap();
        assert_eq!(replayed.check(&expected), Ok(()), "frame {frame}, replayed");
        assert_eq!(launched.check(&expected), Ok(()), "frame {frame}, launched");
        expected.threshold
    };
    (0..frames).map(&mut shot).collect()
}

/// A replay that keeps the input, or the memory, of an earlier one shows an old frame.
#[test]
fn every_frame_is_launched_and_replayed_as_the_plain_version_computes_it() {
    let thresholds = shoot(&crop(&chelsea(), 130, 80, 61, 40), 12);
    assert!(thresholds.iter().any(|threshold| *threshold != thresholds[0]), "all frames look alike");
}

/// One row is no run of columns, and nothing may be empty.
#[test]
fn pictures_of_one_row_one_column_and_one_pixel_work() {
    for (width, height) in [(1, 1), (1, 9), (9, 1), (2, 2), (3, 4)] {
        shoot(&noise(width, height, 3), 3);
    }
}

/// Memory: what lies between input and output is the graph's, shared where the data allows.
#[test]
fn the_graph_has_a_node_a_launch_and_shares_its_memory() {
    let size = Size { width: 64, height: 16 };
    let film = Film::new(&Device::host().unwrap(), size).unwrap();
    let graph = film.graph();
    let names: Vec<String> = (0..graph.nodes()).map(|index| graph.node(index).unwrap().name).collect();
    let blurs = ["blur rows", "blur columns"].repeat(3);
    let rest = ["luminance", "sobel x", "sobel y", "magnitude", "histogram", "threshold", "edges"];
    assert_eq!(names, [blurs.as_slice(), &rest].concat());
    // Three pairs of blurs, which meet in the luminance; two gradients, which meet in the magnitude; and a chain.
    assert_eq!(graph.edges(), 3 + 3 + 2 + 2 + 3);
    let plane = size.pixels() * size_of::<f32>();
    // Until the luminance is there, three blurs run side by side, each with its input and its output.
    assert_eq!(graph.arena_bytes(), 6 * plane);
    assert_eq!(graph.unshared_bytes(), 10 * plane + 1024);
    assert_eq!(graph.to_dot().matches(" -> ").count(), graph.edges());
}

/// A recording that went wrong must not become a graph, and must leave the stream usable.
#[test]
fn a_frame_of_the_wrong_size_is_refused_launched_and_recorded() {
    let device = Device::host().unwrap();
    let mut stream = device.stream().unwrap();
    let kernels = Kernels::load(&device).unwrap();
    let size = Size { width: 4, height: 4 };
    let short = stream.alloc(2 * size.pixels() - 1).unwrap();
    let mut out = Outputs::alloc(&mut stream, size).unwrap();

    let launched = step(&mut stream, &kernels, size, &short, &mut out).unwrap_err();
    assert!(matches!(launched, Error::OutOfRange { start: 16, end: 32, len: 31 }), "{launched}");
    let recorded = stream.record(|work| step(work, &kernels, size, &short, &mut out)).unwrap_err();
    assert_eq!(recorded.kind(), ErrorKind::Misuse);

    let whole = stream.alloc(3 * size.pixels()).unwrap();
    step(&mut stream, &kernels, size, &whole, &mut out).unwrap();
    assert_eq!(stream.read(&out.edges).unwrap(), vec![0; size.pixels()]);
}

/// A check that cannot fail verifies nothing.
#[test]
fn a_single_wrong_pixel_or_threshold_is_found() {
    let picture = noise(6, 5, 9);
    let camera = Camera::new(&picture, 1);
    let size = size(&camera);
    let mut rgb = vec![0.0; 3 * size.pixels()];
    camera.frame(0, &mut rgb).unwrap();
    let expected = plain(&rgb, size);
    let (found, _) = Film::new(&Device::host().unwrap(), size).unwrap().replay(&rgb).unwrap();
    let threshold = expected.threshold;

    let mut wrong = found.clone();
    wrong.edges[7] ^= 255;
    let difference = Difference { wrong: 1, first: Some(7), threshold, expected: threshold };
    assert_eq!(wrong.check(&expected), Err(difference));

    let mut wrong = found.clone();
    wrong.threshold += 1;
    let difference = Difference { wrong: 0, first: None, threshold: threshold + 1, expected: threshold };
    assert_eq!(wrong.check(&expected), Err(difference));

    let mut wrong = found;
    wrong.edges.pop();
    assert!(wrong.check(&expected).is_err());
}

#[test]
fn the_camera_stays_in_the_picture_and_comes_back() {
    let picture = chelsea();
    let camera = Camera::new(&picture, 120);
    for frame in 0..120 {
        let (left, top) = camera.position(frame);
        assert!(left + camera.width() <= picture.width && top + camera.height() <= picture.height);
    }
    assert_eq!(camera.position(120), camera.position(0));
    assert!((1..120).all(|frame| camera.position(frame) != camera.position(0)));
}

#[test]
fn a_frame_takes_room_for_exactly_three_planes() {
    let picture = noise(9, 6, 4);
    let camera = Camera::new(&picture, 5);
    let needed = 3 * camera.pixels();
    for given in [0, needed - 1, needed + 1] {
        let mut room = vec![-1.0; given];
        assert_eq!(camera.frame(0, &mut room), Err(WrongLength { given, needed }));
        assert_eq!(room, vec![-1.0; given]);
    }
}

#[test]
fn the_table_shows_the_mean_of_all_frames() {
    let size = Size { width: 300, height: 200 };
    let film = Film::new(&Device::host().unwrap(), size).unwrap();
    let mut report = Report { unshared_bytes: 999, ..Report::new(size, film.graph()) };
    report.add(Duration::from_micros(1000), Duration::from_micros(250));
    report.add(Duration::from_micros(2000), Duration::from_micros(500));
    let table = report.to_string();
    for row in [
        "frames                      2  of 300 x 200 pixels, each verified twice",
        "eager                   1.500  ms/frame",
        "replay                  0.375  ms/frame",
        "nodes                      13",
        "edges                      13",
        "arena, planned      1,440,768  bytes",
        "one buffer each           999  bytes",
    ] {
        assert!(table.lines().any(|line| line == row), "{row:?} is not in\n{table}");
    }
}
