//! Raw sections: what another library enqueues, captured on a stream that nobody else has.

#![allow(unsafe_code, reason = "calls of the CUDA driver")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, DriverError};
use parking_lot::Mutex;
use static_assertions::assert_impl_all;

use crate::backend::cuda::context::{Context, check, fault};
use crate::backend::cuda::queue::Shared;
use crate::backend::cuda::retire::Retired;
use crate::backend::cuda::sys;
use crate::backend::cuda::{Cuda, Machine};
use crate::backend::exit;
use crate::backend::fault::Severity;
use crate::backend::{Call, Fault};
use crate::callback::panic_message;
use crate::error::{Error, Result};
use crate::section::{HasRaw, Runs, SectionError, sealed};

/// What a section enqueued, to be run by a graph or by itself.
pub struct CudaSection {
    parts: Parts,
    /// Whether it calls the host, which may wait for what comes before it.
    calls: bool,
    machine: Arc<Machine>,
}

/// What must outlive the last run.
#[derive(Default)]
pub(crate) struct Parts {
    /// Null once it is not needed any more, or for a section that enqueued nothing.
    graph: Template,
    /// Null for a section that only graphs run.
    exec: Exec,
    /// What the section returned.
    #[allow(dead_code, reason = "it is there to be dropped")]
    kept: Option<Box<dyn Send>>,
}

struct Template(sys::CUgraph);
struct Exec(sys::CUgraphExec);

// SAFETY: field by field. The handles name objects of the driver, which any thread may use and destroy; what is kept is
// `Send` by its bound.
unsafe impl Send for Parts {}

// SAFETY: field by field. Through a shared reference the template is only copied, which the driver does for several threads,
// and the executable launched under the lock of one slot, once; what is kept cannot be reached.
unsafe impl Sync for Parts {}

/// Streams that capture nothing at the moment. Nothing ever runs on them.
#[derive(Default)]
pub(crate) struct Idle(Mutex<Vec<Arc<CudaStream>>>);

impl Idle {
    /// Forgets them all, where nothing may be asked of the driver.
    pub(crate) fn leak(&self) {
        std::mem::take(&mut *self.0.lock()).into_iter().for_each(std::mem::forget);
    }

    /// Lets them go; the context is bound.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

impl HasRaw for Cuda {
    type RawQueue = Arc<CudaStream>;
}

#[diagnostic::do_not_recommend]
impl sealed::HasRaw for Cuda {
    fn capture<K: Send + 'static>(
        &self,
        runs: Runs,
        section: impl FnOnce(&Arc<CudaStream>) -> Result<K, SectionError>,
    ) -> Result<CudaSection> {
        let machine = &self.machine;
        let absorb = |fault| machine.poison.absorb(fault);
        // Also for what the section calls: it may allocate beside somebody's capture in global mode.
        let _relaxed = machine.context.relaxed().map_err(absorb)?;
        let capture = Capture::begin(machine).map_err(absorb)?;
        let outcome = catch_unwind(AssertUnwindSafe(|| section(&capture.stream)));
        // The section may have made another context current.
        let _bound = machine.context.bind().map_err(absorb)?;
        // In any case, so that nothing stays capturing.
        let ended = capture.end();
        let kept = match outcome {
            Ok(Ok(kept)) => kept,
            Ok(Err(error)) => return Err(Error::step(error)),
            Err(panic) => return Err(Error::SectionPanicked { message: panic_message(panic) }),
        };
        // What is kept may be a library's, which is loaded by now.
        exit::renew();
        let mut parts = Parts { graph: ended?, kept: Some(Box::new(kept)), ..Parts::default() };
        let census = Census::of(&parts.graph).map_err(absorb)?;
        census.refuse()?;
        if census.nodes == 0 {
            parts.graph = Template::default();
        } else if runs == Runs::Once {
            parts.exec = parts.graph.instantiate().map_err(absorb)?;
            parts.graph = Template::default();
        }
        Ok(CudaSection { parts, calls: census.calls > 0, machine: machine.clone() })
    }
}

