//! How the elements of a tensor lie in a buffer: one after the other, or in padded rows.

#![forbid(unsafe_code)]

use std::ops::Range;

use crate::error::{Error, Result};

/// How the elements of a tensor lie in a range of a buffer, for [`Enqueue::write_pitched`](crate::Enqueue::write_pitched)
/// and [`Enqueue::read_pitched`](crate::Enqueue::read_pitched).
///
/// Row-major: the last dimension varies fastest, and its elements, a *row*, lie side by side. From the start of a row
/// to that of the next it is one *pitch*; what lies between the end of one and the start of the other is padding.
///
/// ```
/// # use dacapo::Layout;
/// # fn main() -> dacapo::Result<()> {
/// let layout = Layout::pitched(&[2, 3, 5], 8)?;
/// assert_eq!((layout.len(), layout.span()), (2 * 3 * 5, 5 * 8 + 5));
/// assert_eq!(layout, Layout::strided(&[2, 3, 5], &[24, 8, 1])?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// At least one; more only where there is padding between them.
    rows: usize,
    /// Elements of a row.
    columns: usize,
    /// Elements from row to row.
    pitch: usize,
}

impl Layout {
    /// Everything side by side. A shape without dimensions is one element.
    ///
    /// # Errors
    /// [`Error::LayoutTooBig`] if the elements cannot be counted.
    pub fn contiguous(shape: &[usize]) -> Result<Self> {
        let (rows, columns) = rows_of(shape)?;
        Layout { rows, columns, pitch: columns }.checked(shape)
    }

    /// Rows of the last dimension, with `pitch` elements from the start of one to the start of the next.
    ///
    /// # Errors
    /// [`Error::UnsupportedStrides`] if the rows would overlap, and [`Error::LayoutTooBig`] if the elements cannot be
    /// counted.
    pub fn pitched(shape: &[usize], pitch: usize) -> Result<Self> {
        let (rows, columns) = rows_of(shape)?;
        if rows > 1 && pitch < columns {
            let strides = strides(shape, pitch);
            return Err(Error::UnsupportedStrides { shape: shape.into(), strides });
        }
        Layout { rows, columns, pitch: pitch.max(columns) }.checked(shape)
    }

    /// What `strides`, in elements, say, if that is contiguous or pitched. A dimension of one element may have any
    /// stride, and where there are no elements all of them may.
    ///
    /// # Errors
    /// [`Error::UnsupportedStrides`] for everything else, such as a transposed or a broadcast tensor, and
    /// [`Error::LayoutTooBig`] if the elements cannot be counted.
    pub fn strided(shape: &[usize], strides: &[usize]) -> Result<Self> {
        let unsupported = || Error::UnsupportedStrides { shape: shape.into(), strides: strides.into() };
        if shape.len() != strides.len() {
            return Err(unsupported());
        }
        let whole = Self::contiguous(shape)?;
        let mut dims =
            shape.iter().copied().zip(strides.iter().copied()).filter(|(extent, _)| *extent != 1).rev();
        let Some((extent, stride)) = dims.next().filter(|_| !whole.is_empty()) else { return Ok(whole) };
        // Where the last dimension has one element, so may every row.
        let (columns, mut outer) = match stride {
            1 => (extent, dims.next()),
            _ if shape.last() == Some(&1) => (1, Some((extent, stride))),
            _ => return Err(unsupported()),
        };
        let pitch = outer.map_or(columns, |(_, stride)| stride);
        let (mut rows, mut expected) = (1usize, Some(pitch));
        while let Some((extent, stride)) = outer {
            if expected != Some(stride) {
                return Err(unsupported());
            }
            expected = stride.checked_mul(extent);
            rows = rows.saturating_mul(extent);
            outer = dims.next();
        }
        if pitch < columns {
            return Err(unsupported());
        }
        Layout { rows, columns, pitch }.checked(shape)
    }

    /// Elements, without padding.
    pub fn len(&self) -> usize {
        self.rows * self.columns
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Elements from the first to the last, with the padding between them: what a buffer must have.
    pub fn span(&self) -> usize {
        (self.rows - 1) * self.pitch + self.columns
    }

    /// The rows in bytes; `None` where there is no padding, so that all of it is one row.
    ///
    /// For a range that the span fits into, since else the bytes might not be countable.
    pub(crate) fn pitch<T>(&self) -> Option<Pitch> {
        (self.rows > 1).then_some(Pitch {
            rows: self.rows,
            row: self.columns * size_of::<T>(),
            step: self.pitch * size_of::<T>(),
        })
    }

    /// Itself, if its numbers do not overflow; what has no padding is one row.
    fn checked(self, shape: &[usize]) -> Result<Self> {
        let too_big = || Error::LayoutTooBig { shape: shape.into() };
        let len = self.rows.checked_mul(self.columns).ok_or_else(too_big)?;
        if self.rows <= 1 || self.pitch == self.columns {
            return Ok(Layout { rows: 1, columns: len, pitch: len });
        }
        let last = (self.rows - 1).checked_mul(self.pitch).and_then(|last| last.checked_add(self.columns));
        last.map(|_| self).ok_or_else(too_big)
    }
}

/// How many rows `shape` has, and how many elements each: none of either if there are none at all.
fn rows_of(shape: &[usize]) -> Result<(usize, usize)> {
    if shape.contains(&0) {
        return Ok((0, 0));
    }
    let Some((columns, outer)) = shape.split_last() else { return Ok((1, 1)) };
    let rows = outer.iter().copied().try_fold(1usize, usize::checked_mul);
    rows.map(|rows| (rows, *columns)).ok_or_else(|| Error::LayoutTooBig { shape: shape.into() })
}

/// The strides that `shape` would have with this pitch, for a message.
fn strides(shape: &[usize], pitch: usize) -> Box<[usize]> {
    let mut strides = vec![1; shape.len()];
    let mut stride = pitch;
    for (at, extent) in strides.iter_mut().zip(shape).rev().skip(1) {
        *at = stride;
        stride = stride.saturating_mul(*extent);
    }
    strides.into()
}

/// Padded rows, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pitch {
    pub(crate) rows: usize,
    /// Bytes of a row.
    pub(crate) row: usize,
    /// Bytes from the start of one row to that of the next.
    pub(crate) step: usize,
}

