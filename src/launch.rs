//! Launches whose arguments are gathered: what is still to be checked of them, and their way to the device.

#![forbid(unsafe_code)]

use std::hint::cold_path;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::backend::command::Work;
use crate::backend::{AtOnce, Backend, Command, Fault, Job, Submitter};
use crate::capture::recorder::Kind;
use crate::error::{Error, Result};
use crate::kernel::args::UseOf;
use crate::kernel::check::{Checks, Facts};
use crate::kernel::grid::are_within;
use crate::kernel::lengths;
use crate::kernel::signature::{ParamKind, Role};
use crate::kernel::{Extent, Grid, Loaded, blocks};
use crate::order::{Mark, Marks};
use crate::stream::StreamCore;
use crate::submit::{self, Problem, Route, Step};

/// A launch, without what it uses. Of no signature any more, so that all kernels share the code that follows.
pub(crate) struct Launch<'l, B: Backend> {
    pub(crate) kernel: &'l Arc<Loaded<B>>,
    pub(crate) checks: &'l Checks,
    pub(crate) grid: Grid,
    /// Whether the last of the uses counts its blocks.
    pub(crate) is_indirect: bool,
}

impl<B: Backend> Launch<'_, B> {
    /// Enqueues or records it, or, with a `problem`, that it failed; returns why it did. An empty grid is nothing.
    pub(crate) fn perform(
        &self,
        route: &mut Route<'_, B>,
        uses: &[UseOf<'_, B>],
        problem: Problem,
    ) -> Problem {
        let (core, kernel) = (&mut *route.core, &**self.kernel);
        lengths::supply(kernel.lengths, uses, &core.tables, &mut core.scalars);
        let extent = self.grid.extent(kernel.block);
        let blocks = extent.blocks();
        if problem.is_some() || !self.is_usual(core, &blocks) {
            return self.perform_checked(route, uses, problem);
        }
        if B::LAUNCHES_AT_ONCE && route.window.is_none() {
            return self.at_once(core, uses, &extent, &blocks);
        }
        self.hand_over(route, uses, &extent, None)
    }

    /// Whether a short look finds nothing that must be looked at more closely.
    #[inline]
    fn is_usual(&self, core: &StreamCore<B>, blocks: &[u64; 3]) -> bool {
        let kernel = &**self.kernel;
        kernel.device == core.device.id
            && are_within(*blocks, &kernel.most_blocks)
            && core.tables.is_unused()
            && self.checks.is_empty()
            && !self.is_indirect
            && !B::runs_in_chunks(&kernel.code)
    }

    /// [`perform`](Launch::perform), with all checks there are.
    #[inline(never)]
    fn perform_checked(
        &self,
        route: &mut Route<'_, B>,
        uses: &[UseOf<'_, B>],
        mut problem: Problem,
    ) -> Problem {
        let (core, kernel) = (&*route.core, &**self.kernel);
        if self.is_indirect && problem.is_none() {
            let refusal = uses.last().and_then(|counts| blocks::refusal(kernel, self.checks, counts));
            problem = refusal.map(Box::new);
        }
        if kernel.device != core.device.id {
            let (expected, found) = (core.device.id, kernel.device);
            let error = Error::WrongDevice { operation: "launch", object: "kernel", expected, found };
            problem = Some(Box::new(error));
        }
        problem = problem.or_else(|| core.tables.problem(&kernel.name).map(Box::new));
        let extent = match self.grid.resolve(&kernel.name, kernel.block, &core.device.limits) {
            Ok(None) if problem.is_none() => return None,
            Ok(extent) => extent,
            Err(error) => {
                problem.get_or_insert_with(|| Box::new(error));
                None
            }
        };
        let extent = extent.unwrap_or_else(Extent::nothing);
        if problem.is_none() {
            problem = self.check(core, uses, extent).err().map(Box::new);
        }
        self.hand_over(route, uses, &extent, problem)
    }

    /// What speaks against it for its sizes: chunks that do not divide, and the program's own checks.
    fn check(&self, core: &StreamCore<B>, uses: &[UseOf<'_, B>], extent: Extent) -> Result<()> {
        let Loaded { name, params, code, .. } = &**self.kernel;
        if !self.is_indirect && B::runs_in_chunks(code) {
            let buffers = params.iter().filter_map(ParamKind::buffer);
            // Tables are not among the uses yet.
            let buffers = buffers.filter(|param| param.role != Role::Table);
            let bytes = uses.iter().map(|used| used.end - used.start);
            blocks::chunkable(name, buffers.zip(bytes), extent.outer())?;
        }
        let length = |param| lengths::elements(params, param, uses, &core.tables);
        self.checks.run(name, extent, Facts::new(&length, &core.scalars))
    }

    /// Enqueues or records it as a command.
    fn hand_over(
        &self,
        route: &mut Route<'_, B>,
        uses: &[UseOf<'_, B>],
        extent: &Extent,
        problem: Problem,
    ) -> Problem {
        let job = || {
            let kernel = self.kernel.clone();
            Job(match self.is_indirect {
                false => Work::Launch { kernel, extent: *extent },
                true => Work::LaunchIndirect { params: kernel.params, kernel },
            })
        };
        let outcome = match route.window {
            Some(guard) => route.record(guard, "launch", uses, Kind::Plain, job, problem),
            None => route.perform("launch", uses, job(), Kind::Plain, problem).map(drop),
        };
        outcome.err().map(Box::new)
    }

    /// Launches without a command: the same step as any other operation's, in which nothing is kept of the arguments. What
    /// the backend does not take so becomes a command after all.
    fn at_once(
        &self,
        core: &mut StreamCore<B>,
        uses: &[UseOf<'_, B>],
        extent: &Extent,
        blocks: &[u64; 3],
    ) -> Problem {
        let StreamCore { device, slot, scalars, by, last, command, .. } = core;
        let (device, slot, of) = (&**device, *slot, device.slot(*slot));
        submit::make_room(device, of, slot);
        let mut lane = submit::enter(device, of, slot, uses);
        if device.poison.is_set() {
            cold_path();
            return device.poison.error().map(Box::new);
        }
        let mark = Mark { slot, seq: lane.seq + 1 };
        let mut step = Step { device, mark, waits: Marks::default(), problem: None };
        let mut places: SmallVec<[u64; 36]> = SmallVec::new();
        // Asked before any taint is looked at: a callback that may still fail is not through by then.
        let mut is_clean = device.backend.is_settled();
        step.resolve("launch", uses, |used, contents| {
            let place = contents.map_or(Some(0), |contents| contents.place(used.start, used.end));
            is_clean &= place.is_some();
            places.push(place.unwrap_or(0));
        });
        step.wait();
        let mut fault = None;
        if is_clean && step.problem.is_none() {
            let Loaded { code, block, .. } = &**self.kernel;
            let launch = AtOnce { code, blocks, block, places: &places, scalars };
            fault = device.backend.launch(&of.queue, mark.seq, launch);
            if fault.is_none() {
                (lane.seq, *last) = (mark.seq, mark.seq);
                return None;
            }
        }
        let problem = self.as_command(step, fault, (uses, extent, scalars), by, command);
        (lane.seq, *last) = (mark.seq, mark.seq);
        problem
    }

    /// Submits it as a command, under the lock under which its uses were resolved; or that it failed.
    #[cold]
    fn as_command(
        &self,
        mut step: Step<'_, B>,
        refusal: Option<Fault>,
        (uses, extent, scalars): (&[UseOf<'_, B>], &Extent, &[u8]),
        by: &Submitter,
        command: &mut Command<B>,
    ) -> Problem {
        let Step { device, mark, .. } = step;
        if command.args.regions.capacity() == 0 {
            command.args = device.slot(mark.slot).spares.take();
        }
        command.job = Job(Work::Launch { kernel: self.kernel.clone(), extent: *extent });
        command.args.scalars.extend_from_slice(scalars);
        for used in uses.iter().filter(|used| !used.alloc.is_token) {
            // What cannot be resolved is the problem that the launch has.
            if let Ok(contents) = used.alloc.state.lock().resolve("launch") {
                command.args.push(used, contents.filter(|_| used.start < used.end));
            }
        }
        step.problem = step.problem.or_else(|| Some(Box::new(device.poison.absorb(refusal?))));
        let problem = step.submit(by, command);
        command.clear();
        problem
    }
}
