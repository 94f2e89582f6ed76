//! Running one command.

#![allow(unsafe_code, reason = "device memory is handed to kernels as slices")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crate::backend::command::{ArgsRef, Work};
use crate::backend::fault::Severity;
use crate::backend::host::args::address;
use crate::backend::host::{Host, Machine};
use crate::backend::{Call, CommandRef, Fault, Region, outcome};
use crate::callback::panic_message as message;
use crate::error::Error;
use crate::kernel::grid::Extent;
use crate::kernel::signature::ParamKind;
use crate::kernel::{Loaded, blocks};
use crate::layout::Pitch;
use crate::taint;

/// What became of a command.
pub(crate) enum Outcome {
    /// It ran.
    Done,
    /// It failed: a new failure, which its stream is to hear of.
    Failed(Arc<Error>),
    /// It was skipped, since what it reads was never written.
    Skipped(Arc<Error>),
}

/// Runs one command, in queue order: skips it if its input is tainted, and taints its output if it fails.
pub(crate) fn run(machine: &Machine, command: CommandRef<'_, Host>) -> Outcome {
    if let Some(lost) = machine.poison.error() {
        return skip(command, Arc::new(lost));
    }
    // A move takes the taint of its source along, whatever that is.
    let moves = matches!(command.job.0, Work::Move);
    if !moves && let Some(cause) = taint::admit(command) {
        return skip(command, cause);
    }
    match guarded(machine, command) {
        Ok(()) => {
            if !moves {
                taint::settle(command);
            }
            Outcome::Done
        }
        Err(error) => {
            let error = Arc::new(error);
            outcome::fail(command, &error);
            Outcome::Failed(error)
        }
    }
}

fn skip(command: CommandRef<'_, Host>, cause: Arc<Error>) -> Outcome {
    outcome::skip(command, &cause);
    Outcome::Skipped(cause)
}

/// Runs the command with its memory marked as used, in debug builds.
fn guarded(machine: &Machine, command: CommandRef<'_, Host>) -> Result<(), Error> {
    let met = machine.faults.meet(Call::Execute).and_then(|()| inside(command.args.regions));
    met.map_err(|fault| machine.poison.absorb(fault))?;
    if !cfg!(debug_assertions) {
        return perform(machine, command);
    }
    let held = Held::enter(command.args.regions).map_err(|fault| machine.poison.absorb(fault))?;
    let outcome = perform(machine, command);
    drop(held);
    outcome
}

/// Whether every region lies in the memory that it names. One that did not would look like an empty one to whoever
/// resolves it, and the operation would do nothing and succeed.
fn inside(regions: &[Region<Host>]) -> Result<(), Fault> {
    if regions.iter().all(|region| region.start == region.end || address(region).is_some()) {
        return Ok(());
    }
    Err(Fault::new(Call::Execute, Severity::Sticky, "illegal address: outside of its memory"))
}

/// Regions that are in use.
struct Held<'r>(&'r [Region<Host>]);

impl<'r> Held<'r> {
    fn enter(regions: &'r [Region<Host>]) -> Result<Self, Fault> {
        for (index, region) in regions.iter().enumerate() {
            let Some(contents) = &region.contents else { continue };
            let range = contents.offset + region.start..contents.offset + region.end;
            if let Err(fault) = contents.page.memory.enter(range, region.access) {
                drop(Held(regions.get(..index).unwrap_or(&[])));
                return Err(fault);
            }
        }
        Ok(Held(regions))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for region in self.0 {
            if let Some(contents) = &region.contents {
                let range = contents.offset + region.start..contents.offset + region.end;
                contents.page.memory.leave(&range, region.access);
            }
        }
    }
}

fn perform(machine: &Machine, command: CommandRef<'_, Host>) -> Result<(), Error> {
    let args = command.args;
    match (&command.job.0, args.regions) {
        (Work::Launch { kernel, extent }, _) => launch(machine, kernel, *extent, args),
        (Work::LaunchIndirect { kernel, params }, [buffers @ .., counts]) => {
            match extent(machine, kernel, params, buffers, counts)? {
                Some(extent) => launch(machine, kernel, extent, args),
                None => Ok(()),
            }
        }
        (Work::Copy, [from, to]) => {
            copy(from, to);
            Ok(())
        }
        (Work::Move, [from, to]) => {
            copy(from, to);
            if let (Some(from), Some(to)) = (&from.contents, &to.contents) {
                to.taint.adopt(&from.taint);
            }
            Ok(())
        }
        (Work::Fill, [to]) => {
            fill(to, args.scalars);
            Ok(())
        }
        (Work::Write { bytes, pitch }, [to]) => {
            write_rows(to, *pitch, bytes.bytes());
            Ok(())
        }
        (Work::Read { into, pitch }, [from]) => {
            into.land(|to| read_rows(from, *pitch, to));
            Ok(())
        }
        (Work::HostCall { call }, _) => {
            let run = AssertUnwindSafe(|| call.lock()());
            catch_unwind(run).map_err(|panic| Error::CallbackPanicked { message: message(panic) })
        }
        (Work::Raw { section }, _) => match **section {},
        (Work::Stamp { at }, _) => {
            *at.lock() = Some(Ok(Instant::now()));
            Ok(())
        }
        (
            Work::LaunchIndirect { .. }
            | Work::Copy
            | Work::Move
            | Work::Fill
            | Work::Write { .. }
            | Work::Read { .. },
            _,
        ) => {
            debug_assert!(false, "the core gathers the regions that a job has");
            Err(machine.poison.absorb(Fault::new(
                Call::Execute,
                Severity::Sticky,
                "an operation without its memory",
            )))
        }
    }
}

