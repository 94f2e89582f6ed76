//! Graphs of the driver, node by node.

#![allow(unsafe_code, reason = "calls of the CUDA driver")]

use std::ffi::c_void;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::backend::command::{Work, fits};
use crate::backend::cuda::callback::{Node, Replays};
use crate::backend::cuda::code::{Function, Params};
use crate::backend::cuda::context::check;
use crate::backend::cuda::execute::{counted, extra};
use crate::backend::cuda::fill::{Step, THREADS};
use crate::backend::cuda::memory::address;
use crate::backend::cuda::pinned::CudaPinned;
use crate::backend::cuda::sys;
use crate::backend::cuda::{Cuda, Machine};
use crate::backend::fault::Severity;
use crate::backend::{Call, CommandRef, Fault, HostBytes, Region};
use crate::graph::commands::Commands;
use crate::graph::flow::Dag;
use crate::layout::Pitch;

/// A graph that is being built; destroyed when it goes out of scope.
pub(crate) struct Builder<'m> {
    machine: &'m Machine,
    graph: sys::CUgraph,
    /// The bytes of recorded writes, in the order of their commands.
    bytes: *const u8,
    taken: usize,
    pub(crate) calls: Vec<Arc<Node>>,
}

/// What a node directly follows.
type Nodes<'n> = &'n [sys::CUgraphNode];

/// An executable of the driver's, which whoever has it destroys.
pub(crate) struct Exec(pub(crate) sys::CUgraphExec);

// SAFETY: the handle names an object of the driver, which any thread may use and destroy.
unsafe impl Send for Exec {}
// SAFETY: as for `Send`. Launches of one executable are never made by two threads at once: the core holds a lock.
unsafe impl Sync for Exec {}

impl<'m> Builder<'m> {
    pub(crate) fn new(machine: &'m Machine, writes: Option<&CudaPinned>) -> Result<Self, Fault> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: `graph` is a place for a handle; no other flags than 0 exist.
        check(Call::Seal, unsafe { sys::cuGraphCreate(&mut graph, 0) })?;
        let bytes = writes.map_or(std::ptr::null(), |writes| writes.bytes().as_ptr());
        Ok(Builder { machine, graph, bytes, taken: 0, calls: Vec::new() })
    }

    /// Adds a node, or a few, for every command.
    pub(crate) fn build(
        &mut self,
        commands: &Arc<Commands<Cuda>>,
        dag: &Dag,
        replays: &mut Option<Arc<Replays>>,
    ) -> Result<(), Fault> {
        let mut last: SmallVec<[sys::CUgraphNode; 16]> = SmallVec::with_capacity(commands.len());
        let mut several: SmallVec<[sys::CUgraphNode; 8]> = SmallVec::new();
        for (index, command) in commands.iter().enumerate() {
            let place = |node: &u32| last.get(*node as usize..).and_then(|from| from.get(..1));
            let before = match dag.preds(index as u32) {
                [only] => place(only).unwrap_or_default(),
                all => {
                    several.clear();
                    all.iter().filter_map(place).for_each(|node| several.extend_from_slice(node));
                    &several
                }
            };
            let node = match &command.job.0 {
                Work::HostCall { .. } => {
                    let replays = replays.get_or_insert_default();
                    self.call(before, Node::new(commands, index, replays))?
                }
                _ => self.add(before, command)?,
            };
            last.push(node);
        }
        Ok(())
    }

