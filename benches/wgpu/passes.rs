//! What costs within a pass, and what it costs to leave it.

use std::ops::Range;
use std::time::{Duration, Instant};

use wgpu::{CommandEncoder, ComputePass};

use crate::chain::{Kernels, NEXT};
use crate::gpu::{Binding, Gpu, Kernel, Loop, Place};
use crate::measure::{Table, nodes};
use crate::schedule::Schedule;
use crate::support::is_smoke;

const SUBMITS: Schedule = Schedule::rising(16, 256);

const IN_PLACE: &str = "
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@compute @workgroup_size(256)
fn next(@builtin(global_invocation_id) id: vec3u) {
  if id.x < arrayLength(&x) { x[id.x] = x[id.x] + 1.0; }
}";

/// What is set before a dispatch that is like the one before it.
pub fn state(gpu: &Gpu) {
    let nodes = nodes(1000);
    let kernel = &gpu.kernel(IN_PLACE, &[Binding::ReadWrite], 0);
    let mut table = Table::new(format!("changes of state, {nodes} dispatches in place"), "dispatch", nodes);
    let mut row = |name, pipeline: bool, group: bool| {
        let place = gpu.buffers(1, 256).swap_remove(0);
        let bind = gpu.group(kernel, &[&place]);
        let dispatch = move |pass: &mut ComputePass<'_>, node: u32| {
            if pipeline {
                pass.set_pipeline(&kernel.pipeline);
            }
            if group || SUBMITS.starts(node) {
                pass.set_bind_group(0, &bind, &[]);
            }
            pass.dispatch_workgroups(1, 1, 1);
        };
        table.row(name, Loop::of_passes(gpu, nodes, SUBMITS, kernel, dispatch, counted(gpu, place, nodes)));
    };
    row("nothing", false, false);
    row("the bind group", false, true);
    row("the pipeline", true, false);
    row("the pipeline and the bind group", true, true);
    table.run();
}

fn counted(gpu: &Gpu, place: Place, nodes: u32) -> impl Fn(u32) {
    move |runs| {
        let sum = (nodes * runs) as f32;
        assert!(gpu.read::<f32>(&place).iter().all(|number| *number == sum), "{sum}");
    }
}

/// What stands between two dispatches.
#[derive(Clone, Copy)]
enum Between {
    Nothing,
    NewPass,
    FillKernel,
    Clear,
    CopyKernel,
    Copy,
}

/// A fill or a copy between each two dispatches, of so many bytes: within the pass, or out of it.
pub fn leaving(gpu: &Gpu, kernels: &Kernels, bytes: u64) {
    let nodes = nodes(1000);
    let moves = Moves::new(gpu);
    let mut table =
        Table::new(format!("between two of {nodes} dispatches, {bytes} bytes"), "dispatch", nodes);
    for (name, between) in [
        ("nothing", Between::Nothing),
        ("the end of the pass", Between::NewPass),
        ("a kernel that fills", Between::FillKernel),
        ("clear_buffer", Between::Clear),
        ("a kernel that copies", Between::CopyKernel),
        ("copy_buffer_to_buffer", Between::Copy),
    ] {
        table.row(name, moves.row(gpu, &kernels.apart, between, bytes));
    }
    table.run();
}

/// The kernels that do without leaving the pass.
struct Moves {
    fill: Kernel,
    copy: Kernel,
}

impl Moves {
    /// Four numbers a thread, as those do that are to be quick.
    fn new(gpu: &Gpu) -> Self {
        let wide = NEXT.replace("array<f32>", "array<vec4f>");
        let copy = gpu.kernel(&wide.replace(" + 1.0", ""), &[Binding::Read, Binding::ReadWrite], 0);
        let fill = IN_PLACE.replace("array<f32>", "array<vec4f>").replace("x[id.x] + 1.0", "vec4f(0.0)");
        Moves { fill: gpu.kernel(&fill, &[Binding::ReadWrite], 0), copy }
    }

    fn row<'g>(&'g self, gpu: &'g Gpu, kernel: &'g Kernel, between: Between, bytes: u64) -> Loop<'g> {
        let chain = gpu.buffers(2, 256);
        let binds = [gpu.group(kernel, &[&chain[0], &chain[1]]), gpu.group(kernel, &[&chain[1], &chain[0]])];
        let moved = gpu.buffers(2, bytes);
        let (fill, copy) =
            (gpu.group(&self.fill, &[&moved[1]]), gpu.group(&self.copy, &[&moved[0], &moved[1]]));
        let groups = bytes.div_ceil(4 * 4 * 256) as u32;
        let encode = move |encoder: &mut CommandEncoder, nodes: Range<u32>| {
            let mut pass = encoder.begin_compute_pass(&Default::default()).forget_lifetime();
            pass.set_pipeline(&kernel.pipeline);
            for node in nodes {
                pass.set_bind_group(0, &binds[node as usize % 2], &[]);
                pass.dispatch_workgroups(1, 1, 1);
                let within = match between {
                    Between::Nothing => continue,
                    Between::FillKernel => Some((&self.fill, &fill)),
                    Between::CopyKernel => Some((&self.copy, &copy)),
                    Between::NewPass | Between::Clear | Between::Copy => None,
                };
                if let Some((moving, bind)) = within {
                    pass.set_pipeline(&moving.pipeline);
                    pass.set_bind_group(0, bind, &[]);
                    pass.dispatch_workgroups(groups, 1, 1);
                } else {
                    drop(pass);
                    match between {
                        Between::Clear => encoder.clear_buffer(&moved[1].buffer, 0, None),
                        Between::Copy => {
                            encoder.copy_buffer_to_buffer(&moved[0].buffer, 0, &moved[1].buffer, 0, bytes);
                        }
                        _ => {}
                    }
                    pass = encoder.begin_compute_pass(&Default::default()).forget_lifetime();
                }
                pass.set_pipeline(&kernel.pipeline);
            }
        };
        Loop::new(gpu, nodes(1000), SUBMITS, encode, counted(gpu, chain[0].clone(), nodes(1000)))
    }
}

/// Where the time of the enqueueing goes.
pub fn parts(gpu: &Gpu, kernels: &Kernels) {
    let chain = gpu.buffers(2, 256);
    let [x, y] = [&chain[0], &chain[1]];
    let binds = [gpu.group(&kernels.apart, &[x, y]), gpu.group(&kernels.apart, &[y, x])];
    println!("\nparts of a submit: nanoseconds, least of all rounds");
    for nodes in [0, 1, 32, 256, 1000] {
        let mut least = [Duration::MAX; 4];
        for _ in 0..if is_smoke() { 1 } else { 200 } {
            let started = Instant::now();
            let mut encoder = gpu.encoder();
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&kernels.apart.pipeline);
            for node in 0..nodes {
                pass.set_bind_group(0, &binds[node % 2], &[]);
                pass.dispatch_workgroups(1, 1, 1);
            }
            drop(pass);
            let recorded = started.elapsed();
            let buffer = encoder.finish();
            let finished = started.elapsed();
            let last = gpu.queue.submit([buffer]);
            let submitted = started.elapsed();
            gpu.wait(Some(last));
            let done = started.elapsed();
            let now = [recorded, finished - recorded, submitted - finished, done - submitted];
            least.iter_mut().zip(now).for_each(|(least, now)| *least = now.min(*least));
        }
        let [recorded, finished, submitted, waited] = least.map(|part| part.as_nanos());
        println!(
            "{nodes:>5} dispatches: recorded {recorded:>8}, finished {finished:>8}, submitted {submitted:>8}, \
             waited for {waited:>8}"
        );
    }
}
