//! One operation, resolved to memory: what is enqueued, and what a sealed graph is made of.

#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::access::Access;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use crate::backend::fault::{Fault, Severity};
use crate::backend::sealed::Driver;
use crate::backend::{Backend, Call};
use crate::error::Result;
use crate::kernel::Loaded;
use crate::kernel::args::UseOf;
use crate::kernel::grid::Extent;
use crate::kernel::signature::ParamKind;
use crate::layout::Pitch;
use crate::memory::staging::Staged;
use crate::readback::Readback;
use crate::taint::Taint;

/// One allocation of the driver.
pub struct Page<B: Driver> {
    pub(crate) memory: B::Memory,
    pub(crate) bytes: usize,
}

/// The bytes of one tenant: where they are, and which of them were left unwritten.
///
/// In the order of its fields: what a launch needs is side by side.
#[repr(C)]
pub struct Contents<B: Driver> {
    /// Where the tenant's bytes start, on a backend whose memory has addresses, and how many bytes of the page are left from there on: a
    /// launch looks no further than here.
    pub(crate) address: u64,
    pub(crate) room: usize,
    pub(crate) taint: Taint,
    pub(crate) page: Arc<Page<B>>,
    /// Where the tenant's bytes start in the page.
    pub(crate) offset: usize,
}

impl<B: Driver> Contents<B> {
    /// Bytes of a new tenant, of which nothing is known to be unwritten.
    pub(crate) fn new(page: Arc<Page<B>>, offset: usize) -> Arc<Self> {
        let mut contents = Contents { page, offset, address: 0, room: 0, taint: Taint::default() };
        contents.settle_at(offset);
        Arc::new(contents)
    }

    /// The address of a range that lies in the page, if nothing of the tenant's was left unwritten.
    #[inline]
    pub(crate) fn place(&self, start: usize, end: usize) -> Option<u64> {
        let is_whole = self.taint.is_clean() && start <= end && end <= self.room;
        is_whole.then(|| self.address.wrapping_add(start as u64))
    }

    /// Moves to another place in the page, with all that follows from it: what nobody refers to any more serves the next
    /// tenant of its page.
    pub(crate) fn settle_at(&mut self, offset: usize) {
        self.offset = offset;
        self.address = B::address(&self.page.memory, offset).unwrap_or(0);
        self.room = self.page.bytes.saturating_sub(offset);
    }
}

/// Memory of a graph that holds nothing from one replay to the next. What a failed replay left unwritten there must
/// not outlive it: nobody outside could ever write it again.
pub struct Fleeting<B: Driver> {
    pub(crate) contents: Arc<Contents<B>>,
    pub(crate) bytes: usize,
}

/// A range of one tenant's bytes, as one operation uses it.
pub struct Region<B: Driver> {
    /// `None` for an empty range, which lies nowhere.
    pub(crate) contents: Option<Arc<Contents<B>>>,
    /// In bytes, from the start of the tenant.
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) access: Access,
}

impl<B: Driver> Region<B> {
    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.end
    }
}

impl<B: Driver> Clone for Region<B> {
    fn clone(&self) -> Self {
        Region { contents: self.contents.clone(), start: self.start, end: self.end, access: self.access }
    }
}

/// A few packed values: most launches have no more, so that a recorded one costs no allocation for them.
pub(crate) type Scalars = SmallVec<[u8; 32]>;

/// The arguments of one operation. Recycled, so that a warm launch allocates nothing.
pub struct ArgBlock<B: Driver> {
    /// In the order of the kernel's buffer parameters.
    pub(crate) regions: Vec<Region<B>>,
    /// The scalars' bytes, packed, in the order of the kernel's scalar parameters.
    pub(crate) scalars: Scalars,
}

impl<B: Driver> Default for ArgBlock<B> {
    fn default() -> Self {
        ArgBlock { regions: Vec::new(), scalars: Scalars::new() }
    }
}

impl<B: Backend> ArgBlock<B> {
    /// Adds the next region: the bytes of `used`, which are in `contents`, if there are any.
    #[inline]
    pub(crate) fn push(&mut self, used: &UseOf<'_, B>, contents: Option<&Arc<Contents<B>>>) {
        let UseOf { start, end, access, .. } = *used;
        self.regions.push(Region { contents: contents.cloned(), start, end, access });
    }
}

impl<B: Driver> ArgBlock<B> {
    /// Lets go of the arguments, and keeps their room for others.
    #[inline]
    fn clear(&mut self) {
        self.regions.clear();
        self.scalars.clear();
    }
}