    /// Adds the nodes of one command; returns the one that comes last.
    fn add(&mut self, before: Nodes<'_>, command: CommandRef<'_, Cuda>) -> Result<sys::CUgraphNode, Fault> {
        let args = command.args;
        match (&command.job.0, args.regions) {
            (Work::Launch { kernel, extent }, _) => {
                let (code, blocks, block) = (&kernel.code, counted(extent.blocks())?, extent.block());
                code.with_params(args, |params| self.kernel(before, code.function, blocks, block, params))
            }
            (Work::Copy, [from, to]) => self.copy(before, from, to),
            (Work::Fill, [to]) => {
                let (to, len) = address(Call::Seal, to)?;
                self.fill(before, to, len, args.scalars)
            }
            (Work::Write { bytes, pitch }, [to]) => self.write(before, to, *pitch, bytes.bytes().len()),
            (Work::Raw { section }, _) => {
                section.add(self.graph, before)?.map_or_else(|| self.nothing(before), Ok)
            }
            _ => Err(Fault::new(Call::Seal, Severity::Call, "an operation that no graph can hold")),
        }
    }

    fn kernel(
        &self,
        before: Nodes<'_>,
        function: Function,
        [x, y, z]: [u32; 3],
        [bx, by, bz]: [u32; 3],
        (places, extra): Params,
    ) -> Result<sys::CUgraphNode, Fault> {
        let node = sys::CUDA_KERNEL_NODE_PARAMS {
            func: function.raw,
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: bx,
            blockDimY: by,
            blockDimZ: bz,
            sharedMemBytes: function.shared,
            kernelParams: places,
            extra,
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        };
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is a place for a handle, and `before` are as many nodes of this graph. The function lives as long as
        // the executable, which keeps its command; the parameters are as for an eager launch, and copied here.
        check(Call::Seal, unsafe {
            sys::cuGraphAddKernelNode_v2(&mut raw, self.graph, before.as_ptr(), before.len(), &node)
        })?;
        Ok(raw)
    }

    fn copy(
        &self,
        before: Nodes<'_>,
        from: &Region<Cuda>,
        to: &Region<Cuda>,
    ) -> Result<sys::CUgraphNode, Fault> {
        let ((from, len), (to, room)) = (address(Call::Seal, from)?, address(Call::Seal, to)?);
        fits(Call::Seal, None, room, len)?;
        let copy = sys::CUDA_MEMCPY3D {
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcDevice: from,
            srcPitch: len,
            dstDevice: to,
            dstPitch: len,
            WidthInBytes: len,
            ..one_row()
        };
        self.transfer(before, &copy)
    }

    /// A write of the next `len` bytes that are to be written.
    fn write(
        &mut self,
        before: Nodes<'_>,
        to: &Region<Cuda>,
        pitch: Option<Pitch>,
        len: usize,
    ) -> Result<sys::CUgraphNode, Fault> {
        let (to, room) = address(Call::Seal, to)?;
        fits(Call::Seal, pitch, room, len)?;
        let from = self.bytes.wrapping_add(self.taken);
        self.taken += len;
        let pitch = pitch.unwrap_or(Pitch { rows: 1, row: len, step: len });
        let copy = sys::CUDA_MEMCPY3D {
            srcHost: from.cast(),
            srcPitch: pitch.row,
            srcHeight: pitch.rows,
            dstDevice: to,
            dstPitch: pitch.step,
            dstHeight: pitch.rows,
            WidthInBytes: pitch.row,
            Height: pitch.rows,
            ..one_row()
        };
        self.transfer(before, &copy)
    }

    fn transfer(&self, before: Nodes<'_>, copy: &sys::CUDA_MEMCPY3D) -> Result<sys::CUgraphNode, Fault> {
        if copy.WidthInBytes == 0 {
            return self.nothing(before);
        }
        let (mut raw, context) = (std::ptr::null_mut(), self.machine.context.raw());
        // SAFETY: `raw` is a place for a handle, and `before` are as many nodes of this graph. `address` checked the device's
        // ranges, in memory that the graph pins; the host's bytes live as long as the executable.
        check(Call::Seal, unsafe {
            sys::cuGraphAddMemcpyNode(&mut raw, self.graph, before.as_ptr(), before.len(), copy, context)
        })?;
        Ok(raw)
    }