impl Pitch {
    /// The rows, where the first one starts at `start`.
    pub(crate) fn ranges(self, start: usize) -> impl Iterator<Item = Range<usize>> {
        (0..self.rows).map(move |row| {
            let first = start + row * self.step;
            first..first + self.row
        })
    }

    /// The rows that a byte of `range` lies in, where the first row starts at `start`.
    pub(crate) fn meeting(
        self,
        start: usize,
        range: &Range<usize>,
    ) -> impl Iterator<Item = Range<usize>> + use<> {
        // Rows before `first` end before the range starts, rows from `last` on start after it ends.
        let first = (range.start + 1).saturating_sub(start + self.row).div_ceil(self.step);
        let last = range.end.saturating_sub(start).div_ceil(self.step).min(self.rows);
        (first..last).map(move |row| {
            let first = start + row * self.step;
            first..first + self.row
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PITCH: Pitch = Pitch { rows: 3, row: 4, step: 10 };

    /// Off by one, a row's last byte would stay tainted, or its neighbour's padding would count as its own.
    #[test]
    fn the_rows_that_meet_a_range_are_those_that_share_a_byte_with_it() {
        for start in [0, 7] {
            for from in 0..50 {
                for to in from + 1..50 {
                    let shares = |row: &Range<usize>| row.start < to && from < row.end;
                    let expected: Vec<_> = PITCH.ranges(start).filter(shares).collect();
                    let found: Vec<_> = PITCH.meeting(start, &(from..to)).collect();
                    assert_eq!(found, expected, "rows from {start}, range {from}..{to}");
                }
            }
        }
    }

    #[test]
    fn strides_that_are_pitched_make_the_pitched_layout() {
        let same = |shape: &[usize], strides: &[usize], pitch| {
            let found = Layout::strided(shape, strides).unwrap();
            assert_eq!(found, Layout::pitched(shape, pitch).unwrap(), "{shape:?} {strides:?}");
        };
        same(&[2, 3, 5], &[15, 5, 1], 5);
        same(&[2, 3, 5], &[24, 8, 1], 8);
        same(&[1, 3, 5], &[999, 8, 1], 8);
        same(&[4, 1], &[8, 77], 8);
        same(&[1, 5], &[0, 1], 5);
        same(&[5], &[1], 5);
        same(&[], &[], 1);
        same(&[0, 1], &[3, 9], 1);
        same(&[3, 0, 2], &[0, 0, 0], 2);
    }

    #[test]
    fn other_strides_are_an_error_that_names_them() {
        let cases: [(&[usize], &[usize]); 8] = [
            (&[3, 4], &[1, 3]),
            (&[3, 4], &[0, 1]),
            (&[3, 4], &[3, 1]),
            (&[4], &[2]),
            (&[2, 3, 4], &[20, 4, 1]),
            (&[2, 3], &[3]),
            (&[3, 1], &[0, 1]),
            (&[2, 2], &[usize::MAX, 2]),
        ];
        for (shape, strides) in cases {
            let error = Layout::strided(shape, strides).unwrap_err();
            let Error::UnsupportedStrides { shape: of, strides: said } = error else { panic!("{error}") };
            assert_eq!((&*of, &*said), (shape, strides));
        }
        let error = Layout::pitched(&[2, 3, 5], 4).unwrap_err();
        assert!(matches!(error, Error::UnsupportedStrides { strides, .. } if *strides == [12, 4, 1]));
    }

    #[test]
    fn what_cannot_be_counted_is_an_error_and_no_panic() {
        let huge = usize::MAX / 2;
        assert!(matches!(Layout::contiguous(&[huge, 3]), Err(Error::LayoutTooBig { .. })));
        assert!(matches!(Layout::contiguous(&[huge, huge, 2]), Err(Error::LayoutTooBig { .. })));
        assert!(matches!(Layout::pitched(&[3, 2], huge), Err(Error::LayoutTooBig { .. })));
        assert!(matches!(Layout::pitched(&[3, 2], usize::MAX), Err(Error::LayoutTooBig { .. })));
        assert!(matches!(Layout::strided(&[4, 2], &[huge, 1]), Err(Error::LayoutTooBig { .. })));
        assert!(Layout::contiguous(&[huge, huge, 0]).unwrap().is_empty());
    }
}