/// What an operation does with its regions.
pub(crate) enum Work<B: Driver> {
    /// Runs a kernel.
    Launch { kernel: Arc<Loaded<B>>, extent: Extent },
    /// Runs a kernel with these parameters over as many blocks as the last region counts, which is none of its arguments.
    LaunchIndirect { kernel: Arc<Loaded<B>>, params: &'static [ParamKind] },
    /// Copies the first region to the second, of the same length.
    Copy,
    /// Moves a tenant: copies the first region to the second, of the same length, whatever was left unwritten of it,
    /// and what is known of that as well.
    Move,
    /// Repeats the bytes in `scalars` over the only region.
    Fill,
    /// Copies host bytes to the only region, or to its rows and nothing between them.
    Write { bytes: Arc<Staged>, pitch: Option<Pitch> },
    /// Copies the only region, or its rows, to the host.
    Read { into: Arc<Readback>, pitch: Option<Pitch> },
    /// Calls the user.
    HostCall { call: Callback },
    /// Runs what another library enqueued.
    Raw { section: Arc<B::Section> },
    /// Notes the time.
    Stamp { at: Arc<Stamp> },
}

/// The moment that a stamp noted, or why it did not; `None` before it ran.
pub(crate) type Stamp = Mutex<Option<Result<Instant>>>;

/// A host callback: a graph calls it once a replay, one call at a time.
pub(crate) type Callback = Arc<Mutex<dyn FnMut() + Send>>;

/// What an operation does, in the recorder and in commands alike.
pub struct Job<B: Driver>(pub(crate) Work<B>);

impl<B: Driver> Clone for Job<B> {
    fn clone(&self) -> Self {
        Job(match &self.0 {
            Work::Launch { kernel, extent } => Work::Launch { kernel: kernel.clone(), extent: *extent },
            Work::LaunchIndirect { kernel, params } => {
                Work::LaunchIndirect { kernel: kernel.clone(), params }
            }
            Work::Copy => Work::Copy,
            Work::Move => Work::Move,
            Work::Fill => Work::Fill,
            Work::Write { bytes, pitch } => Work::Write { bytes: bytes.clone(), pitch: *pitch },
            Work::Read { into, pitch } => Work::Read { into: into.clone(), pitch: *pitch },
            Work::HostCall { call } => Work::HostCall { call: call.clone() },
            Work::Raw { section } => Work::Raw { section: section.clone() },
            Work::Stamp { at } => Work::Stamp { at: at.clone() },
        })
    }
}

impl<B: Driver> Job<B> {
    /// The driver's call for it.
    pub(crate) fn call(&self) -> Call {
        match self.0 {
            Work::Launch { .. } | Work::LaunchIndirect { .. } => Call::Launch,
            Work::Copy | Work::Move => Call::Copy,
            Work::Fill => Call::Fill,
            Work::Write { .. } => Call::Write,
            Work::Read { .. } => Call::Read,
            Work::HostCall { .. } => Call::HostCall,
            Work::Raw { .. } => Call::Section,
            Work::Stamp { .. } => Call::Stamp,
        }
    }

    /// The rows of the only region, where it is used in rows.
    pub(crate) fn pitch(&self) -> Option<Pitch> {
        match self.0 {
            Work::Write { pitch, .. } | Work::Read { pitch, .. } => pitch,
            _ => None,
        }
    }

    /// The name in listings: the kernel's, or what is done.
    pub(crate) fn name(&self) -> &str {
        match &self.0 {
            Work::Launch { kernel, .. } | Work::LaunchIndirect { kernel, .. } => &kernel.name,
            Work::Copy => "copy",
            Work::Move => "move",
            Work::Fill => "fill",
            Work::Write { .. } => "write",
            Work::Read { .. } => "read",
            Work::HostCall { .. } => "host call",
            Work::Raw { .. } => B::SECTION,
            Work::Stamp { .. } => "stamp",
        }
    }
}

/// One operation, resolved.
pub struct Command<B: Driver> {
    pub(crate) job: Job<B>,
    pub(crate) args: ArgBlock<B>,
}

/// One operation, wherever it lies: on its way to the device, or in a graph.
pub struct CommandRef<'c, B: Driver> {
    pub(crate) job: &'c Job<B>,
    pub(crate) args: ArgsRef<'c, B>,
}

/// The arguments of one operation; see [`ArgBlock`].
pub struct ArgsRef<'c, B: Driver> {
    pub(crate) regions: &'c [Region<B>],
    pub(crate) scalars: &'c [u8],
}

impl<B: Driver> Copy for CommandRef<'_, B> {}
impl<B: Driver> Clone for CommandRef<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Driver> Copy for ArgsRef<'_, B> {}
impl<B: Driver> Clone for ArgsRef<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Driver> Command<B> {
    #[inline]
    pub(crate) fn view(&self) -> CommandRef<'_, B> {
        let args = ArgsRef { regions: &self.args.regions, scalars: &self.args.scalars };
        CommandRef { job: &self.job, args }
    }

    /// Lets go of what it is made of, and keeps the room of its arguments for another one.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.args.clear();
        // Last: a callback's values are the user's, whose drop may panic, and the next operation finds no argument of this one.
        self.job = Job(Work::Copy);
    }

    /// What is left in place of a command that a backend took.
    pub(crate) fn taken() -> Self {
        Command { job: Job(Work::Copy), args: ArgBlock::default() }
    }
}

/// Whether `bytes` bytes of the host are those of a range of `len`, or of its rows.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) fn fits(
    call: Call,
    pitch: Option<Pitch>,
    len: usize,
    bytes: usize,
) -> std::result::Result<(), Fault> {
    let fits = match pitch {
        None => len == bytes,
        Some(pitch) => {
            let last = pitch.rows.checked_sub(1).and_then(|rows| rows.checked_mul(pitch.step));
            let span = last.and_then(|last| last.checked_add(pitch.row));
            span == Some(len) && pitch.rows.checked_mul(pitch.row) == Some(bytes) && pitch.row <= pitch.step
        }
    };
    let misfit = || Fault::new(call, Severity::Call, "a transfer between ranges of two lengths");
    if fits { Ok(()) } else { Err(misfit()) }
}

/// Argument blocks that are free to be used again.
pub struct Spares<B: Driver>(Mutex<Vec<ArgBlock<B>>>);

impl<B: Driver> Spares<B> {
    /// More than a queue may hold in flight need not be kept.
    const KEPT: usize = 4096;

    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Spares(Mutex::default()))
    }

    pub(crate) fn take(&self) -> ArgBlock<B> {
        self.0.lock().pop().unwrap_or_default()
    }

    /// Takes a block back. Its references are released before the lock is taken: what they keep alive may be large.
    pub(crate) fn give(&self, mut block: ArgBlock<B>) {
        block.clear();
        let has_room = block.regions.capacity() > 0;
        let mut spares = self.0.lock();
        if has_room && spares.len() < Self::KEPT {
            spares.push(block);
        }
    }
}
