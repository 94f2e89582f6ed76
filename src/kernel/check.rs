//! Launch checks: the limits of a kernel's own, given with its program.

#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytemuck::Pod;

use crate::callback::panic_message;
use crate::error::{Error, Result};
use crate::kernel::grid::Extent;

/// The checks of a program, each of which a launch has to pass.
///
/// There is no way to take one away: what an `unsafe` source promises may rest on it.
#[derive(Clone, Default)]
pub(crate) struct Checks(Arc<[Arc<Check>]>);

type Check = dyn Fn(Extent, Facts<'_>) -> Result<(), Arc<str>> + Send + Sync;

/// What a check is told of the arguments, one after the other, in the order of the signature.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// How many elements the argument for a parameter has.
    lengths: &'a dyn Fn(usize) -> usize,
    /// As they were gathered: packed, with every length in its place.
    scalars: &'a [u8],
    /// The next parameter.
    at: usize,
}

impl Checks {
    pub(crate) fn add(
        &mut self,
        check: impl Fn(Extent, Facts<'_>) -> Result<(), Arc<str>> + Send + Sync + 'static,
    ) {
        let check: Arc<Check> = Arc::new(check);
        self.0 = self.0.iter().cloned().chain([check]).collect();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What the first check that refuses the launch says. No lock of this crate may be held: a check is the user's.
    pub(crate) fn run(&self, kernel: &Arc<str>, extent: Extent, facts: Facts<'_>) -> Result<()> {
        let kernel = || kernel.clone();
        self.0.iter().try_for_each(|check| {
            let checked = catch_unwind(AssertUnwindSafe(|| check(extent, facts)));
            let checked = checked
                .map_err(|panic| Error::CheckPanicked { kernel: kernel(), message: panic_message(panic) });
            checked?.map_err(|message| Error::CheckFailed { kernel: kernel(), message })
        })
    }
}

impl<'a> Facts<'a> {
    pub(crate) fn new(lengths: &'a dyn Fn(usize) -> usize, scalars: &'a [u8]) -> Self {
        Facts { lengths, scalars, at: 0 }
    }

    /// The element count of the next argument, a buffer or a table.
    pub(crate) fn length(&mut self) -> usize {
        let length = (self.lengths)(self.at);
        self.at += 1;
        length
    }

    /// The next argument, a scalar.
    pub(crate) fn scalar<T: Pod>(&mut self) -> T {
        self.at += 1;
        let Some((bytes, rest)) = self.scalars.split_at_checked(size_of::<T>()) else {
            debug_assert!(false, "a launch gathers the scalars of its own signature");
            return T::zeroed();
        };
        self.scalars = rest;
        bytemuck::pod_read_unaligned(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::signature::sealed::Signature;
    use crate::kernel::{In, Len, Out, Uniform};

    /// A scalar read from another one's bytes would let a launch pass that the check was to refuse.
    #[test]
    fn facts_are_told_in_the_order_of_the_signature() {
        type S = (u8, In<f32>, [u16; 3], Len<1>, Out<u8>, Uniform<u32>, f64);
        let mut scalars = vec![7];
        [1u16, 2, 3].iter().for_each(|n| scalars.extend_from_slice(&n.to_ne_bytes()));
        scalars.extend_from_slice(&11u64.to_ne_bytes());
        scalars.extend_from_slice(&0.5f64.to_ne_bytes());
        let lengths = |of| 10 * of + 1;
        let facts = <S as Signature>::facts(Facts::new(&lengths, &scalars));
        assert_eq!(facts, (7, 11, [1, 2, 3], 11, 41, 51, 0.5));
    }
}
