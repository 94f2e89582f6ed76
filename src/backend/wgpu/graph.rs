//! Sealed graphs: steps with everything in place, which a replay encodes in one walk.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use static_assertions::assert_impl_all;

use crate::backend::command::{Work, fits};
use crate::backend::fault::Severity;
use crate::backend::wgpu::bind::Groups;
use crate::backend::wgpu::memory::{Place, WORD, WgpuMemory};
use crate::backend::wgpu::queue::{Shared, State, When};
use crate::backend::wgpu::scope::scoped;
use crate::backend::wgpu::scratch::Scratch;
use crate::backend::wgpu::steps::{Resolver, Step, Steps};
use crate::backend::wgpu::{Machine, Wgpu, worker};
use crate::backend::{Call, CommandRef, Fault, Fleeting, Job, Submitter, outcome};
use crate::error::Error;
use crate::failures::Reports;
use crate::graph::commands::Commands;
use crate::order::Mark;
use crate::taint;

/// A sealed graph. One replay at a time: the core orders them.
///
/// wgpu runs the dispatches of a submission one after the other, so that the order of recording is as good as any.
pub struct WgpuExec {
    commands: Arc<Commands<Wgpu>>,
    steps: Vec<Step>,
    /// Per command, one past its last step.
    ends: Vec<usize>,
    fleeting: Vec<Fleeting<Wgpu>>,
    calls_host: bool,
    /// Nothing that the graph uses was tainted when so many changes of taint had been made; the largest number at first.
    clean_at: AtomicU64,
    /// How many steps each submission of a replay has.
    part: u32,
}

impl WgpuExec {
    pub(crate) fn seal(
        machine: &Arc<Machine>,
        commands: &Arc<Commands<Wgpu>>,
        fleeting: Vec<Fleeting<Wgpu>>,
    ) -> Result<Self, Fault> {
        let written = Written::gather(machine, commands)?;
        // The graph keeps its groups itself; the same kernel on the same ranges has one.
        let (mut groups, mut scratch) = (Groups::new(usize::MAX), Scratch::default());
        let (mut steps, mut ends, mut taken) = (Vec::new(), Vec::with_capacity(commands.len()), 0);
        for command in commands.iter() {
            let mut these = Steps::new();
            let (groups, scratch) = (&mut groups, &mut scratch);
            let mut resolver = Resolver { machine, groups, scratch, steps: &mut these };
            match &command.job.0 {
                Work::HostCall { .. } => {}
                Work::Write { .. } => written.replay(&mut resolver, command, &mut taken)?,
                _ => resolver.command(command)?,
            }
            steps.extend(these);
            ends.push(steps.len());
        }
        let calls_host = commands.jobs().any(|job| matches!(job.0, Work::HostCall { .. }));
        let (commands, part) = (commands.clone(), machine.pace.part(steps.len()));
        let clean_at = AtomicU64::new(u64::MAX);
        Ok(WgpuExec { commands, steps, ends, fleeting, calls_host, clean_at, part })
    }

    /// Whether a replay has to wait for the host.
    pub(crate) fn calls_host(&self) -> bool {
        self.calls_host
    }

    /// How many steps each submission of a replay to an idle device has.
    pub(crate) fn part(&self) -> u32 {
        self.part
    }

    /// Encodes a replay.
    pub(crate) fn replay(
        &self,
        machine: &Arc<Machine>,
        shared: &Arc<Shared>,
        state: &mut State,
        mark: Mark,
        reports: &Reports,
        enough: u32,
    ) {
        let changes = taint::changes();
        // Relaxed: replays are ordered by the lock of the graph's slot.
        if self.clean_at.load(Ordering::Relaxed) == changes {
            return self.walk(machine, shared, state, &self.steps, enough);
        }
        self.restart();
        let (mut start, mut skipped) = (0, false);
        for (command, end) in self.commands.iter().zip(&self.ends) {
            match taint::admit(command) {
                None => {
                    taint::settle(command);
                    let steps = self.steps.get(start..*end).unwrap_or_default();
                    self.walk(machine, shared, state, steps, enough);
                }
                Some(cause) => {
                    skipped = true;
                    outcome::skip(command, &cause);
                    reports.note(mark, &cause);
                }
            }
            start = *end;
        }
        self.clean_at.store(if skipped { u64::MAX } else { changes }, Ordering::Relaxed);
    }

