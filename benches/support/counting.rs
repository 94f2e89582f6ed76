//! An allocator that counts: on the calling thread, and in the whole process.

#![allow(unsafe_code, reason = "a global allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The system's allocator, with every request for memory counted. Giving memory back is not counted.
pub struct Counting;

static PROCESS: AtomicU64 = AtomicU64::new(0);

/// Whether requests are counted.
static COUNTS: AtomicBool = AtomicBool::new(true);

thread_local! {
    // Without a destructor and without lazy set-up: looking at it never allocates.
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// Allocations so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocations {
    /// Of the calling thread.
    pub thread: u64,
    /// Of every thread of the process.
    pub process: u64,
}

impl Allocations {
    pub fn now() -> Self {
        // Relaxed: whoever compares two of these has waited for the work of the other threads in between.
        Allocations { thread: THREAD.with(Cell::get), process: PROCESS.load(Ordering::Relaxed) }
    }

    pub fn since(self) -> Self {
        let now = Self::now();
        Allocations { thread: now.thread - self.thread, process: now.process - self.process }
    }
}

/// Runs `run` with an allocator that does not count: what a number that all threads write costs is no part of the times of
/// something that allocates.
#[allow(dead_code, reason = "most of what is measured allocates nothing")]
pub fn uncounted<T>(run: impl FnOnce() -> T) -> T {
    // Relaxed: counts are only compared by the thread that says so.
    COUNTS.store(false, Ordering::Relaxed);
    let made = run();
    COUNTS.store(true, Ordering::Relaxed);
    made
}

fn count() {
    if !COUNTS.load(Ordering::Relaxed) {
        return;
    }
    PROCESS.fetch_add(1, Ordering::Relaxed);
    let _ = THREAD.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every method passes its arguments on to `System`, which upholds the contract of `GlobalAlloc`; `count`
// neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's contract, word for word.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's contract, word for word.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's contract, word for word: memory of ours is memory of `System`.
        unsafe { System.realloc(start, layout, size) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract, word for word: memory of ours is memory of `System`.
        unsafe { System.dealloc(start, layout) }
    }
}