impl CudaSection {
    /// Enqueues its only run; the context is bound.
    pub(crate) fn launch(&self, queue: &Shared) -> Result<(), Fault> {
        if self.parts.exec.0.is_null() {
            return Ok(());
        }
        if self.calls {
            queue.publish()?;
        }
        // SAFETY: the executable lives until the device is past this launch, as does the stream. What its nodes use is what
        // the author of the section answers for, and that nothing else uses the arguments at the same time the core's order.
        check(Call::Section, unsafe { sys::cuGraphLaunch(self.parts.exec.0, queue.stream()) })
    }

    /// Adds a copy of it to `graph`, behind `before`; `None` if it does nothing.
    pub(crate) fn add(
        &self,
        graph: sys::CUgraph,
        before: &[sys::CUgraphNode],
    ) -> Result<Option<sys::CUgraphNode>, Fault> {
        if self.parts.graph.0.is_null() {
            return Ok(None);
        }
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is a place for a handle, `before` are as many nodes of `graph`, and the template is live; nobody
        // changes it.
        check(Call::Seal, unsafe {
            sys::cuGraphAddChildGraphNode(&mut raw, graph, before.as_ptr(), before.len(), self.parts.graph.0)
        })?;
        Ok(Some(raw))
    }

    /// Whether it calls the host.
    pub(crate) fn calls(&self) -> bool {
        self.calls
    }
}

impl Drop for CudaSection {
    fn drop(&mut self) {
        // On whatever thread, under whatever lock: neither the driver nor the user's drops are called here.
        self.machine.retire(Retired::Section(std::mem::take(&mut self.parts)));
    }
}

impl Default for Template {
    fn default() -> Self {
        Template(std::ptr::null_mut())
    }
}

impl Default for Exec {
    fn default() -> Self {
        Exec(std::ptr::null_mut())
    }
}

impl Template {
    fn instantiate(&self) -> Result<Exec, Fault> {
        let mut exec = Exec::default();
        // SAFETY: a place for a handle, and a live graph; without flags nothing else is asked for.
        check(Call::Section, unsafe { sys::cuGraphInstantiateWithFlags(&mut exec.0, self.0, 0) })?;
        Ok(exec)
    }
}

impl Drop for Template {
    /// On a thread that may call the driver.
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: the handle came from the end of a capture, and is destroyed here only.
            let _ = unsafe { sys::cuGraphDestroy(self.0) };
        }
    }
}

impl Drop for Exec {
    /// On a thread that may call the driver, when the device is past the launch.
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: the handle came from an instantiation, and is destroyed here only.
            let _ = unsafe { sys::cuGraphExecDestroy(self.0) };
        }
    }
}

/// A stream that captures, until it is ended or dropped.
struct Capture<'m> {
    machine: &'m Machine,
    stream: Arc<CudaStream>,
    open: bool,
}

impl<'m> Capture<'m> {
    /// The context is bound, in the relaxed mode.
    fn begin(machine: &'m Machine) -> Result<Self, Fault> {
        let idle = machine.idle.0.lock().pop();
        let stream = idle.map_or_else(|| private(&machine.context), Ok)?;
        // What was noted since its last section is about something else.
        let _ = stream.context().check_err();
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream lives as long as its reference, and captures nothing.
        check(Call::Section, unsafe { sys::cuStreamBeginCapture_v2(stream.cu_stream(), mode) })?;
        Ok(Capture { machine, stream, open: true })
    }

    /// What was captured.
    fn end(mut self) -> Result<Template> {
        let ended = self.close();
        let template = ended.map_err(|fault| match self.machine.poison.absorb(fault) {
            Error::Driver { message, .. } => Error::SectionBroken { message },
            lost => lost,
        })?;
        // What cudarc could not report is about what was enqueued here: nobody else has this context of it.
        self.stream.context().check_err().map_err(Error::step)?;
        self.machine.idle.0.lock().push(self.stream.clone());
        Ok(template)
    }

    fn close(&mut self) -> Result<Template, Fault> {
        self.open = false;
        let mut template = Template::default();
        // SAFETY: a place for a handle, and a live stream. One that captures no more, since the section ended it, is refused.
        let code = unsafe { sys::cuStreamEndCapture(self.stream.cu_stream(), &mut template.0) };
        check(Call::Section, code)?;
        if template.0.is_null() {
            return Err(Fault::new(Call::Section, Severity::Call, "the capture gave no graph"));
        }
        Ok(template)
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if self.open {
            let _ = self.close();
        }
        // A stream whose capture broke is used no more: whatever state it is in goes with it.
    }
}

