//! What a host callback names that it uses.

#![forbid(unsafe_code)]

use smallvec::SmallVec;

use crate::access::Access;
use crate::backend::Backend;
use crate::backend::host::Host;
use crate::buffer::{Slice, Source, Target};
use crate::kernel::args::{Gather, UseOf};

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
    uses: SmallVec<[(UseOf<B>, u32); 4]>,
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
        self.push(what.source(), Access::Read);
        self
    }

    /// It stands for the writing of `what`: a failure inside taints it.
    pub fn writes(mut self, what: impl Target<B> + 't) -> Self {
        self.push(what.target(), Access::ReadWrite);
        self
    }

    fn push<T: bytemuck::Pod>(&mut self, slice: Slice<'_, T, B>, access: Access) {
        let (alloc, start, end) = slice.parts();
        let used = UseOf { alloc: alloc.clone(), start, end, access };
        self.uses.push((used, alloc.device_id()));
    }

    pub(crate) fn gather(self, into: &mut Gather<'_, B>) {
        self.uses.into_iter().for_each(|(used, device)| into.used(used, device));
    }
}
