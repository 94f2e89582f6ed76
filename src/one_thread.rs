//! What makes a type `Send` and not `Sync`, and says so in the compiler's message.

#![forbid(unsafe_code)]

use static_assertions::{assert_impl_all, assert_not_impl_any, const_assert_eq};

/// In the message to whoever shares a stream or a graph by reference, this name is the reason.
///
/// A `Cell` would do the same, and make the compiler advise a `RwLock`, behind which neither may be shared.
pub trait DrivenByOneThreadAtATime {}

/// A field that makes its type `Send`, not `Sync`, and no larger. An exclusive reference may go to another thread, and
/// be shared only if what it refers to may be; behind a `PhantomData` the message would go through the standard library.
pub(crate) type OneThread = [&'static mut (dyn DrivenByOneThreadAtATime + Send); 0];

assert_impl_all!(OneThread: Send);
assert_not_impl_any!(OneThread: Sync);
const_assert_eq!(size_of::<OneThread>(), 0);
