//! Element counts that the library supplies for [`Len`](crate::Len) parameters.

#![forbid(unsafe_code)]

use crate::backend::Backend;
use crate::kernel::args::UseOf;
use crate::kernel::signature::{ParamKind, Role};
use crate::kernel::tables::Gathered;

/// What one `Len` parameter asks for, and where among the scalars that goes: worked out when the signature is compiled, so
/// that a launch counts nothing.
#[derive(Clone, Copy)]
pub struct Length {
    /// Its first byte among the scalars.
    at: usize,
    of: Counted,
    /// Bytes of one element; and what to shift by, where that is as good as to divide.
    element: usize,
    shift: Option<u32>,
}

/// Whose elements are counted.
#[derive(Clone, Copy)]
enum Counted {
    /// Those of a buffer, by its number among the buffers without the tables.
    Buffer(usize),
    /// Those of a table, by its place among the buffers with the tables.
    Table(usize),
}

/// For each parameter its length, if it is a `Len`.
#[allow(clippy::indexing_slicing, reason = "below the length; iterators are not const")]
pub(crate) const fn lengths<const N: usize>(params: [ParamKind; N]) -> [Option<Length>; N] {
    let (mut found, mut index, mut at) = ([None; N], 0, 0);
    while index < N {
        match params[index] {
            ParamKind::Buffer(_) => {}
            ParamKind::Scalar(bytes) => at += bytes,
            ParamKind::Len(of) => {
                // One that names no buffer is refused when its program is made.
                if of < N
                    && let ParamKind::Buffer(param) = params[of]
                {
                    let (of, element) = (counted(&params, of), param.element);
                    let shift = if element.is_power_of_two() { Some(element.trailing_zeros()) } else { None };
                    found[index] = Some(Length { at, of, element, shift });
                }
                at += size_of::<u64>();
            }
        }
        index += 1;
    }
    found
}

#[allow(clippy::indexing_slicing, reason = "as above")]
const fn counted(params: &[ParamKind], of: usize) -> Counted {
    let (mut index, mut buffers, mut tables) = (0, 0, 0);
    while index < of {
        if let ParamKind::Buffer(param) = params[index] {
            if matches!(param.role, Role::Table) { tables += 1 } else { buffers += 1 }
        }
        index += 1;
    }
    match params[of] {
        ParamKind::Buffer(param) if matches!(param.role, Role::Table) => Counted::Table(buffers + tables),
        _ => Counted::Buffer(buffers),
    }
}

/// Writes the element counts that a launch's signature asks for into their places among the gathered scalars.
#[inline]
pub(crate) fn supply<B: Backend>(
    lengths: &[Option<Length>],
    uses: &[UseOf<'_, B>],
    tables: &Gathered,
    scalars: &mut [u8],
) {
    for Length { at, of, element, shift } in lengths.iter().flatten() {
        let bytes = match of {
            // Tables are not among the uses yet.
            Counted::Buffer(number) => uses.get(*number).map_or(0, |used| used.end - used.start),
            Counted::Table(place) => tables.at(*place).map_or(0, <[u8]>::len),
        };
        let len = match shift {
            Some(shift) => bytes >> shift,
            None => bytes.checked_div(*element).unwrap_or(0),
        };
        if let Some(place) = scalars.get_mut(*at..).and_then(<[u8]>::first_chunk_mut) {
            *place = (len as u64).to_ne_bytes();
        }
    }
}

/// How many elements the argument for parameter `of` has.
pub(crate) fn elements<B: Backend>(
    params: &[ParamKind],
    of: usize,
    uses: &[UseOf<'_, B>],
    tables: &Gathered,
) -> usize {
    let Some(ParamKind::Buffer(param)) = params.get(of) else { return 0 };
    let bytes = match counted(params, of) {
        Counted::Buffer(number) => uses.get(number).map_or(0, |used| used.end - used.start),
        Counted::Table(place) => tables.at(place).map_or(0, <[u8]>::len),
    };
    bytes / param.element
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Enqueue;
    use crate::backend::host::Host;
    use crate::kernel::signature::sealed::Signature;
    use crate::kernel::{In, Len, Out, Uniform};

    /// A count in another scalar's place, or of another argument, would let a kernel leave its buffers.
    #[test]
    fn every_count_is_of_its_own_argument_and_in_its_own_place() {
        type S = (Len<2>, u8, Uniform<u32>, Out<[u8; 3]>, Len<3>, [u16; 3], Len<2>, In<u64>, Len<7>);
        let lengths = <S as Signature>::LENGTHS;
        let places: Vec<_> = lengths.iter().flatten().map(|length| length.at).collect();
        assert_eq!(places, [0, 9, 23, 31]);
        let device = crate::Device::<Host>::host().unwrap();
        let mut stream = device.stream().unwrap();
        let (out, input) = (stream.alloc::<[u8; 3]>(5).unwrap(), stream.alloc::<u64>(7).unwrap());
        let used = |(alloc, start, end)| UseOf { alloc, start, end, access: crate::access::Access::Read };
        let uses = [used(out.as_slice().parts()), used(input.as_slice().parts())];
        let mut tables = Gathered::default();
        tables.push(0, &[0; 44]);
        let mut scalars = vec![0xff; 39];
        supply(lengths, &uses, &tables, &mut scalars);
        let count = |at: usize| u64::from_ne_bytes(*scalars[at..].first_chunk().unwrap());
        assert_eq!([0, 9, 23, 31].map(count), [11, 5, 11, 7]);
        assert!(scalars[8] == 0xff && scalars[17..23].iter().all(|byte| *byte == 0xff));
        assert_eq!([2, 3, 7].map(|of| elements(S::PARAMS, of, &uses, &tables)), [11, 5, 7]);
    }
}
