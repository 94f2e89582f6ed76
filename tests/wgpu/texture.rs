//! Copies from textures.

use dacapo::prelude::*;
use dacapo::wgpu::{EnqueueTexture, Texels, Wgpu, wgpu};
use dacapo::{AnyStream, Error};

use crate::support::{Program, ramp};

/// A texture that can be copied from, with so many mip levels.
pub fn texture(
    program: &Program,
    format: wgpu::TextureFormat,
    [width, height, layers]: [u32; 3],
    levels: u32,
) -> wgpu::Texture {
    program.device.create_texture(&wgpu::TextureDescriptor {
        label: None,
        size: wgpu::Extent3d { width, height, depth_or_array_layers: layers },
        mip_level_count: levels,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format,
        usage: wgpu::TextureUsages::COPY_SRC | wgpu::TextureUsages::COPY_DST,
        view_formats: &[],
    })
}

/// Writes all of a mip level: `bytes` has its rows side by side.
fn write(program: &Program, to: &wgpu::Texture, level: u32, bytes: &[u8]) {
    let size = to.size().mip_level_size(level, to.dimension());
    let rows = size.height * size.depth_or_array_layers;
    program.queue.write_texture(
        wgpu::TexelCopyTextureInfo { mip_level: level, ..to.as_image_copy() },
        bytes,
        wgpu::TexelCopyBufferLayout {
            offset: 0,
            bytes_per_row: Some(bytes.len() as u32 / rows),
            rows_per_image: Some(size.height),
        },
        size,
    );
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 251) as u8).collect()
}

/// wgpu pads rows to 256 bytes, and counts in words: widths that are no multiples of either lost or gained bytes.
#[test]
fn texels_of_every_size_come_tightly_packed_whatever_the_width() {
    use wgpu::TextureFormat::{R8Unorm, R16Uint, Rg32Uint, Rgba8Unorm, Rgba32Float};
    let program = crate::program!();
    let device = program.open();
    let mut stream = device.stream().unwrap();
    for (format, texel) in [(R8Unorm, 1), (R16Uint, 2), (Rgba8Unorm, 4), (Rg32Uint, 8), (Rgba32Float, 16)] {
        for [width, height, layers] in
            [[1, 1, 1], [5, 3, 1], [64, 2, 1], [100, 7, 3], [256, 4, 2], [333, 1, 1]]
        {
            let theirs = texture(&program, format, [width, height, layers], 1);
            let data = bytes((width * height * layers * texel) as usize);
            write(&program, &theirs, 0, &data);
            let mut x = stream.alloc_scratch::<u8>(data.len()).unwrap();
            stream.copy_from_texture(&theirs, &mut x).unwrap();
            assert!(stream.read(&x).unwrap() == data, "{format:?} {width}x{height}x{layers}");
        }
    }
    assert_eq!(program.errors(), 0);
}

/// Padding that reaches into the next buffer of the page is somebody else's bytes.
#[test]
fn a_copy_into_a_slice_leaves_the_bytes_around_it() {
    let program = crate::program!();
    let device = program.open();
    let mut stream = device.stream().unwrap();
    let theirs = texture(&program, wgpu::TextureFormat::R8Unorm, [13, 5, 1], 1);
    write(&program, &theirs, 0, &bytes(65));
    for at in [0, 1, 2, 3, 7, 256, 301] {
        let mut x = stream.alloc_scratch::<u8>(400).unwrap();
        stream.fill(&mut x, 0xee).unwrap();
        stream.copy_from_texture(&theirs, x.slice_mut(at..at + 65).unwrap()).unwrap();
        let mut expected = vec![0xee; 400];
        expected[at..at + 65].copy_from_slice(&bytes(65));
        assert!(stream.read(&x).unwrap() == expected, "at {at}");
    }
}

