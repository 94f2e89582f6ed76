//! The synchronisation that capture and the order of slots are built on, under one set of names.
//!
//! Usually these are the standard library's atomics and `parking_lot`'s locks. Under `cfg(loom)` they are
//! loom's, so that the models run the very code that ships. Code that takes part in a model must
//! name these and no others, or loom would not see what it does.
#![forbid(unsafe_code)]

#[cfg(loom)]
#[allow(unused_imports, reason = "the models name it")]
pub(crate) use modelled::MutexGuard;
#[cfg(loom)]
pub(crate) use modelled::{Arc, AtomicU8, AtomicU32, AtomicUsize, Condvar, Mutex, Ordering};
#[cfg(not(loom))]
pub(crate) use real::{Arc, AtomicU8, AtomicU32, AtomicUsize, Condvar, Mutex, Ordering};

#[cfg(not(loom))]
mod real {
    use std::time::Instant;

    use parking_lot::MutexGuard;

    pub(crate) use parking_lot::Mutex;
    pub(crate) use std::sync::Arc;
    pub(crate) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};

    /// Lets a thread wait, its lock released, until another thread says that what the lock guards has
    /// changed.
    pub(crate) struct Condvar(parking_lot::Condvar);

    impl Condvar {
        /// A condition that nobody waits for yet.
        pub(crate) const fn new() -> Self {
            Self(parking_lot::Condvar::new())
        }

        /// Releases the lock, waits to be notified, and locks again.
        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            self.0.wait(guard);
        }

        /// As `wait`, but no longer than until `deadline`; returns whether that is what ended the wait.
        pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, deadline: Instant) -> bool {
            self.0.wait_until(guard, deadline).timed_out()
        }

        /// Wakes every thread that waits.
        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

#[cfg(loom)]
mod modelled {
    use std::fmt;
    use std::ops::{Deref, DerefMut};
    use std::sync::PoisonError;
    use std::time::Instant;

    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};

    /// A lock with `parking_lot`'s shape: `lock` returns the guard itself, and a panic elsewhere poisons
    /// nothing.
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        /// An unlocked lock.
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        /// Waits for the lock and takes it.
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
        }
    }

    impl<T> fmt::Debug for Mutex<T> {
        /// Does not look inside: taking the lock here would add a step to the model.
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Mutex { .. }")
        }
    }

    /// The lock, held. Empty only inside `Condvar::wait`, because loom's condition consumes the guard and
    /// returns another.
    pub(crate) struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            match &self.0 {
                Some(guard) => guard,
                None => unreachable!("only a waiting thread has no guard, and it runs no code"),
            }
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            match &mut self.0 {
                Some(guard) => guard,
                None => unreachable!("only a waiting thread has no guard, and it runs no code"),
            }
        }
    }

    /// Lets a thread wait, its lock released, until another thread says that what the lock guards has
    /// changed.
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        /// A condition that nobody waits for yet.
        pub(crate) fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        /// Releases the lock, waits to be notified, and locks again.
        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.0.take();
            guard.0 = held.map(|held| self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
        }

        /// As `wait`: a model has no clock, so no deadline passes, and a lost wake-up shows as a deadlock.
        pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _deadline: Instant) -> bool {
            self.wait(guard);
            false
        }

        /// Wakes every thread that waits.
        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}