fn launch(
    machine: &Machine,
    kernel: &Loaded<Host>,
    extent: Extent,
    args: ArgsRef<'_, Host>,
) -> Result<(), Error> {
    // SAFETY: `run` needs every byte that this launch writes to itself, and those that it reads unwritten. The core enqueues
    // an operation after every conflicting one, by byte range: on this queue by its order, on others and within graphs by
    // waits and edges. Within the launch, an output came from a `&mut` of a buffer that owns its bytes.
    let run = AssertUnwindSafe(|| unsafe { kernel.code.run(machine, args, extent) });
    catch_unwind(run)
        .map_err(|panic| Error::KernelPanicked { kernel: kernel.name.clone(), message: message(panic) })
}

/// The extent of a launch that finds the number of its blocks in `counts`; `None` when it comes to nothing.
fn extent(
    machine: &Machine,
    kernel: &Loaded<Host>,
    params: &[ParamKind],
    buffers: &[Region<Host>],
    counts: &Region<Host>,
) -> Result<Option<Extent>, Error> {
    let Some(grid) = blocks::counted(bytes(counts)) else {
        debug_assert!(false, "the core counts the counts");
        return Ok(None);
    };
    let extent = grid.resolve(&kernel.name, kernel.block, &machine.limits())?;
    if let Some(extent) = extent.filter(|_| kernel.code.is_chunked()) {
        let bytes = buffers.iter().map(|region| region.end - region.start);
        let buffers = params.iter().filter_map(ParamKind::buffer).zip(bytes);
        blocks::chunkable(&kernel.name, buffers, extent.outer())?;
    }
    Ok(extent)
}

fn bytes(region: &Region<Host>) -> &[u8] {
    let Some((address, len)) = address(region) else { return &[] };
    // SAFETY: `from_raw_parts` needs valid, initialised bytes of one live allocation (`address` checked the range
    // against the page, which the region keeps alive; pages start as zeros), unchanged while the slice lives: nothing
    // that writes them runs at the same time, by the core's order (see `perform`).
    unsafe { std::slice::from_raw_parts(address.as_ptr(), len) }
}

#[allow(clippy::mut_from_ref, reason = "the region is a claim on device memory, not a container of it")]
fn bytes_mut(region: &Region<Host>) -> &mut [u8] {
    let Some((address, len)) = address(region) else { return &mut [] };
    // SAFETY: as in `bytes`; and nothing else uses these bytes at the same time, by the core's order. Each caller
    // makes one slice of its one output, and keeps it only for itself.
    unsafe { std::slice::from_raw_parts_mut(address.as_ptr(), len) }
}

fn copy(from: &Region<Host>, to: &Region<Host>) {
    // The two never overlap: `to` came from a `&mut` of a buffer that owns its bytes.
    write(to, bytes(from));
}

fn write(to: &Region<Host>, from: &[u8]) {
    put(bytes_mut(to), from);
}

/// Writes the rows, which lie side by side in `from`, and leaves what is between them as it is.
fn write_rows(to: &Region<Host>, pitch: Option<Pitch>, from: &[u8]) {
    let Some(pitch) = pitch else { return write(to, from) };
    let to = bytes_mut(to);
    for (row, from) in pitch.ranges(0).zip(from.chunks(pitch.row)) {
        put(to.get_mut(row).unwrap_or_default(), from);
    }
}

fn read_rows(from: &Region<Host>, pitch: Option<Pitch>, to: &mut [u8]) {
    let from = bytes(from);
    let Some(pitch) = pitch else { return put(to, from) };
    for (row, to) in pitch.ranges(0).zip(to.chunks_mut(pitch.row)) {
        put(to, from.get(row).unwrap_or_default());
    }
}

fn put(to: &mut [u8], from: &[u8]) {
    let len = to.len().min(from.len());
    debug_assert_eq!(to.len(), from.len(), "the core compares lengths before it enqueues");
    if let (Some(to), Some(from)) = (to.get_mut(..len), from.get(..len)) {
        to.copy_from_slice(from);
    }
}

fn fill(to: &Region<Host>, pattern: &[u8]) {
    match pattern {
        [] => debug_assert!(false, "a fill has a pattern"),
        [byte] => bytes_mut(to).fill(*byte),
        _ => bytes_mut(to).chunks_mut(pattern.len()).for_each(|element| {
            if let Some(pattern) = pattern.get(..element.len()) {
                element.copy_from_slice(pattern);
            }
        }),
    }
}
