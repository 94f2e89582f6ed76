//! Chains of dependent dispatches, by hand: from one place to the next, so that a wrong order shows.

use std::rc::Rc;

use crate::gpu::{Binding, End, Gpu, Kernel, Loop, Place};
use crate::measure::Table;
use crate::schedule::Schedule;

/// `y = x + 1`, wherever `y` has a number.
pub const NEXT: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(256)
fn next(@builtin(global_invocation_id) id: vec3u) {
  if id.x < arrayLength(&y) { y[id.x] = x[id.x] + 1.0; }
}";

/// The kernel, for bindings of their own kinds and for those of one page.
pub struct Kernels {
    pub apart: Kernel,
    pub paged: Kernel,
}

/// A chain's places, and how it goes on from one to the next.
#[derive(Clone)]
pub struct Chain {
    places: Rc<[Place]>,
    nodes: u32,
    groups: u32,
}

impl Kernels {
    pub fn new(gpu: &Gpu) -> Self {
        let apart = gpu.kernel(NEXT, &[Binding::Read, Binding::ReadWrite], 0);
        let written = NEXT.replace("storage, read>", "storage, read_write>");
        let paged = gpu.kernel(&written, &[Binding::ReadWrite, Binding::ReadWrite], 0);
        Kernels { apart, paged }
    }
}

impl Chain {
    /// Over these places in turn, which the nodes must go round without a rest.
    pub fn new(places: Vec<Place>, nodes: u32) -> Self {
        assert_eq!(nodes as usize % places.len(), 0, "the end of a run is the start of the next");
        let groups = (places[0].bytes / 4).div_ceil(256) as u32;
        Chain { places: places.into(), nodes, groups }
    }

    fn step(&self, node: u32) -> [&Place; 2] {
        let (places, node) = (&self.places, node as usize);
        [&places[node % places.len()], &places[(node + 1) % places.len()]]
    }

    /// Whether every number counts the nodes of so many runs.
    fn count(self, gpu: &Gpu) -> impl Fn(u32) {
        move |runs| {
            let numbers: Vec<f32> = gpu.read(&self.places[0]);
            let sum = (self.nodes * runs) as f32;
            assert!(numbers.iter().all(|number| *number == sum), "{} for {sum}", numbers[0]);
        }
    }

    /// With bind groups that are made once.
    pub fn prebuilt<'g>(self, gpu: &'g Gpu, kernel: &'g Kernel, schedule: Schedule) -> Loop<'g> {
        let steps = self.places.len() as u32;
        let binds: Vec<_> = (0..steps).map(|step| gpu.group(kernel, &self.step(step))).collect();
        let (nodes, groups) = (self.nodes, self.groups);
        let dispatch = move |pass: &mut wgpu::ComputePass<'_>, node: u32| {
            pass.set_bind_group(0, &binds[(node % steps) as usize], &[]);
            pass.dispatch_workgroups(groups, 1, 1);
        };
        Loop::of_passes(gpu, nodes, schedule, kernel, dispatch, self.count(gpu))
    }

    /// With a bind group made for each dispatch.
    pub fn eager<'g>(self, gpu: &'g Gpu, kernel: &'g Kernel, schedule: Schedule) -> Loop<'g> {
        let chain = self.clone();
        let dispatch = move |pass: &mut wgpu::ComputePass<'_>, node: u32| {
            pass.set_bind_group(0, &gpu.group(kernel, &chain.step(node)), &[]);
            pass.dispatch_workgroups(chain.groups, 1, 1);
        };
        Loop::of_passes(gpu, self.nodes, schedule, kernel, dispatch, self.count(gpu))
    }

    /// Its result, to be read at the end of each run.
    pub fn read_end(&self, gpu: &Gpu) -> End {
        let from = self.places[0].clone();
        let landing = gpu.landing(from.bytes);
        End::Read { from, landing }
    }
}

/// Finds the submits that are best for chains of so many nodes.
pub fn submits(gpu: &Gpu, kernels: &Kernels, nodes: u32) -> Schedule {
    let title = format!("submits of a chain of {nodes} dispatches, bind groups made before");
    let mut table = Table::new(title, "dispatch", nodes);
    for schedule in Schedule::USUAL {
        let chain = Chain::new(gpu.buffers(2, 256), nodes);
        table.row(schedule.to_string(), chain.prebuilt(gpu, &kernels.apart, schedule));
    }
    let figures = table.run();
    let best = figures.iter().zip(Schedule::USUAL).min_by(|(a, _), (b, _)| a.done.total_cmp(&b.done));
    best.map_or(Schedule::ALL, |(_, schedule)| schedule)
}

/// Chains of so many nodes over so many floats.
pub fn chains(gpu: &Gpu, kernels: &Kernels, nodes: u32, floats: u64, schedule: Schedule) {
    let title = format!("chains of {nodes} dispatches over {floats} floats, submits {schedule}");
    let mut table = Table::new(title, "dispatch", nodes);
    let chain = || Chain::new(gpu.buffers(2, floats * 4), nodes);
    table.row("(b) bind groups made before", chain().prebuilt(gpu, &kernels.apart, schedule));
    table.row("(a) a bind group for each dispatch", chain().eager(gpu, &kernels.apart, schedule));
    table.run();
}

/// What waiting costs, which is all where there is little to wait for.
pub fn ends(gpu: &Gpu, kernels: &Kernels, nodes: u32) {
    let title = format!("the end of a chain of {nodes} dispatches");
    let mut table = Table::new(title, "run", 1);
    let chain = || Chain::new(gpu.buffers(2, 256), nodes);
    let row = || chain().prebuilt(gpu, &kernels.apart, Schedule::rising(16, 128));
    table.row("waited for", row());
    table.row("asked for again and again", row().ending(End::Asked));
    let read = chain();
    let end = read.read_end(gpu);
    table.row("read", read.prebuilt(gpu, &kernels.apart, Schedule::rising(16, 128)).ending(end));
    table.run();
}
