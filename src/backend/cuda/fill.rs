//! Repeating a pattern: by the driver where it can, else by a kernel of ours.

#![allow(unsafe_code, reason = "calls of the CUDA driver")]

use crate::backend::Fault;
use crate::backend::cuda::code::{self, Function, Module};
use crate::backend::cuda::context::Context;
use crate::backend::cuda::retire::Retired;
use crate::backend::cuda::sys;

/// The kernels for patterns that the driver has no call for.
pub(crate) struct Fill {
    module: Module,
    bytes: Function,
    words: Function,
}

/// One part of a fill.
pub(crate) enum Step<'a> {
    /// `count` elements of `width` bytes, each with the value `value`.
    Set { to: sys::CUdeviceptr, value: u32, width: u32, count: usize },
    /// A launch of `blocks` blocks of [`THREADS`] threads.
    Launch { function: Function, blocks: u32, params: &'a [u8] },
}

/// Threads of a block.
pub(crate) const THREADS: u32 = 256;

/// How much of a pattern one launch takes along.
const PART: usize = 1024;
/// Where it starts in the parameter block.
const PATTERN: usize = 32;

/// A thread writes one byte, or one word, of one part of one element; which of them its index says.
macro_rules! kernel {
    ($name:literal, $load:literal, $store:literal, $shift:literal) => {
        concat!(
            ".visible .entry ",
            $name,
            "(\n",
            "  .param .u64 p_to, .param .u64 p_total, .param .u64 p_stride, .param .u32 p_len,\n",
            "  .param .align 8 .b8 p_pattern[1024])\n",
            "{\n",
            "  .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %d<12>;\n",
            "  ld.param.u64 %d1, [p_total];\n",
            "  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n",
            "  mul.wide.u32 %d2, %r1, %r2; cvt.u64.u32 %d3, %r3; add.u64 %d2, %d2, %d3;\n",
            "  setp.ge.u64 %p, %d2, %d1; @%p ret;\n",
            "  ld.param.u32 %r4, [p_len]; cvt.u64.u32 %d4, %r4;\n",
            "  div.u64 %d5, %d2, %d4; rem.u64 %d6, %d2, %d4; shl.b64 %d6, %d6, ",
            $shift,
            ";\n",
            "  ld.param.u64 %d7, [p_to]; ld.param.u64 %d8, [p_stride];\n",
            "  mad.lo.u64 %d9, %d5, %d8, %d7; add.u64 %d9, %d9, %d6; cvta.to.global.u64 %d9, %d9;\n",
            "  mov.u64 %d10, p_pattern; add.u64 %d10, %d10, %d6;\n",
            "  ",
            $load,
            " %r5, [%d10]; ",
            $store,
            " [%d9], %r5; ret;\n",
            "}\n"
        )
    };
}

const PTX: &str = concat!(
    ".version 7.0\n.target sm_70\n.address_size 64\n",
    kernel!("dacapo_fill_bytes", "ld.param.u8", "st.global.u8", "0"),
    kernel!("dacapo_fill_words", "ld.param.u32", "st.global.u32", "2"),
    "\0"
);

impl Fill {
    pub(crate) fn load(context: &Context) -> Result<Self, Fault> {
        let _relaxed = context.relaxed()?;
        let module = Module::load(PTX.as_bytes())?;
        let functions = module.function("dacapo_fill_bytes");
        let functions = functions.and_then(|bytes| Ok((bytes, module.function("dacapo_fill_words")?)));
        match functions {
            Ok((bytes, words)) => Ok(Fill { module, bytes, words }),
            Err(fault) => {
                code::unload(context, &module);
                Err(fault)
            }
        }
    }

    /// What is left when nothing uses the kernels any more.
    pub(crate) fn retire(&self) -> Retired {
        Retired::Module(self.module.0)
    }

    /// Calls `each` with the parts of a fill of `len` bytes at `to`, a multiple of the pattern's length. The parts write
    /// different bytes.
    pub(crate) fn steps(
        &self,
        to: sys::CUdeviceptr,
        len: usize,
        pattern: &[u8],
        mut each: impl FnMut(Step<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if len == 0 || pattern.is_empty() {
            return Ok(());
        }
        if let Some((width, value)) = uniform(to, pattern) {
            return each(Step::Set { to, value, width, count: len / width as usize });
        }
        let aligned = to.is_multiple_of(4) && pattern.len().is_multiple_of(4);
        let (function, unit) = if aligned { (self.words, 4) } else { (self.bytes, 1) };
        let elements = (len / pattern.len()) as u64;
        for (index, part) in pattern.chunks(PART).enumerate() {
            let units = (part.len() / unit) as u32;
            let total = elements * u64::from(units);
            let start = to + (index * PART) as u64;
            let params = params([start, total, pattern.len() as u64], units, part);
            let blocks = u32::try_from(total.div_ceil(THREADS.into())).unwrap_or(u32::MAX);
            each(Step::Launch { function, blocks, params: &params })?;
        }
        Ok(())
    }
}

/// The parameter block of a launch.
fn params(numbers: [u64; 3], units: u32, part: &[u8]) -> [u8; PATTERN + PART] {
    let mut block = [0; PATTERN + PART];
    let (fields, pattern) = block.split_at_mut(PATTERN);
    let numbers = numbers.map(u64::to_ne_bytes);
    let units = units.to_ne_bytes();
    let bytes = numbers.as_flattened().iter().chain(&units);
    fields.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
    pattern.iter_mut().zip(part).for_each(|(place, byte)| *place = *byte);
    block
}

/// The element of 1, 2 or 4 bytes that the pattern consists of, if the driver can set such elements at `to`.
fn uniform(to: sys::CUdeviceptr, pattern: &[u8]) -> Option<(u32, u32)> {
    [1usize, 2, 4].into_iter().find_map(|width| {
        let first = pattern.get(..width)?;
        let repeats =
            pattern.len().is_multiple_of(width) && pattern.chunks(width).all(|chunk| chunk == first);
        let mut value = [0; 4];
        value.iter_mut().zip(first).for_each(|(place, byte)| *place = *byte);
        (repeats && to.is_multiple_of(width as u64)).then_some((width as u32, u32::from_le_bytes(value)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_uniform_in_the_smallest_element_that_repeats_and_is_aligned() {
        assert_eq!(uniform(0, &[7; 12]), Some((1, 7)));
        assert_eq!(uniform(1, &[7; 12]), Some((1, 7)));
        assert_eq!(uniform(2, &[1, 2, 1, 2]), Some((2, 0x0201)));
        assert_eq!(uniform(1, &[1, 2, 1, 2]), None);
        assert_eq!(uniform(4, &[1, 2, 3, 4, 1, 2, 3, 4]), Some((4, 0x0403_0201)));
        assert_eq!(uniform(4, &[1, 2, 3]), None);
        assert_eq!(uniform(8, &[1, 2, 3, 4, 5, 6, 7, 8]), None);
    }
}