/// Padded to 256 bytes, rows of a few take a hundred times their room: more than a kernel of this device can be given.
#[test]
fn what_is_too_large_for_one_binding_is_copied_in_parts() {
    let small = |limits| wgpu::Limits { max_storage_buffer_binding_size: 64 << 10, ..limits };
    let Some(program) = Program::with(small) else { return };
    let device = program.open();
    let mut stream = device.stream().unwrap();
    let theirs = texture(&program, wgpu::TextureFormat::R8Unorm, [13, 600, 3], 1);
    let data = bytes(13 * 600 * 3);
    write(&program, &theirs, 0, &data);
    let mut x = stream.alloc_scratch::<u8>(data.len()).unwrap();
    stream.copy_from_texture(&theirs, &mut x).unwrap();
    assert!(stream.read(&x).unwrap() == data);
    let (mut graph, ()) = stream.record(|work| work.copy_from_texture(&theirs, &mut x)).unwrap();
    stream.fill(&mut x, 0).unwrap();
    graph.replay(&mut stream).unwrap();
    assert!(stream.read(&x).unwrap() == data);
    assert_eq!(program.errors(), 0);
}

/// A part counts from the origin of its own mip level.
#[test]
fn mip_levels_and_parts_are_copied_by_themselves() {
    let program = crate::program!();
    let device = program.open();
    let mut stream = device.stream().unwrap();
    let theirs = texture(&program, wgpu::TextureFormat::R32Uint, [16, 8, 2], 3);
    let level: Vec<u32> = ramp(8 * 4 * 2);
    write(&program, &theirs, 1, bytemuck::cast_slice(&level));
    let mut x = stream.alloc::<u32>(level.len()).unwrap();
    stream.copy_from_texture(Texels::of(&theirs).mip_level(1), &mut x).unwrap();
    assert_eq!(stream.read(&x).unwrap(), level);

    let origin = wgpu::Origin3d { x: 3, y: 1, z: 1 };
    let extent = wgpu::Extent3d { width: 4, height: 2, depth_or_array_layers: 1 };
    let part = Texels::of(&theirs).mip_level(1).origin(origin).extent(extent);
    let mut y = stream.alloc::<u32>(8).unwrap();
    stream.copy_from_texture(part, &mut y).unwrap();
    let expected: Vec<u32> = (0..8).map(|n| level[32 + (1 + n / 4) * 8 + 3 + n % 4]).collect();
    assert_eq!(stream.read(&y).unwrap(), expected);

    // From the origin on.
    let mut z = stream.alloc::<u32>(5 * 3).unwrap();
    stream.copy_from_texture(Texels::of(&theirs).mip_level(1).origin(origin), &mut z).unwrap();
    let expected: Vec<u32> = (0..15).map(|n| level[32 + (1 + n / 5) * 8 + 3 + n % 5]).collect();
    assert_eq!(stream.read(&z).unwrap(), expected);
}

/// A frame that was copied when it was recorded, or when the encoder happened to be submitted, is another frame.
#[test]
fn each_replay_copies_the_frame_that_was_submitted_before_it() {
    let program = crate::program!();
    let device = program.open();
    let mut stream = device.stream().unwrap();
    let frame = texture(&program, wgpu::TextureFormat::Rgba8Unorm, [50, 10, 1], 1);
    let mut log = stream.alloc::<u32>(50 * 10 * 8).unwrap();
    let mut x = stream.alloc_scratch::<u32>(500).unwrap();
    let (mut graph, ()) = stream.record(|work| work.copy_from_texture(&frame, &mut x)).unwrap();
    let show = |number: u32| write(&program, &frame, 0, bytemuck::cast_slice(&[number; 500]));
    for number in 0..8 {
        show(number + 1);
        program.queue.submit([]);
        if number % 2 == 0 {
            graph.replay(&mut stream).unwrap();
        } else {
            stream.copy_from_texture(&frame, &mut x).unwrap();
        }
        let at = 500 * number as usize;
        stream.copy(&x, log.slice_mut(at..at + 500).unwrap()).unwrap();
    }
    for (number, shown) in stream.read(&log).unwrap().chunks(500).enumerate() {
        let other = shown.iter().position(|texel| *texel != number as u32 + 1);
        assert_eq!(other.map(|at| (at, shown[at])), None, "in frame {}", number + 1);
    }
}

