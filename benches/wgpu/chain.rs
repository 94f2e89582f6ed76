//! Chains of dependent dispatches, by hand: from one place to the next, so that a wrong order shows.

use std::rc::Rc;

use crate::gpu::{Binding, End, Gpu, Kernel, Loop, Place};
use crate::measure::{Side, Table};
use crate::ours::{Library, Records};
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
pub fn chains(gpu: &Gpu, kernels: &Kernels, library: &Library, nodes: u32, floats: u64, schedule: Schedule) {
    let title = format!("chains of {nodes} dispatches over {floats} floats, by hand with submits {schedule}");
    let mut table = Table::new(title, "dispatch", nodes);
    let chain = || Chain::new(gpu.buffers(2, floats * 4), nodes);
    table.row("(b) bind groups made before", chain().prebuilt(gpu, &kernels.apart, schedule));
    table.row("ours: replay", library.replays(nodes, floats));
    table.row("ours: launches", library.launches(nodes, floats));
    table.row("(a) a bind group for each dispatch", chain().eager(gpu, &kernels.apart, schedule));
    table.row("ours: launches, no bind group kept", library.uncached(nodes, floats));
    let figures = table.run();
    let [b, replay, launches, a, uncached] = [0, 1, 2, 3, 4].map(|row| figures[row].done);
    let (replay, launches, uncached) = (replay / b, launches / a, uncached / a);
    println!(
        "replay / (b) {replay:.2}, launches / (a) {launches:.2}, without kept bind groups {uncached:.2}"
    );
}

/// Runs that come sixteen at a time before a wait.
pub fn bursts(gpu: &Gpu, kernels: &Kernels, library: &Library, nodes: u32, schedule: Schedule) {
    let mut table =
        Table::new(format!("sixteen chains of {nodes} dispatches, then a wait"), "dispatch", 16 * nodes);
    let by_hand = Chain::new(gpu.buffers(2, 256), nodes).prebuilt(gpu, &kernels.apart, schedule);
    table.row("(b) bind groups made before", Burst(by_hand));
    table.row("ours: replay", Burst(library.replays(nodes, 64)));
    table.row("ours: launches", Burst(library.launches(nodes, 64)));
    table.row("ours: launches, no bind group kept", Burst(library.uncached(nodes, 64)));
    table.run();
}

struct Burst<S>(S);

impl<S: Side> Side for Burst<S> {
    fn enqueue(&mut self) {
        (0..16).for_each(|_| self.0.enqueue());
    }

    fn wait(&mut self) {
        self.0.wait();
    }

    fn verify(&mut self) {
        self.0.verify();
    }
}

/// What recording and ending a chain costs (done: dropping the graph too).
pub fn records(library: &Library, nodes: u32) {
    let mut table =
        Table::new(format!("recording and ending {nodes} dispatches (done: dropped)"), "dispatch", nodes);
    table.row("ours: record", Records(library.launches(nodes, 64)));
    table.run();
}

/// What waiting costs, which is all where there is little to wait for.
pub fn ends(gpu: &Gpu, kernels: &Kernels, library: &Library, nodes: u32) {
    let title = format!("the end of a chain of {nodes} dispatches");
    let mut table = Table::new(title, "run", 1);
    let chain = || Chain::new(gpu.buffers(2, 256), nodes);
    let row = || chain().prebuilt(gpu, &kernels.apart, Schedule::rising(16, 256));
    table.row("waited for", row());
    table.row("asked for again and again", row().ending(End::Asked));
    table.row("ours: replay, sync", library.replays(nodes, 64));
    let read = chain();
    let end = read.read_end(gpu);
    table.row("read", read.prebuilt(gpu, &kernels.apart, Schedule::rising(16, 256)).ending(end));
    table.row("ours: replay, read", library.replays(nodes, 64).reading());
    table.run();
}
