//! What the library's design rests on: memory, scalars, changes of state, and what leaves the pass.

use offset_allocator::Allocator;
use wgpu::{ComputePass, Features};

use crate::chain::{Chain, Kernels, NEXT};
use crate::gpu::{Binding, Gpu, Kernel, Loop, Place};
use crate::measure::{Side, Table, nodes};
use crate::schedule::Schedule;

/// Where the schedule matters little.
const SUBMITS: Schedule = Schedule::rising(16, 256);

/// A buffer for each allocation, or ranges of one page.
pub fn memory(gpu: &Gpu, kernels: &Kernels) {
    let nodes = nodes(1024);
    let Kernels { apart, paged } = kernels;
    let mut table = Table::new(format!("buffers or a page, {nodes} dispatches"), "dispatch", nodes);
    for places in [2, 64] {
        let own = || Chain::new(gpu.buffers(places, 256), nodes);
        let page = || Chain::new(gpu.page(places, 256), nodes);
        table.row(format!("{places} buffers, read / read-write"), own().prebuilt(gpu, apart, SUBMITS));
        table.row(format!("{places} buffers, all read-write"), own().prebuilt(gpu, paged, SUBMITS));
        table.row(format!("{places} ranges of a page"), page().prebuilt(gpu, paged, SUBMITS));
        table.row(format!("{places} buffers, a bind group each time"), own().eager(gpu, apart, SUBMITS));
        table.row(format!("{places} ranges, a bind group each time"), page().eager(gpu, paged, SUBMITS));
    }
    table.row("64 buffers, independent dispatches", independent(gpu, apart, gpu.buffers(64, 256), nodes));
    table.row("64 ranges, independent dispatches", independent(gpu, paged, gpu.page(64, 256), nodes));
    table.run();
}

/// Dispatches from the first of a pair of places to the second.
fn independent<'g>(gpu: &'g Gpu, kernel: &'g Kernel, places: Vec<Place>, nodes: u32) -> Loop<'g> {
    let pairs = places.len() as u32 / 2;
    let binds: Vec<_> = places.chunks(2).map(|pair| gpu.group(kernel, &[&pair[0], &pair[1]])).collect();
    let dispatch = move |pass: &mut ComputePass<'_>, node: u32| {
        pass.set_bind_group(0, &binds[(node % pairs) as usize], &[]);
        pass.dispatch_workgroups(1, 1, 1);
    };
    Loop::of_passes(gpu, nodes, SUBMITS, kernel, dispatch, move |_| {
        places.chunks(2).for_each(|pair| assert!(gpu.read::<f32>(&pair[1]).iter().all(|one| *one == 1.0)));
    })
}

/// What an allocation costs, and giving it back.
pub fn allocations(gpu: &Gpu) {
    const COUNT: u32 = 64;
    let mut table = Table::new("allocations (done: given back)", "allocation", COUNT);
    for bytes in [256, 1 << 20] {
        let made = Allocations { make: Box::new(move || gpu.buffer(bytes)), made: Vec::new(), gpu };
        table.row(format!("buffers of {bytes} bytes"), made);
    }
    table.row("ranges of a page", Ranges { page: Allocator::new(1 << 20), made: Vec::new() });
    table.run();

    struct Allocations<'g> {
        make: Box<dyn Fn() -> wgpu::Buffer + 'g>,
        made: Vec<wgpu::Buffer>,
        gpu: &'g Gpu,
    }

    impl Side for Allocations<'_> {
        fn enqueue(&mut self) {
            self.made.extend((0..COUNT).map(|_| (self.make)()));
        }

        fn wait(&mut self) {
            self.made.clear();
            self.gpu.device.poll(wgpu::PollType::Poll).unwrap();
        }

        fn verify(&mut self) {}
    }

    struct Ranges {
        page: Allocator,
        made: Vec<offset_allocator::Allocation>,
    }

    impl Side for Ranges {
        fn enqueue(&mut self) {
            self.made.extend((0..COUNT).filter_map(|_| self.page.allocate(1)));
        }

        fn wait(&mut self) {
            assert_eq!(self.made.len(), COUNT as usize);
            self.made.drain(..).for_each(|range| self.page.free(range));
        }

        fn verify(&mut self) {}
    }
}