/// It was listed as a raw section, which no program of wgpu's ever made.
#[test]
fn a_listing_calls_the_copy_by_its_name() {
    let program = crate::program!();
    let device = program.open();
    let mut stream = device.stream().unwrap();
    let frame = texture(&program, wgpu::TextureFormat::R8Unorm, [8, 8, 1], 1);
    let mut x = stream.alloc_scratch::<u8>(64).unwrap();
    let (graph, ()) = stream.record(|work| work.copy_from_texture(&frame, &mut x)).unwrap();
    assert!(graph.to_dot().contains("0: copy_from_texture"), "{}", graph.to_dot());
}

/// A texture that the program lets go of is freed under the graph.
#[test]
fn a_graph_keeps_the_texture_alive() {
    let program = crate::program!();
    let device = program.open();
    let mut stream = device.stream().unwrap();
    let theirs = texture(&program, wgpu::TextureFormat::R32Uint, [10, 10, 1], 1);
    write(&program, &theirs, 0, bytemuck::cast_slice(&ramp(100)));
    let mut x = stream.alloc::<u32>(100).unwrap();
    let (mut graph, ()) = stream.record(|work| work.copy_from_texture(&theirs, &mut x)).unwrap();
    drop(theirs);
    stream.fill(&mut x, 0).unwrap();
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&x).unwrap(), ramp(100));
    assert_eq!(program.errors(), 0);
}

/// What is wrong with a texture showed up when the work of others was submitted with it.
#[test]
fn a_texture_that_cannot_be_copied_is_refused_with_what_it_lacks() {
    let program = crate::program!();
    let device = program.open();
    let mut stream = device.stream().unwrap();
    let plain = wgpu::TextureDescriptor {
        label: None,
        size: wgpu::Extent3d { width: 4, height: 4, depth_or_array_layers: 1 },
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format: wgpu::TextureFormat::Rgba8Unorm,
        usage: wgpu::TextureUsages::COPY_SRC | wgpu::TextureUsages::RENDER_ATTACHMENT,
        view_formats: &[],
    };
    let make = |descriptor| program.device.create_texture(&descriptor);
    let mut x = stream.alloc::<u32>(16).unwrap();
    let mut refuse = |from: Texels<'_>| match stream.copy_from_texture(from, &mut x) {
        Err(Error::WrongTexture { reason }) => reason,
        other => panic!("{other:?}"),
    };
    let several = make(wgpu::TextureDescriptor { sample_count: 4, ..plain.clone() });
    assert!(refuse(Texels::of(&several)).contains("several samples"));
    let usage = wgpu::TextureUsages::COPY_DST;
    let unreadable = make(wgpu::TextureDescriptor { usage, ..plain.clone() });
    assert!(refuse(Texels::of(&unreadable)).contains("COPY_SRC"));
    let format = wgpu::TextureFormat::Depth24PlusStencil8;
    let two = make(wgpu::TextureDescriptor { format, ..plain.clone() });
    assert!(refuse(Texels::of(&two)).contains("several aspects"));
    let good = make(plain.clone());
    assert!(refuse(Texels::of(&good).mip_level(1)).contains("mip level"));
    assert!(refuse(Texels::of(&good).mip_level(40)).contains("mip level"));
    let beyond = wgpu::Origin3d { x: 5, y: 0, z: 0 };
    assert!(refuse(Texels::of(&good).origin(beyond)).contains("beyond"));
    let wide = wgpu::Extent3d { width: 5, height: 4, depth_or_array_layers: 1 };
    assert!(refuse(Texels::of(&good).extent(wide)).contains("beyond"));

    // The target is tainted until it is written.
    assert!(matches!(stream.read(&x), Err(Error::Tainted { .. })));
    let mut short = stream.alloc::<u32>(15).unwrap();
    let error = stream.copy_from_texture(&good, &mut short).unwrap_err();
    assert!(matches!(error, Error::LengthMismatch { source_len: 16, target_len: 15, .. }), "{error}");
    let mut odd = stream.alloc::<[u8; 5]>(13).unwrap();
    let error = stream.copy_from_texture(&good, &mut odd).unwrap_err();
    assert!(matches!(error, Error::CastSize { bytes: 64, element: 5 }), "{error}");
    stream.copy_from_texture(&good, &mut x).unwrap();
    assert_eq!(stream.read(&x).unwrap(), [0; 16]);
    // While recording, it dooms the recording.
    let recorded = stream.record(|work| {
        let _ = work.copy_from_texture(&several, &mut x);
        Ok(())
    });
    let error = recorded.map(drop).unwrap_err();
    assert!(matches!(error.root(), Error::WrongTexture { .. }), "{error}");
    assert_eq!(program.errors(), 0);
}

