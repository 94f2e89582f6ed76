//! The name of a logical stream, by which a record or a report speaks of it after the stream itself has
//! moved.
#![forbid(unsafe_code)]

use std::fmt;

use static_assertions::assert_impl_all;

/// Which logical stream, of which device.
///
/// The device assigns the ids and never assigns one twice, so no two of its streams ever share one, not even
/// when the first is gone; the ids of two devices always differ. Ids are unbounded: streams fold onto the
/// device's slots, so two streams with different ids may share a slot, and neither can tell.
///
/// Ids are ordered by device, then in the order in which the device assigned them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId {
    device: u32,
    index: u64,
}

assert_impl_all!(StreamId: Copy, Send, Sync, Ord, std::hash::Hash, fmt::Debug, fmt::Display);

impl StreamId {
    /// Names stream `index` of device `device`; only the device may call this, since it keeps the ids unique.
    pub(crate) const fn new(device: u32, index: u64) -> Self {
        Self { device, index }
    }

    /// Names the device's own doings, which are no stream's.
    pub(crate) const fn of_device(device: u32) -> Self {
        Self { device, index: u64::MAX }
    }

    /// The number of this stream among those of its device, counted from 0 in the order of their making.
    pub const fn index(self) -> u64 {
        self.index
    }

    /// The slot, below `max_streams`, that this stream folds onto.
    ///
    /// A device has at least one slot: a `max_streams` of 0 is read as 1, because the remainder would panic.
    pub(crate) const fn slot(self, max_streams: usize) -> usize {
        let slots = if max_streams == 0 { 1 } else { max_streams as u64 };
        // The remainder is below `max_streams`, which is a `usize`, so the cast loses nothing.
        (self.index % slots) as usize
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {} of device {}", self.index, self.device)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::StreamId;

    /// A modulus taken after a cast to 32 bits would send large ids to the wrong slot.
    #[test]
    fn ids_fold_onto_slots_by_remainder() {
        assert_eq!(StreamId::new(0, 3).slot(8), 3);
        assert_eq!(StreamId::new(0, 11).slot(8), 3);
        assert_eq!(StreamId::new(0, (1 << 32) + 3).slot(3), 1);
        assert_eq!(StreamId::new(0, u64::MAX).slot(1), 0);
    }

    /// A device described with no slots must not panic in the middle of a launch.
    #[test]
    fn zero_slots_read_as_one() {
        assert_eq!(StreamId::new(0, 7).slot(0), 0);
    }

    /// Two devices count their streams alike, so an equality that forgot the device would mix up their
    /// windows.
    #[test]
    fn ids_of_two_devices_differ() {
        assert_ne!(StreamId::new(0, 3), StreamId::new(1, 3));
        assert!(StreamId::new(0, 9) < StreamId::new(1, 0));
    }

    #[test]
    fn an_id_reads_as_a_phrase() {
        let id = StreamId::new(0, 3);
        assert_eq!(id.to_string(), "stream 3 of device 0");
        assert_eq!(id.index(), 3);
    }
}