/// How a scalar, another one for each dispatch, reaches the kernel.
pub fn scalars(gpu: &Gpu, kernels: &Kernels) {
    let nodes = nodes(1000);
    let bindings = [Binding::Read, Binding::ReadWrite, Binding::Uniform];
    let with =
        |declared: &str| NEXT.replace("@compute", &format!("{declared}\n@compute")).replace("1.0;", "by;");
    let uniform = gpu.kernel(&with("@group(0) @binding(2) var<uniform> by: f32;"), &bindings, 0);
    let immediates = gpu.device.features().contains(Features::IMMEDIATES);
    let immediate = immediates.then(|| gpu.kernel(&with("var<immediate> by: f32;"), &bindings[..2], 4));
    let mut table = Table::new(format!("a scalar of each of {nodes} dispatches"), "dispatch", nodes);
    table.row("none", Chain::new(gpu.buffers(2, 256), nodes).prebuilt(gpu, &kernels.apart, SUBMITS));
    table.row("a uniform, by dynamic offset", scaled(gpu, &uniform, Scalar::Offset));
    table.row("a uniform, by its own bind group", scaled(gpu, &uniform, Scalar::Group));
    table.row("a uniform, by a bind group each time", scaled(gpu, &uniform, Scalar::EachTime));
    if let Some(kernel) = &immediate {
        table.row("an immediate", scaled(gpu, kernel, Scalar::Immediate));
    }
    table.run();
}

#[derive(Clone, Copy)]
enum Scalar {
    Offset,
    Group,
    EachTime,
    Immediate,
}

/// A chain of a kernel that is told what to add: from 1 to 10, one more for each dispatch.
struct Scaled<'g> {
    gpu: &'g Gpu,
    kernel: &'g Kernel,
    places: Vec<Place>,
    /// The ten scalars, each where a dynamic offset may be.
    table: wgpu::Buffer,
}

fn scaled<'g>(gpu: &'g Gpu, kernel: &'g Kernel, scalar: Scalar) -> Loop<'g> {
    let nodes = nodes(1000);
    let scaled = Scaled { gpu, kernel, places: gpu.buffers(2, 256), table: gpu.buffer(10 * 256) };
    let (entry, by) = (|node: u32| u64::from(node % 10) * 256, |node: u32| (node % 10 + 1) as f32);
    (0..10).for_each(|n| gpu.queue.write_buffer(&scaled.table, entry(n), &by(n).to_le_bytes()));
    let made = |node: u32| match scalar {
        Scalar::Offset => scaled.group(node, Some(0)),
        Scalar::Group | Scalar::EachTime => scaled.group(node, Some(entry(node))),
        Scalar::Immediate => scaled.group(node, None),
    };
    let (binds, result): (Vec<_>, _) = ((0..10).map(made).collect(), scaled.places[0].clone());
    let dispatch = move |pass: &mut ComputePass<'_>, node: u32| {
        let bind = &binds[node as usize % 10];
        match scalar {
            Scalar::Offset => pass.set_bind_group(0, bind, &[entry(node) as u32]),
            Scalar::Group => pass.set_bind_group(0, bind, &[0]),
            Scalar::EachTime => pass.set_bind_group(0, &scaled.group(node, Some(entry(node))), &[0]),
            Scalar::Immediate => {
                pass.set_bind_group(0, bind, &[]);
                pass.set_immediates(0, &by(node).to_le_bytes());
            }
        }
        pass.dispatch_workgroups(1, 1, 1);
    };
    Loop::of_passes(gpu, nodes, SUBMITS, kernel, dispatch, move |runs| {
        let sum = ((0..nodes).map(|node| node % 10 + 1).sum::<u32>() * runs) as f32;
        assert!(gpu.read::<f32>(&result).iter().all(|number| *number == sum), "{sum}");
    })
}

impl Scaled<'_> {
    /// The bind group of a dispatch, with a scalar at `start` of the table where it is in a uniform.
    fn group(&self, node: u32, start: Option<u64>) -> wgpu::BindGroup {
        let (x, y) = (&self.places[node as usize % 2], &self.places[(node as usize + 1) % 2]);
        let uniform = start.map(|start| Place { buffer: self.table.clone(), start, bytes: 4 });
        match &uniform {
            Some(uniform) => self.gpu.group(self.kernel, &[x, y, uniform]),
            None => self.gpu.group(self.kernel, &[x, y]),
        }
    }
}
