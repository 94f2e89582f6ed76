//! Both sides: the driver's own calls, and ours.

use std::ffi::c_void;

use cudarc::driver::sys;
use dacapo::cuda::Cuda;
use dacapo::prelude::*;

type Inc = Kernel<(InOut<f32>, Len<0>), Cuda>;

/// One kernel of a few instructions for both sides.
const PTX: &str = ".version 7.0
.target sm_70
.address_size 64
.visible .entry inc(.param .u64 x, .param .u64 n)
{
  .reg .pred %p; .reg .b32 %r<4>; .reg .f32 %f<3>; .reg .b64 %d<6>;
  ld.param.u64 %d1, [n];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
  mad.lo.u32 %r1, %r1, %r2, %r3; cvt.u64.u32 %d2, %r1;
  setp.ge.u64 %p, %d2, %d1; @%p ret;
  ld.param.u64 %d3, [x]; cvta.to.global.u64 %d3, %d3; shl.b64 %d4, %d2, 2; add.u64 %d3, %d3, %d4;
  ld.global.f32 %f1, [%d3]; add.f32 %f2, %f1, 0f3F800000; st.global.f32 [%d3], %f2; ret;
}
\0";

/// The driver's side: its stream and kernel, which live as long as the process, and the memory of ours.
pub struct Raw {
    stream: sys::CUstream,
    function: sys::CUfunction,
    chains: Vec<sys::CUdeviceptr>,
    n: u64,
}

pub fn ok(code: sys::CUresult) {
    assert_eq!(code, sys::CUresult::CUDA_SUCCESS);
}

impl Raw {
    /// On the device's primary context, which `Device` has made, and on the very memory of `ours`: how far it is from where
    /// the kernel runs makes a difference of a sixth.
    pub fn new(ours: &Ours) -> Self {
        let chains = ours.chains.iter().map(|chain| chain.raw().unwrap().address()).collect();
        let (mut context, mut stream) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: a place for a handle, and the first device, which is there: a `Device` is open.
        ok(unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, 0) });
        // SAFETY: a live context.
        ok(unsafe { sys::cuCtxSetCurrent(context) });
        // SAFETY: a place for a handle; 1 is the flag of a stream that does not wait for the default one.
        ok(unsafe { sys::cuStreamCreate(&mut stream, 1) });
        // SAFETY: a place for a handle, and text with a zero byte at its end.
        ok(unsafe { sys::cuModuleLoadData(&mut module, PTX.as_ptr().cast()) });
        // SAFETY: a place for a handle, a loaded module, and text with a zero byte at its end.
        ok(unsafe { sys::cuModuleGetFunction(&mut function, module, c"inc".as_ptr()) });
        Raw { stream, function, chains, n: ours.len as u64 }
    }

    /// Adds one to the numbers of a chain.
    pub fn launch(&self, chain: u64) {
        let (mut x, mut n) = (self.chains[chain as usize], self.n);
        let mut params = [std::ptr::from_mut(&mut x).cast::<c_void>(), std::ptr::from_mut(&mut n).cast()];
        let (blocks, none) = (self.n.div_ceil(256) as u32, std::ptr::null_mut());
        // SAFETY: the kernel's two parameters, of which it writes `n` floats at `x`, in memory that outlives this.
        ok(unsafe {
            sys::cuLaunchKernel(
                self.function,
                blocks,
                1,
                1,
                256,
                1,
                1,
                0,
                self.stream,
                params.as_mut_ptr(),
                none,
            )
        });
    }

    pub fn sync(&self) {
        // SAFETY: a live stream.
        ok(unsafe { sys::cuStreamSynchronize(self.stream) });
    }

    /// The stream capture of `nodes` launches, over so many chains in turn.
    pub fn capture(&self, nodes: u64, chains: u64) -> sys::CUgraph {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: a live stream, which captures nothing.
        ok(unsafe { sys::cuStreamBeginCapture_v2(self.stream, mode) });
        (0..nodes).for_each(|node| self.launch(node % chains));
        let mut graph = std::ptr::null_mut();
        // SAFETY: a place for a handle, and the stream that captures.
        ok(unsafe { sys::cuStreamEndCapture(self.stream, &mut graph) });
        graph
    }

    /// A chain of so many kernel nodes, made one by one.
    pub fn chain(&self, nodes: u64) -> sys::CUgraph {
        let (mut graph, mut last, mut before) = (std::ptr::null_mut(), [std::ptr::null_mut()], 0);
        // SAFETY: a place for a handle; no other flags than 0 exist.
        ok(unsafe { sys::cuGraphCreate(&mut graph, 0) });
        let (mut x, mut n) = (self.chains[0], self.n);
        let mut params = [std::ptr::from_mut(&mut x).cast::<c_void>(), std::ptr::from_mut(&mut n).cast()];
        let node = sys::CUDA_KERNEL_NODE_PARAMS {
            func: self.function,
            gridDimX: self.n.div_ceil(256) as u32,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 256,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            kernelParams: params.as_mut_ptr(),
            extra: std::ptr::null_mut(),
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        };
        for _ in 0..nodes {
            let mut added = std::ptr::null_mut();
            // SAFETY: a place for a handle, nodes of this graph, and the kernel's two parameters.
            ok(unsafe { sys::cuGraphAddKernelNode_v2(&mut added, graph, last.as_ptr(), before, &node) });
            (last, before) = ([added], 1);
        }
        graph
    }

    /// Makes the graph executable, and destroys it.
    pub fn instantiate(&self, graph: sys::CUgraph) -> sys::CUgraphExec {
        let mut exec = std::ptr::null_mut();
        // SAFETY: a place for a handle, and a live graph.
        ok(unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0) });
        // SAFETY: a live graph, used here for the last time.
        ok(unsafe { sys::cuGraphDestroy(graph) });
        exec
    }

    pub fn replay(&self, exec: sys::CUgraphExec) {
        // SAFETY: a live executable and a live stream.
        ok(unsafe { sys::cuGraphLaunch(exec, self.stream) });
    }

    /// Until all work of the process is done, as eagerly as the driver waits.
    pub fn sync_all() {
        // SAFETY: a context is current, and nothing captures.
        ok(unsafe { sys::cuCtxSynchronize() });
    }
}

