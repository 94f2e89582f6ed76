//! Where the bytes of a device are.

#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::backend::Backend;
use crate::device::{DeviceCore, Slot};
use crate::memory::allocation::Allocation;
use crate::memory::drops;
use crate::memory::pool::unstash_all;

/// Where the memory of a device is, as one moment saw it; made by [`Device::memory_report`](crate::Device::memory_report).
///
/// All numbers are bytes unless they say otherwise. Prints as a table; with the feature `serde` it can be serialised.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryReport {
    /// The backend's name.
    pub backend: &'static str,
    /// The number of the device.
    pub device: u32,
    /// The most that the device may hold from the driver, if its options set a limit.
    pub limit: Option<usize>,
    /// Held from the driver.
    pub held: usize,
    /// Of those, what belongs to live buffers and to the arenas of graphs, with what alignment adds.
    pub in_use: usize,
    /// The pools, one for each slot.
    pub pools: Vec<PoolReport>,
    /// Pages that one buffer or arena has to itself and no pool keeps.
    pub dedicated: DedicatedReport,
    /// Memory of other libraries that buffers were made of; no part of what is held, and under no limit.
    pub adopted: AdoptedReport,
    /// Each graph's arena.
    pub arenas: Vec<ArenaReport>,
    /// What waits for work in flight.
    pub pending: PendingReport,
    /// The pinned host memory that transfers go through; no part of what is held.
    pub staging: StagingReport,
}

/// The pool of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PoolReport {
    /// The slot.
    pub slot: usize,
    /// How many pages it has.
    pub pages: usize,
    /// Bytes of its pages.
    pub held: usize,
    /// Of those, what buffers have.
    pub in_use: usize,
    /// Of those, what nobody has.
    pub free: usize,
    /// The largest piece that one buffer could have without a new page.
    pub largest_free: usize,
    /// Of those in use, what a graph, an open window or a raw address holds where it is.
    pub pinned: usize,
    /// The slot's table cache, whose tables are among the buffers.
    pub tables: TablesReport,
}

/// The cache of the tables that launches of one slot brought along ([`Uniform`](crate::Uniform)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TablesReport {
    /// How many tables it has.
    pub entries: usize,
    /// Bytes of their contents.
    pub bytes: usize,
    /// How many of them a graph or window holds; the others leave for newer ones.
    pub pinned: usize,
}

/// Pages that belong to one buffer or arena each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DedicatedReport {
    /// How many there are.
    pub pages: usize,
    /// Bytes of them.
    pub bytes: usize,
}

/// Memory of other libraries. It stays where it is, belongs to no pool, and goes back to where it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct AdoptedReport {
    /// How many buffers were made of such memory and live.
    pub buffers: usize,
    /// Bytes of it.
    pub bytes: usize,
}

/// The arena of one graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ArenaReport {
    /// The graph, as [`Graph::id`](crate::Graph::id) says.
    pub graph: u64,
    /// Bytes that the graph needs of it.
    pub bytes: usize,
    /// Whether an older graph, which lives too, has the same arena (see
    /// [`CaptureOptions::share_arena`](crate::CaptureOptions::share_arena)), so that its bytes are counted there.
    pub shared: bool,
}

/// What waits for work in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PendingReport {
    /// Pages on their way back to the driver.
    pub pages: usize,
    /// Bytes of those pages; they count as held.
    pub bytes: usize,
    /// Writes and reads whose host memory the device may still touch, or has not been asked about since.
    pub transfers: usize,
    /// Bytes of that host memory, pinned and from the heap.
    pub host_bytes: usize,
}

/// Pinned host memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StagingReport {
    /// Bytes held from the driver.
    pub held: usize,
    /// Of those, what carries a transfer.
    pub in_use: usize,
    /// How many transfers went through the heap so far, since there was no pinned memory for them.
    pub fallbacks: u64,
}

/// What a graph that lives has of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arena {
    pub(crate) graph: u64,
    pub(crate) bytes: usize,
    /// Which allocation it is: graphs may share one.
    pub(crate) memory: u64,
}

pub(crate) fn report<B: Backend>(device: &DeviceCore<B>) -> MemoryReport {
    let memory = &device.memory;
    // Free bytes are told as they could be had.
    (0..device.slots.len() as u32).for_each(|slot| {
        unstash_all(device, slot);
    });
    let pools: Vec<_> = (0..).zip(&device.slots).map(|(slot, core)| pool_report(slot, core)).collect();
    let dedicated = DedicatedReport { pages: memory.dedicated.tenants(), bytes: memory.dedicated.bytes() };
    let adopted = AdoptedReport { buffers: memory.adopted.tenants(), bytes: memory.adopted.bytes() };
    let arenas = arena_reports(&memory.arenas.lock());
    MemoryReport {
        backend: B::NAME,
        device: device.id,
        limit: memory.limit,
        held: memory.held.load(Ordering::Relaxed),
        in_use: pools.iter().map(|pool| pool.in_use).sum::<usize>() + dedicated.bytes,
        arenas,
        pools,
        dedicated,
        adopted,
        pending: PendingReport {
            pages: memory.graveyard.pages(),
            bytes: memory.graveyard.bytes(),
            transfers: device.slots.iter().map(|slot| slot.backlog.items()).sum(),
            host_bytes: drops::pending_bytes(device),
        },
        staging: device.staging.report(),
    }
}

