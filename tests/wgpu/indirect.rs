//! Launches that find the number of their blocks in a buffer, on devices that check such numbers and on those that do not.

use dacapo::prelude::*;
use dacapo::wgpu::Wgpu;
use dacapo::wgpu::wgpu::InstanceFlags;

use crate::support::Program as Theirs;

/// Each thread adds `by`.
const ADD: &str = "
struct Scalars { by: u32 }
@group(0) @binding(0) var<storage, read_write> sum: atomic<u32>;
@group(0) @binding(1) var<uniform> scalars: Scalars;
@compute @workgroup_size(64)
fn add() { atomicAdd(&sum, scalars.by); }";

type Add = Kernel<(InOut<u32>, u32), Wgpu>;

fn add(device: &Device<Wgpu>) -> Add {
    Program::new("add").block(64, 1, 1).wgsl(ADD, "add").load(device).unwrap()
}

/// The devices of a program that lets wgpu look at the numbers of an indirect dispatch, and of one that does not.
fn programs() -> impl Iterator<Item = Theirs> {
    let flags = [InstanceFlags::VALIDATION_INDIRECT_CALL, InstanceFlags::empty()];
    flags.into_iter().filter_map(Theirs::flagged)
}

/// Where wgpu does not look, the driver does with too many blocks what it likes: it may launch them, or be lost.
#[test]
fn too_many_blocks_are_none_whether_wgpu_looks_at_them_or_not() {
    for program in programs() {
        let device = program.open();
        let add = add(&device);
        let mut s = device.stream().unwrap();
        let (mut counts, mut sum) = (s.alloc::<u32>(3).unwrap(), s.alloc::<u32>(1).unwrap());
        let step = |work: &mut Work<'_, Wgpu>| work.launch(&add, Grid::indirect(&counts), (&mut sum, 1));
        let (mut graph, ()) = s.record(step).unwrap();
        for (blocks, threads) in
            [([65_536, 1, 1], 0), ([1, 65_536, 1], 0), ([1, 1, u32::MAX], 0), ([3, 2, 1], 384)]
        {
            s.write(&mut counts, &blocks).unwrap();
            s.fill(&mut sum, 0).unwrap();
            graph.replay(&mut s).unwrap();
            s.launch(&add, Grid::indirect(&counts), (&mut sum, 1)).unwrap();
            assert_eq!(s.read(&sum).unwrap(), [2 * threads], "{blocks:?}");
        }
        assert_eq!(program.errors(), 0);
    }
}

/// wgpu looks at the numbers with a dispatch of its own, in the middle of a pass: what the next one has in common with the one
/// before is not set again.
#[test]
fn a_launch_after_an_indirect_one_of_the_same_kernel_on_the_same_memory_runs_as_it_should() {
    for program in programs() {
        let device = program.open();
        let add = add(&device);
        let mut s = device.stream().unwrap();
        let (mut counts, mut sum) = (s.alloc::<u32>(3).unwrap(), s.alloc::<u32>(1).unwrap());
        s.write(&mut counts, &[2, 1, 3]).unwrap();
        let mut step = |work: &mut Work<'_, Wgpu>| {
            work.launch(&add, Grid::indirect(&counts), (&mut sum, 5))?;
            work.launch(&add, Grid::blocks(4), (&mut sum, 5))?;
            work.launch(&add, Grid::blocks(1), (&mut sum, 7))?;
            work.launch(&add, Grid::indirect(&counts), (&mut sum, 7))
        };
        let (mut graph, ()) = s.capture(&mut step).unwrap();
        graph.replay(&mut s).unwrap();
        let once = 64 * (5 * (6 + 4) + 7 * (1 + 6));
        assert_eq!(s.read(&sum).unwrap(), [2 * once]);
        assert_eq!(program.errors(), 0);
    }
}