/// Our side.
pub struct Ours {
    pub stream: Stream<NoCapture, Cuda>,
    inc: Inc,
    chains: Vec<Buffer<f32, Cuda>>,
    len: usize,
}

impl Ours {
    pub fn new(device: &Device<Cuda>, len: usize) -> Self {
        let mut stream = device.stream().unwrap();
        let program = Program::<(InOut<f32>, Len<0>)>::new("inc");
        // SAFETY: it compares its index with `n`, and touches `x` only.
        let inc = unsafe { program.ptx(PTX.trim_end_matches('\0'), "inc") }.load(device).unwrap();
        let chains = (0..8).map(|_| stream.alloc(len).unwrap()).collect();
        Ours { stream, inc, chains, len }
    }

    pub fn launch(&mut self, chain: usize) {
        let (grid, x) = (Grid::covering(self.len), &mut self.chains[chain]);
        self.stream.launch(&self.inc, grid, (x, Len)).unwrap();
    }

    pub fn record(&mut self, nodes: usize, chains: usize) -> Graph<Cuda> {
        let Ours { stream, inc, chains: buffers, len } = self;
        let record = stream.record(|work| {
            (0..nodes).try_for_each(|node| {
                work.launch(inc, Grid::covering(*len), (&mut buffers[node % chains], Len))
            })
        });
        record.unwrap().0
    }

    /// Whether the first number of each chain counts `sum` additions over all of them in turn.
    pub fn counted(&mut self, sum: u64, chains: u64) {
        for (n, chain) in self.chains.iter().take(chains as usize).enumerate() {
            let number = self.stream.read(chain.slice(..1).unwrap()).unwrap()[0];
            assert_eq!(u64::from(number as u32), sum / chains, "chain {n}");
        }
    }
}