fn arena_reports(arenas: &[Arena]) -> Vec<ArenaReport> {
    let report = |(at, arena): (usize, &Arena)| {
        let shared = arenas.iter().take(at).any(|older| older.memory == arena.memory);
        ArenaReport { graph: arena.graph, bytes: arena.bytes, shared }
    };
    arenas.iter().enumerate().map(report).collect()
}

fn pool_report<B: Backend>(slot: usize, core: &Slot<B>) -> PoolReport {
    let tables = core.tables.lock().usage();
    let pool = core.pool.lock();
    let shared = || pool.shared.iter().flatten();
    let tenants: Vec<Arc<Allocation<B>>> =
        shared().flat_map(|page| page.tenants.alive()).chain(pool.whole.alive()).collect();
    let report = PoolReport {
        slot,
        pages: shared().count() + pool.whole_pages(),
        held: pool.held,
        in_use: pool.in_use,
        free: pool.free_bytes(),
        largest_free: pool.largest_free(),
        pinned: 0,
        tables,
    };
    // The pool's lock comes after a tenant's, and a tenant that goes last takes it too.
    drop(pool);
    PoolReport { pinned: tenants.iter().map(|tenant| tenant.pinned_bytes()).sum(), ..report }
}

impl fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let free = self.held.saturating_sub(self.in_use);
        write!(f, "device {} ({}): {} held", self.device, self.backend, Bytes(self.held))?;
        if let Some(limit) = self.limit {
            write!(f, " of at most {}", Bytes(limit))?;
        }
        writeln!(f, ", {} in use, {} free or pending", Bytes(self.in_use), Bytes(free))?;
        row(f, ["pool", "pages", "held", "in use", "free", "largest", "pinned"])?;
        for pool in &self.pools {
            let bytes = [pool.held, pool.in_use, pool.free, pool.largest_free, pool.pinned];
            let [held, in_use, free, largest, pinned] = bytes.map(|bytes| Bytes(bytes).to_string());
            let (slot, pages) = (pool.slot.to_string(), pool.pages.to_string());
            row(f, [&slot, &pages, &held, &in_use, &free, &largest, &pinned])?;
        }
        for (name, pages, bytes) in [
            ("dedicated", self.dedicated.pages, self.dedicated.bytes),
            ("pending", self.pending.pages, self.pending.bytes),
            ("transfers", self.pending.transfers, self.pending.host_bytes),
        ] {
            row(f, [name, &pages.to_string(), &Bytes(bytes).to_string(), "", "", "", ""])?;
        }
        if self.adopted.buffers > 0 {
            let AdoptedReport { buffers, bytes } = self.adopted;
            writeln!(f, "{:<10}{buffers:>8}{:>12}  of other libraries", "adopted", Bytes(bytes))?;
        }
        for PoolReport { slot, tables, .. } in self.pools.iter().filter(|pool| pool.tables.entries > 0) {
            let (name, bytes) = (format!("tables {slot}"), Bytes(tables.bytes));
            writeln!(f, "{name:<10}{:>8}{bytes:>12}  {} of them pinned", tables.entries, tables.pinned)?;
        }
        let StagingReport { held, in_use, fallbacks } = self.staging;
        let (held, in_use) = (Bytes(held), Bytes(in_use));
        writeln!(
            f,
            "{:<18}{held:>12}  pinned, {in_use} of it in use; {fallbacks} transfers without",
            "staging"
        )?;
        for arena in &self.arenas {
            let name = format!("graph {}", arena.graph);
            let of = if arena.shared { "in another graph's arena" } else { "arena" };
            writeln!(f, "{name:<18}{:>12}  {of}", Bytes(arena.bytes))?;
        }
        Ok(())
    }
}

fn row(f: &mut fmt::Formatter<'_>, cells: [&str; 7]) -> fmt::Result {
    let [name, pages, rest @ ..] = cells;
    write!(f, "{name:<10}{pages:>8}")?;
    rest.iter().filter(|cell| !cell.is_empty()).try_for_each(|cell| write!(f, "{cell:>12}"))?;
    writeln!(f)
}

/// Prints a number of bytes in the largest unit that has at least one.
struct Bytes(usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
        let text = match self.0 {
            bytes @ 0..1024 => format!("{bytes} B"),
            bytes => {
                let power = (bytes.ilog2() / 10).min(UNITS.len() as u32);
                let unit = UNITS.get(power as usize - 1).copied().unwrap_or("KiB");
                format!("{:.1} {unit}", bytes as f64 / f64::from(power * 10).exp2())
            }
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_printed_in_the_largest_unit_that_has_one() {
        let printed = [0, 1023, 1024, 1536, 5 << 20, 3 << 30, 1 << 41].map(|bytes| Bytes(bytes).to_string());
        assert_eq!(printed, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 MiB", "3.0 GiB", "2.0 TiB"]);
    }
}
