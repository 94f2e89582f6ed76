//! The open encoder of a slot, and the pass that is open in it.

#![forbid(unsafe_code)]

use crate::backend::Call;
use crate::backend::wgpu::Machine;
use crate::backend::wgpu::scope::scoped;
use crate::backend::wgpu::steps::{Blocks, Dispatch, Scalars, Step};
use crate::backend::wgpu::upload::Uploads;

/// What was encoded since the last submission.
///
/// Dispatches share one pass for as long as no copy comes between them, and set only what differs from the dispatch before.
#[derive(Default)]
pub(crate) struct Encoder {
    /// Declared first, since it must be dropped before the encoder that it is open in.
    pass: Option<Pass>,
    encoder: Option<wgpu::CommandEncoder>,
    /// Commands of wgpu's since the last submission.
    pub(crate) weight: u32,
    /// Whether it must be submitted before the program submits anything, who knows of no encoder of ours.
    pub(crate) is_urgent: bool,
    pub(crate) uploads: Uploads,
}

/// An open compute pass, and what was last set in it.
struct Pass {
    pass: wgpu::ComputePass<'static>,
    code: u64,
    group: Option<(wgpu::BindGroup, Option<u32>)>,
    immediates: Scalars,
}

/// No kernel has this number.
const NONE: u64 = u64::MAX;

impl Encoder {
    pub(crate) fn is_empty(&self) -> bool {
        self.weight == 0
    }

    pub(crate) fn step(&mut self, machine: &Machine, step: &Step) {
        match step {
            Step::Dispatch(dispatch) => self.dispatch(machine, dispatch),
            Step::Copy { from, at, to, to_at, len } => {
                self.commands(machine).copy_buffer_to_buffer(from, *at, to, *to_at, Some(*len));
            }
            Step::Clear { buffer, at, len } => self.commands(machine).clear_buffer(buffer, *at, Some(*len)),
            Step::Texture(copy) => {
                copy.encode(self.commands(machine));
                self.is_urgent = true;
            }
        }
    }

    /// The encoder, for what is no dispatch: ends the pass.
    pub(crate) fn commands(&mut self, machine: &Machine) -> &mut wgpu::CommandEncoder {
        self.pass = None;
        self.weight += 1;
        self.open(machine)
    }

    fn open(&mut self, machine: &Machine) -> &mut wgpu::CommandEncoder {
        self.encoder.get_or_insert_with(|| {
            let descriptor = wgpu::CommandEncoderDescriptor { label: Some("dacapo") };
            let mut made = None;
            let make = || made = Some(machine.device.create_command_encoder(&descriptor));
            if let Err(fault) = scoped(&machine.device, Call::Execute, make) {
                machine.lose(&fault);
            }
            // One that was refused is as good as any: what is encoded with it is refused as well, in a scope of ours.
            made.unwrap_or_else(|| machine.device.create_command_encoder(&descriptor))
        })
    }

    fn dispatch(&mut self, machine: &Machine, dispatch: &Dispatch) {
        self.weight += 1;
        if self.pass.is_none() {
            let encoder = self.open(machine);
            let pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default()).forget_lifetime();
            self.pass = Some(Pass { pass, code: NONE, group: None, immediates: Scalars::new() });
        }
        if let Some(pass) = &mut self.pass {
            pass.dispatch(dispatch);
        }
    }

    /// What was encoded, to be submitted; nothing if nothing was. An error of wgpu's goes to the scope of the calling thread.
    pub(crate) fn finish(&mut self) -> Option<wgpu::CommandBuffer> {
        self.pass = None;
        (self.weight, self.is_urgent) = (0, false);
        self.uploads.finish();
        self.encoder.take().map(wgpu::CommandEncoder::finish)
    }
}

impl Pass {
    fn dispatch(&mut self, dispatch: &Dispatch) {
        let Dispatch { code, group, offset, immediates, blocks } = dispatch;
        let is_new = self.code != code.id;
        if is_new {
            self.pass.set_pipeline(&code.pipeline);
            self.code = code.id;
        }
        let bound = self.group.as_ref().is_some_and(|(bound, at)| bound == group && at == offset);
        // Another kernel's layout may be another one, which the group has to be checked against.
        if is_new || !bound {
            self.pass.set_bind_group(0, group, offset.as_slice());
            self.group = Some((group.clone(), *offset));
        }
        if !immediates.is_empty() && (is_new || self.immediates != *immediates) {
            self.pass.set_immediates(0, immediates);
            self.immediates = immediates.clone();
        }
        match blocks {
            Blocks::Known([x, y, z]) => self.pass.dispatch_workgroups(*x, *y, *z),
            Blocks::In(counts) => self.pass.dispatch_workgroups_indirect(counts, 0),
        }
    }
}
