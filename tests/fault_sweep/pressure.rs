//! A program that needs more memory than there is, unless what is free is given back and what is spread is moved
//! together: with work in flight, eagerly and at the end of a window.

use dacapo::prelude::*;
use dacapo::{AllocationMode, Result};

use super::log::{Cell, End, Log, Manner, Part};
use super::program::Place;
use super::support_objects::{Kernels, N, grid};

/// Three pages of the pools: two of the first slot's, and one of the second's.
pub const LIMIT: usize = 6 << 20;

/// How many reads the program makes.
pub const READS: usize = 10;

/// Bytes for which no shared page is enough.
const LARGE: usize = 3 << 19;

/// Runs the program once; everything that it made is dropped when it returns.
pub fn run(place: &Place<'_>, manner: Manner) -> Log {
    let mut log = Log::new(manner);
    let _ = squeeze(place, &mut log);
    log
}

fn squeeze(place: &Place<'_>, log: &mut Log) -> Result<(), End> {
    let k = log.need("load", Kernels::try_load(place.device))?;
    let mut a = log.need("stream", place.device.stream())?;
    let mut b = log.need("stream", place.device.stream())?;
    let mut parts = Part::spread(log, &mut a)?;
    let mut far = log.cell("alloc", b.alloc(N))?;
    far.fill(log, &mut b, 4)?;
    let launched = b.launch(&k.inc, grid(), (&mut far.buffer,));
    far.holds = log.met("launch", launched)?.and(far.holds).map(|far| far + 1);
    // In flight on the other slot, which whoever moves them must wait for.
    for (value, part) in (40..).zip(&mut parts) {
        part.fill(log, &mut b, value)?;
    }

    // The pages are full of holes, and a large buffer fits none of them.
    large(log, &mut a, AllocationMode::Pooled, 3)?;
    parts.iter_mut().try_for_each(|part| part.check(log, &mut b))?;
    log.read(&mut a, &far)?;
    large(log, &mut b, AllocationMode::Persistent, 5)?;
    window(log, &k, &mut a, &mut far)?;
    parts.iter_mut().try_for_each(|part| part.check(log, &mut a))?;
    log.read(&mut b, &far)?;
    drop(parts);
    large(log, &mut a, AllocationMode::Dedicated, 7)?;
    for s in [&mut a, &mut b] {
        log.met("sync", s.sync())?;
        log.met("cleanup", s.memory_cleanup())?;
    }
    Ok(())
}

/// A large buffer for a moment.
fn large(log: &mut Log, s: &mut Stream, mode: AllocationMode, value: u8) -> Result<(), End> {
    let buffer = s.allocating(mode, |w| w.alloc_scratch::<u8>(LARGE));
    let Some(mut buffer) = log.met("alloc large", buffer)? else { return Ok(()) };
    let filled = s.fill(&mut buffer, value);
    let filled = log.met("fill", filled)?;
    if let Some(found) = log.met("read", s.read(&buffer))? {
        assert!(
            filled.is_some() && found == vec![value; LARGE],
            "a large buffer holds what it was filled with"
        );
        log.reads += 1;
    }
    Ok(())
}

/// A graph whose arena is large, and that adds one to `far`.
fn window(log: &mut Log, k: &Kernels, s: &mut Stream, far: &mut Cell) -> Result<(), End> {
    let step = s.record(|w| {
        let mut tmp = w.alloc_scratch::<u8>(LARGE)?;
        w.fill(&mut tmp, 9)?;
        w.launch(&k.inc, grid(), (&mut far.buffer,))
    });
    if let Some((mut graph, ())) = log.met("record", step)? {
        let replayed = graph.replay(s);
        far.holds = log.met("replay", replayed)?.and(far.holds).map(|far| far + 1);
    }
    log.read(s, far)
}
