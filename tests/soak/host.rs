//! The host.

use std::panic::resume_unwind;

use dacapo::host::{HostOptions, Severity, UnwrittenReads};
use dacapo::{
    Call, Device, DeviceOptions, Enqueue, Error, Grid, In, Kernel, Out, Program, Result, Slice, SliceMut,
};

use super::life::What;

/// The backend that is driven.
pub type Subject = dacapo::Host;

/// Whether memory has addresses.
pub const HAS_ADDRESSES: bool = true;

/// How long it lasts, if nobody says.
pub const SECONDS: u64 = 30;

/// Whether scratch memory that is read before it is written is an error.
pub const REFUSES_UNWRITTEN: bool = true;

/// What does not happen.
pub const NEVER: &[What] = &[];

/// The device.
pub fn open(options: DeviceOptions<Subject>) -> Option<Device<Subject>> {
    let host = HostOptions::new().unwritten_reads(UnwrittenReads::Refuse);
    Some(Device::open(options.backend(host)).unwrap())
}

/// Has the `nth` of the next such calls refused, whoever makes it.
pub fn refuse(device: &Device<Subject>, call: Call, nth: u64, severity: Severity) {
    device.faults().fail_nth(call, nth, severity);
}

/// Refuses nothing any more.
pub fn stop_refusing(device: &Device<Subject>) {
    device.faults().clear();
}

/// A kernel that panics after it wrote a little.
pub struct Breaks(Kernel<(In<u8>, Out<u8>), Subject>);

const NAME: &str = "breaks";

impl Breaks {
    pub fn load(device: &Device<Subject>) -> Result<Self> {
        let breaks = Program::<(In<u8>, Out<u8>)>::new(NAME).host(|(x, y): (&[u8], &mut [u8]), _| {
            y.iter_mut().zip(x).take(3).for_each(|(y, x)| *y = !x);
            // Not `panic!`, whose hook would print a report for each of thousands.
            resume_unwind(Box::new("it always does"));
        });
        breaks.load(device).map(Breaks)
    }

    pub fn enqueue(
        &self,
        on: &mut impl Enqueue<Subject>,
        from: Slice<'_, u8, Subject>,
        to: &mut SliceMut<'_, u8, Subject>,
    ) -> Result<()> {
        on.launch(&self.0, Grid::covering(to.len()), (from, to))
    }

    /// Whether that is what an error is about.
    pub fn is_cause(error: &Error) -> bool {
        matches!(error, Error::KernelPanicked { kernel, .. } if &**kernel == NAME)
    }
}