    fn fill(
        &self,
        before: Nodes<'_>,
        to: sys::CUdeviceptr,
        len: usize,
        pattern: &[u8],
    ) -> Result<sys::CUgraphNode, Fault> {
        let mut last = None;
        self.machine.fill.steps(to, len, pattern, |step| {
            // One after the other, so that who follows one follows all.
            let before = last.as_ref().map_or(before, std::slice::from_ref);
            last = Some(match step {
                Step::Launch { function, blocks, params } => {
                    let mut size = params.len();
                    let mut extra = extra(params, &mut size);
                    let params = (std::ptr::null_mut(), extra.as_mut_ptr());
                    self.kernel(before, function, [blocks, 1, 1], [THREADS, 1, 1], params)?
                }
                Step::Set { to, value, width, count } => self.set(before, to, value, width, count)?,
            });
            Ok(())
        })?;
        last.map_or_else(|| self.nothing(before), Ok)
    }

    fn set(
        &self,
        before: Nodes<'_>,
        to: sys::CUdeviceptr,
        value: u32,
        width: u32,
        count: usize,
    ) -> Result<sys::CUgraphNode, Fault> {
        let pitch = count.saturating_mul(width as usize);
        let set = sys::CUDA_MEMSET_NODE_PARAMS {
            dst: to,
            pitch,
            value,
            elementSize: width,
            width: count,
            height: 1,
        };
        let (mut raw, context) = (std::ptr::null_mut(), self.machine.context.raw());
        // SAFETY: `raw` is a place for a handle, and `before` are as many nodes of this graph. `address` checked `count`
        // elements at `to`, a multiple of their size, in memory that the graph pins.
        check(Call::Seal, unsafe {
            sys::cuGraphAddMemsetNode(&mut raw, self.graph, before.as_ptr(), before.len(), &set, context)
        })?;
        Ok(raw)
    }

    fn call(&mut self, before: Nodes<'_>, call: Arc<Node>) -> Result<sys::CUgraphNode, Fault> {
        let params = call.params();
        self.calls.push(call);
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is a place for a handle, and `before` are as many nodes of this graph. What the driver calls lives as
        // long as the executable.
        check(Call::Seal, unsafe {
            sys::cuGraphAddHostNode(&mut raw, self.graph, before.as_ptr(), before.len(), &params)
        })?;
        Ok(raw)
    }

    /// A node for an operation on no bytes: what follows it follows what comes before it.
    fn nothing(&self, before: Nodes<'_>) -> Result<sys::CUgraphNode, Fault> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is a place for a handle, and `before` are as many nodes of this graph.
        check(Call::Seal, unsafe {
            sys::cuGraphAddEmptyNode(&mut raw, self.graph, before.as_ptr(), before.len())
        })?;
        Ok(raw)
    }

    /// What can be launched.
    pub(crate) fn instantiate(&self) -> Result<Exec, Fault> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is a place for a handle, and the graph is live; without flags nothing else is asked for.
        check(Call::Seal, unsafe { sys::cuGraphInstantiateWithFlags(&mut raw, self.graph, 0) })?;
        Ok(Exec(raw))
    }
}

impl Drop for Builder<'_> {
    fn drop(&mut self) {
        // SAFETY: the graph came from `cuGraphCreate`, and is destroyed here only; an executable does not need it.
        let _ = unsafe { sys::cuGraphDestroy(self.graph) };
    }
}

/// A copy of one row of nothing, from the host to the device.
fn one_row() -> sys::CUDA_MEMCPY3D {
    sys::CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
        srcHost: std::ptr::null::<c_void>(),
        srcDevice: 0,
        srcArray: std::ptr::null_mut(),
        reserved0: std::ptr::null_mut(),
        srcPitch: 0,
        srcHeight: 1,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstHost: std::ptr::null_mut(),
        dstDevice: 0,
        dstArray: std::ptr::null_mut(),
        reserved1: std::ptr::null_mut(),
        dstPitch: 0,
        dstHeight: 1,
        WidthInBytes: 0,
        Height: 1,
        Depth: 1,
    }
}