/// A stream of its own, in a hold of its own on the device's context, where cudarc notes no other's errors.
fn private(context: &Context) -> Result<Arc<CudaStream>, Fault> {
    let refused = |error: DriverError| fault(Call::Section, error.0);
    let primary = CudaContext::new(context.ordinal()).map_err(refused)?;
    let own = if primary.cu_ctx() == context.raw() { primary } else { borrowed(context).map_err(refused)? };
    // SAFETY: slices of this context would not order their uses on several streams. It has one, on which nothing runs.
    unsafe { own.disable_event_tracking() };
    own.new_stream().map_err(refused)
}

/// A handle of cudarc's for a context that is not the device's primary one, and that somebody else destroys.
fn borrowed(context: &Context) -> std::result::Result<Arc<CudaContext>, DriverError> {
    // SAFETY: a live context of this device. The handle would destroy it with its last reference, which there never is.
    let handle =
        unsafe { CudaContext::from_raw_context(context.ordinal(), context.device(), context.raw()) }?;
    std::mem::forget(handle.clone());
    Ok(handle)
}

/// What kinds of nodes a captured graph has.
#[derive(Default)]
struct Census {
    nodes: usize,
    calls: usize,
    allocations: usize,
    frees: usize,
    unknown: usize,
}

impl Census {
    /// Counts the nodes, also those of graphs inside.
    fn of(graph: &Template) -> Result<Self, Fault> {
        let mut census = Census::default();
        let mut graphs = vec![graph.0];
        while let Some(graph) = graphs.pop() {
            for node in nodes(graph)? {
                census.nodes += 1;
                census.count(node, &mut graphs)?;
            }
        }
        Ok(census)
    }

    fn count(&mut self, node: sys::CUgraphNode, graphs: &mut Vec<sys::CUgraph>) -> Result<(), Fault> {
        use sys::CUgraphNodeType_enum as Kind;
        let mut kind = 0u32;
        // SAFETY: a place for a number, which is what the driver writes: a newer one may write numbers without a name here.
        check(Call::Section, unsafe { sys::cuGraphNodeGetType(node, std::ptr::from_mut(&mut kind).cast()) })?;
        match kind {
            kind if kind == Kind::CU_GRAPH_NODE_TYPE_GRAPH as u32 => {
                let mut inner = std::ptr::null_mut();
                // SAFETY: a place for a handle, and a node that is a graph, which goes on to own it.
                check(Call::Section, unsafe { sys::cuGraphChildGraphNodeGetGraph(node, &mut inner) })?;
                graphs.push(inner);
            }
            kind if kind == Kind::CU_GRAPH_NODE_TYPE_MEM_ALLOC as u32 => self.allocations += 1,
            kind if kind == Kind::CU_GRAPH_NODE_TYPE_MEM_FREE as u32 => self.frees += 1,
            kind if kind == Kind::CU_GRAPH_NODE_TYPE_HOST as u32 => self.calls += 1,
            // Everything up to here is one thing by itself.
            kind if kind <= Kind::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP as u32 => {}
            _ => self.unknown += 1,
        }
        Ok(())
    }

    /// Refuses what a graph cannot repeat, and what it cannot be known of whether it can.
    fn refuse(&self) -> Result<()> {
        let Census { allocations, frees, unknown, .. } = *self;
        if allocations + frees > 0 {
            return Err(Error::SectionAllocates { allocations, frees });
        }
        if unknown > 0 {
            let reason = "the section enqueued nodes that cannot be looked into, and what allocates memory could be inside";
            return Err(Error::Unsupported { operation: "raw", reason });
        }
        Ok(())
    }
}

fn nodes(graph: sys::CUgraph) -> Result<Vec<sys::CUgraphNode>, Fault> {
    let mut count = 0;
    // SAFETY: a live graph, and a place for a number; without places for nodes only that is written.
    check(Call::Section, unsafe { sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count) })?;
    let mut nodes = vec![std::ptr::null_mut(); count];
    if count > 0 {
        // SAFETY: as above, with `count` places.
        check(Call::Section, unsafe { sys::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count) })?;
    }
    nodes.truncate(count);
    Ok(nodes)
}

assert_impl_all!(CudaSection: Send, Sync);