/// Depth is copied in whole layers only, which a check by one texel would refuse.
#[test]
fn depth_is_copied_in_whole_layers() {
    let program = crate::program!();
    let device = program.open();
    let mut stream = device.stream().unwrap();
    let depth = program.device.create_texture(&wgpu::TextureDescriptor {
        label: None,
        size: wgpu::Extent3d { width: 30, height: 20, depth_or_array_layers: 1 },
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format: wgpu::TextureFormat::Depth32Float,
        usage: wgpu::TextureUsages::COPY_SRC | wgpu::TextureUsages::RENDER_ATTACHMENT,
        view_formats: &[],
    });
    let view = depth.create_view(&Default::default());
    let mut encoder = program.device.create_command_encoder(&Default::default());
    drop(encoder.begin_render_pass(&wgpu::RenderPassDescriptor {
        depth_stencil_attachment: Some(wgpu::RenderPassDepthStencilAttachment {
            view: &view,
            depth_ops: Some(wgpu::Operations {
                load: wgpu::LoadOp::Clear(0.25),
                store: wgpu::StoreOp::Store,
            }),
            stencil_ops: None,
        }),
        ..Default::default()
    }));
    program.queue.submit([encoder.finish()]);
    let mut x = stream.alloc::<f32>(600).unwrap();
    stream.copy_from_texture(&depth, &mut x).unwrap();
    assert_eq!(stream.read(&x).unwrap(), [0.25; 600]);
    let extent = wgpu::Extent3d { width: 10, height: 20, depth_or_array_layers: 1 };
    let error = stream.copy_from_texture(Texels::of(&depth).extent(extent), x.slice_mut(..200).unwrap());
    assert!(matches!(error, Err(Error::WrongTexture { .. })), "{error:?}");
    assert_eq!(program.errors(), 0);
}

/// A step that is written once copies in every phase, and without a texel it does nothing.
#[test]
fn a_copy_works_in_every_phase_and_of_nothing() {
    let program = crate::program!();
    let device = program.open();
    let theirs = texture(&program, wgpu::TextureFormat::R32Uint, [5, 5, 1], 1);
    write(&program, &theirs, 0, bytemuck::cast_slice(&ramp(25)));
    let mut stream = device.stream().unwrap();
    let mut x = stream.alloc::<u32>(25).unwrap();
    let (mut graph, ()) = stream.capture(|work| work.copy_from_texture(&theirs, &mut x)).unwrap();
    assert_eq!(stream.read(&x).unwrap(), ramp(25));
    stream.fill(&mut x, 0).unwrap();
    let mut stream = AnyStream::from(stream);
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&x).unwrap(), ramp(25));
    let none = wgpu::Extent3d { width: 0, height: 5, depth_or_array_layers: 1 };
    let mut empty = stream.alloc::<u32>(0).unwrap();
    stream.copy_from_texture(Texels::of(&theirs).extent(none), &mut empty).unwrap();
    let error = stream.copy_from_texture(Texels::of(&theirs).extent(none), &mut x).unwrap_err();
    assert!(matches!(error, Error::LengthMismatch { source_len: 0, target_len: 25, .. }), "{error}");
    let _: &AnyStream<Wgpu> = &stream;
}