    /// Encodes steps, submitting what is there before one whenever it is enough.
    fn walk(
        &self,
        machine: &Arc<Machine>,
        shared: &Arc<Shared>,
        state: &mut State,
        steps: &[Step],
        enough: u32,
    ) {
        for step in steps {
            shared.submit_in_time(machine, state, enough, When::Now);
            state.encoder.step(machine, step);
        }
    }

    /// Replays a graph that calls the host, on the thread of its slot.
    pub(crate) fn replay_in_parts(
        &self,
        machine: &Arc<Machine>,
        shared: &Arc<Shared>,
        mark: Mark,
        by: &Submitter,
        reports: &Reports,
    ) {
        if !self.calls_host {
            let mut state = shared.state.lock();
            let enough = shared.enough(machine, &mut state, self.part);
            return self.replay(machine, shared, &mut state, mark, reports, enough);
        }
        self.restart();
        let mut start = 0;
        for (command, end) in self.commands.iter().zip(&self.ends) {
            let lost = machine.poison.error().map(Arc::new);
            if let Some(cause) = lost.or_else(|| taint::admit(command)) {
                outcome::skip(command, &cause);
                reports.note(mark, &cause);
            } else if let Work::HostCall { call } = &command.job.0 {
                let called = worker::make_call(machine, shared, command, call);
                if let Some(error) = called.err().map(Arc::new) {
                    outcome::fail(command, &error);
                    by.failures.park(&error);
                    reports.note(mark, &error);
                }
            } else {
                taint::settle(command);
                let steps = self.steps.get(start..*end).unwrap_or_default();
                self.walk(machine, shared, &mut shared.state.lock(), steps, self.part);
            }
            start = *end;
        }
    }

    /// Remembers, in the place of a replay, that nothing was written.
    pub(crate) fn fail(&self, cause: &Arc<Error>) {
        self.commands.iter().for_each(|command| outcome::fail(command, cause));
    }

    /// What nobody else sees starts every replay as if it were new.
    fn restart(&self) {
        self.fleeting.iter().for_each(|fleeting| fleeting.contents.taint.clear(0..fleeting.bytes));
    }
}

/// The bytes of all recorded writes, one after the other: a graph copies them anew on every replay.
struct Written(Option<WgpuMemory>);

impl Written {
    fn gather(machine: &Machine, commands: &Commands<Wgpu>) -> Result<Self, Fault> {
        let bytes = |job: &Job<Wgpu>| match &job.0 {
            Work::Write { bytes, .. } => Some(bytes.clone()),
            _ => None,
        };
        let sizes = commands.jobs().filter_map(bytes).map(|bytes| bytes.bytes().len());
        let sum: usize = sizes.map(|bytes| bytes.next_multiple_of(WORD as usize)).sum();
        if sum == 0 {
            return Ok(Written(None));
        }
        let descriptor = wgpu::BufferDescriptor {
            label: Some("dacapo recorded writes"),
            size: sum as u64,
            usage: WgpuMemory::USAGE,
            mapped_at_creation: true,
        };
        let buffer = machine.create(Call::Seal, |device| device.create_buffer(&descriptor))?;
        let view = buffer.get_mapped_range_mut(..);
        let refused = |error: wgpu::MapRangeError| Fault::new(Call::Seal, Severity::Call, error.to_string());
        let mut view = view.map_err(refused)?;
        let mut at = 0;
        for bytes in commands.jobs().filter_map(bytes) {
            let len = bytes.bytes().len();
            view.slice(at..at + len).copy_from_slice(bytes.bytes());
            at += len.next_multiple_of(WORD as usize);
        }
        drop(view);
        scoped(&machine.device, Call::Seal, || buffer.unmap())?;
        Ok(Written(Some(WgpuMemory::new(buffer))))
    }

    /// The steps of one recorded write, whose bytes start `taken` bytes into all.
    fn replay(
        &self,
        resolver: &mut Resolver<'_>,
        command: CommandRef<'_, Wgpu>,
        taken: &mut u64,
    ) -> Result<(), Fault> {
        let (Some(memory), Work::Write { bytes, pitch }, [to]) =
            (&self.0, &command.job.0, command.args.regions)
        else {
            return Ok(());
        };
        let len = bytes.bytes().len() as u64;
        let from = Place { memory, at: *taken, len };
        *taken += len.next_multiple_of(WORD);
        let Some(to) = Place::of(Call::Write, to)? else { return Ok(()) };
        fits(Call::Write, *pitch, to.len as usize, bytes.bytes().len())?;
        resolver.scatter(&from, &to, *pitch)
    }
}

assert_impl_all!(WgpuExec: Send, Sync);
