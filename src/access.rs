//! How an operation uses a range of bytes.

#![forbid(unsafe_code)]

/// How an operation uses a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// The bytes are read and stay what they were ([`In`](crate::In)).
    Read,
    /// Every byte is overwritten and none is read ([`Out`](crate::Out)).
    Write,
    /// Bytes may be read, and written in part ([`InOut`](crate::InOut)).
    ReadWrite,
}

impl Access {
    /// Whether the operation sees what the bytes held before it.
    pub(crate) fn reads(self) -> bool {
        self != Access::Write
    }

    /// Whether the operation may change the bytes.
    pub(crate) fn writes(self) -> bool {
        self != Access::Read
    }

    /// Whether two uses of one byte must keep their order: at least one of them writes.
    pub(crate) fn conflicts(self, other: Access) -> bool {
        self.writes() || other.writes()
    }
}
