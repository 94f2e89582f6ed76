//! What a host callback names that it uses.

#![forbid(unsafe_code)]

use smallvec::SmallVec;

use crate::access::Access;
use crate::backend::Backend;
use crate::backend::host::Host;
use crate::buffer::{Source, Target};
use crate::kernel::args::{Gather, Named};

/// What a host callback uses; for [`Enqueue::host_call_with`](crate::Enqueue::host_call_with).
///
/// ```
/// # use dacapo::prelude::*;
/// # fn main() -> dacapo::Result<()> {
/// # let device = Device::host()?;
/// # let mut stream = device.stream()?;
/// # let x = stream.alloc::<f32>(4)?;
/// stream.host_call_with(Touches::new().reads(&x), || println!("x is ready"))?;
/// # stream.sync()
/// # }
/// ```
pub struct Touches<'t, B: Backend = Host> {
    uses: SmallVec<[Named<B>; 4]>,
    _borrowed: std::marker::PhantomData<&'t ()>,
}

impl<B: Backend> Default for Touches<'_, B> {
    fn default() -> Self {
        Touches { uses: SmallVec::new(), _borrowed: std::marker::PhantomData }
    }
}

impl<'t, B: Backend> Touches<'t, B> {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// It reads `what`.
    pub fn reads(mut self, what: impl Source<B> + 't) -> Self {
        self.uses.push(Named::new(what.source(), Access::Read));
        self
    }

    /// It stands for the writing of `what`: a failure inside taints it.
    pub fn writes(mut self, what: impl Target<B> + 't) -> Self {
        self.uses.push(Named::new(what.target(), Access::ReadWrite));
        self
    }

    pub(crate) fn gather<'u>(&'u self, into: &mut Gather<'_, 'u, B>) {
        self.uses.iter().for_each(|named| into.named(named));
    }
}
