//! Ours against wgpu's own calls, on one GPU, in one process.
//!
//! **Measured.** On a device that the library opened; launches that keep no bind groups, on another one of the same
//! GPU. Chains of a kernel that adds one to each of 64 floats on their way from one buffer to another, with blocks of
//! 256 threads, so that each dispatch waits for the one before it: their enqueueing, and the time until the end of the
//! wait for them. By hand in the two ways that programs are written: (a) a bind group made for each dispatch, and (b)
//! bind groups made once and encoded again; both submit as often as is best for (b) on this machine, which is looked
//! for first. Ours as launches, with kept bind groups and without, and as replays, which decide themselves when to
//! submit; what launches come to is submitted by a thread of the library's, so that they use a second core, which (a)
//! and (b) do not. The **control** is a chain over so many floats that the memory is all that counts. Then chains that
//! come in bursts, what recording costs, waits and reads; and what the library's design rests on: parts of a submit,
//! buffers or ranges of one page, immediates or uniforms, changes of state, and what leaves the pass. Results are
//! counted after each turn. The device's own time is taken by timestamps around one submit of all, where it has them.
//!
//! **How it can mislead.** A device that is a processor shares its cores with who encodes, so that overlapping the two gains
//! nothing there, and a busy neighbour makes both slower. A graphics card raises its clocks with work, and the host's
//! processor may have two speeds, of which not every row need have met the better one: compare the medians too. Waits may put
//! the thread to sleep, and waking takes longer than a short chain. What was encoded is enqueued in part only once the wait
//! submits it, so that enqueueing alone says little. Allocations are those of the enqueueing alone, and wgpu's are among them.
//! Where there is no device, nothing is measured and that is printed.
//!
//! Names of parts as arguments run those alone: `cargo bench --features wgpu --bench wgpu -- chains`.

#[allow(dead_code, reason = "criterion's part is for benches that cost nothing")]
#[path = "../support/mod.rs"]
mod support;

mod chain;
mod choices;
mod gpu;
mod measure;
mod ours;
mod passes;
mod schedule;

use chain::{Chain, Kernels};
use gpu::Gpu;
use measure::{Side, nodes};
use ours::Library;
use schedule::Schedule;
use support::is_smoke;

fn main() {
    let library = match Library::new() {
        Ok(library) => library,
        Err(error) => return println!("not measured: {error}"),
    };
    let gpu = library.gpu();
    println!("{}", gpu.name);
    let kernels = Kernels::new(&gpu);
    warm(&gpu, &kernels);
    if wanted("chains") {
        for nodes in [150, 1000, 5000].map(nodes) {
            let schedule = chain::submits(&gpu, &kernels, nodes);
            chain::chains(&gpu, &kernels, &library, nodes, 64, schedule);
        }
        let (nodes, floats) = (nodes(150), if gpu.pretends { 1 << 18 } else { 1 << 23 });
        chain::chains(&gpu, &kernels, &library, nodes, floats, Schedule::rising(16, 256));
    }
    if wanted("bursts") {
        chain::bursts(&gpu, &kernels, &library, nodes(150), Schedule::rising(16, 256));
    }
    if wanted("records") {
        [150, 1000, 5000].map(nodes).into_iter().for_each(|nodes| chain::records(&library, nodes));
    }
    if wanted("ends") {
        [2, 150, 1000].map(nodes).into_iter().for_each(|nodes| chain::ends(&gpu, &kernels, &library, nodes));
    }
    if wanted("parts") {
        passes::parts(&gpu, &kernels);
    }
    if wanted("memory") {
        choices::memory(&gpu, &kernels);
        choices::allocations(&gpu);
    }
    if wanted("scalars") {
        choices::scalars(&gpu, &kernels);
    }
    if wanted("state") {
        passes::state(&gpu);
    }
    if wanted("leaving") {
        let sizes = if gpu.pretends { &[256, 1 << 16][..] } else { &[256, 1 << 20, 1 << 26] };
        sizes.iter().for_each(|bytes| passes::leaving(&gpu, &kernels, *bytes));
    }
}

/// Whether a part is to run: it is named, or none is.
fn wanted(part: &str) -> bool {
    let mut named = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).peekable();
    named.peek().is_none() || named.any(|name| name == part)
}

/// Clocks rise with work.
fn warm(gpu: &Gpu, kernels: &Kernels) {
    let mut long = Chain::new(gpu.buffers(2, 1 << 20), 100).prebuilt(gpu, &kernels.apart, Schedule::ALL);
    let started = std::time::Instant::now();
    while started.elapsed().as_millis() < if is_smoke() { 1 } else { 500 } {
        long.enqueue();
        long.wait();
    }
}
