//! Raw sections with a library that keeps state behind a handle: products of matrices by cuBLAS.

#![allow(unsafe_code, reason = "calls of cuBLAS")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cudarc::cublas::{CudaBlas, Gemm, GemmConfig, result, sys};
use cudarc::driver::{CudaContext, CudaStream};
use dacapo::cuda::Cuda;
use dacapo::prelude::*;
use dacapo::{Address, AddressMut, EnqueueRaw, Overwrite, RawBuffer, SectionError, State};

use crate::support::{Buf, eventually, written};

/// Rows of A and C, columns of A and rows of B, columns of B and C. Long sums, which cuBLAS divides in its workspace; and few
/// of them, since the host checks each.
const SHAPE: (usize, usize, usize) = (64, 1024, 32);

/// Bytes of a workspace.
const WORKSPACE: usize = 8 << 20;

/// A handle of cuBLAS with a workspace of ours.
struct Blas {
    handle: sys::cublasHandle_t,
    workspace: RawBuffer<Cuda>,
    dropped: Arc<AtomicUsize>,
}

/// The places of A, B and C.
type Places<'p> = (&'p Address<f32>, &'p Address<f32>, &'p AddressMut<f32>);

// SAFETY: cuBLAS lets any thread use a handle; these tests use it on one at a time.
unsafe impl Send for Blas {}
// SAFETY: as for `Send`.
unsafe impl Sync for Blas {}

impl Blas {
    fn new(stream: &mut impl Enqueue<Cuda>, dropped: &Arc<AtomicUsize>) -> Self {
        // The handle is for the context that is current.
        CudaContext::new(0).unwrap().bind_to_thread().unwrap();
        let workspace = stream.alloc_scratch::<u8>(WORKSPACE).unwrap().raw().unwrap();
        Blas { handle: result::create_handle().unwrap(), workspace, dropped: dropped.clone() }
    }

    /// Enqueues `c = a b` on `queue`, all in columns, with the workspace that the handle owns.
    fn multiply(&self, queue: &CudaStream, places: Places<'_>) -> Result<(), SectionError> {
        self.multiply_in(queue, places, (self.workspace.address(), self.workspace.len_bytes()))
    }

    fn multiply_in(
        &self,
        queue: &CudaStream,
        (a, b, c): Places<'_>,
        (workspace, bytes): (u64, usize),
    ) -> Result<(), SectionError> {
        let (m, k, n) = SHAPE;
        assert_eq!((a.len(), b.len(), c.len()), (m * k, k * n, m * n));
        let (m, k, n) = (m as i32, k as i32, n as i32);
        let workspace = std::ptr::without_provenance_mut(workspace as usize);
        let (same, alpha, beta) = (sys::cublasOperation_t::CUBLAS_OP_N, 1.0, 0.0);
        // SAFETY: a live handle and stream. It takes the workspace away.
        unsafe { result::set_stream(self.handle, queue.cu_stream().cast()) }?;
        // SAFETY: by the callers' word the memory stays where it is for as long as the section.
        unsafe { sys::cublasSetWorkspace_v2(self.handle, workspace, bytes) }.result()?;
        // SAFETY: the matrices are as large as was checked; the two numbers are read at once.
        unsafe {
            let (a, b, c) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
            result::sgemm(self.handle, same, same, m, n, k, &alpha, a, m, b, k, &beta, c, m)
        }?;
        Ok(())
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the handle is used no more, and nothing that it enqueued is in flight.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

/// `c = a b`, by a section that keeps the handle.
fn gemm(
    s: &mut impl Enqueue<Cuda>,
    blas: &Arc<Blas>,
    (a, b): (&Buf<f32>, &Buf<f32>),
    c: &mut Buf<f32>,
) -> dacapo::Result<()> {
    let blas = blas.clone();
    // SAFETY: cuBLAS enqueues on the stream that it was given, and touches the matrices and its workspace, which the handle
    // holds; and that is returned. Sections share one token, so that nothing else uses the workspace at the same time.
    unsafe {
        s.raw((a, b, Overwrite(c)), move |queue, (a, b, c)| {
            blas.multiply(queue, (&a, &b, &c))?;
            Ok(blas)
        })
    }
}

/// Whole numbers, of which every sum here is exact.
fn matrix(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|n| ((n * 31 + seed * 17) % 13) as f32 - 6.0).collect()
}

fn product(a: &[f32], b: &[f32]) -> Vec<f32> {
    let (m, k, n) = SHAPE;
    let mut c = vec![0.0; m * n];
    for (b, c) in b.chunks(k).zip(c.chunks_mut(m)) {
        for (b, a) in b.iter().zip(a.chunks(m)) {
            c.iter_mut().zip(a).for_each(|(c, a)| *c += a * b);
        }
    }
    c
}

/// The device, and whether there is cuBLAS; where there is not, the test says so, or fails.
macro_rules! blas {
    () => {{
        let device = crate::bare!();
        // SAFETY: looks whether the dynamic linker finds the library, whose initialisers run.
        if !unsafe { sys::is_culib_present() } {
            let required = std::env::var("DACAPO_REQUIRE").is_ok_and(|what| what.contains("cuda"));
            assert!(!required, "cuBLAS is required: libcublas is not found");
            println!("skipped: libcublas is not found");
            return;
        }
        device
    }};
}

struct Matrices {
    a: Buf<f32>,
    b: Buf<f32>,
    c: Buf<f32>,
}

impl Matrices {
    fn new(stream: &mut impl Enqueue<Cuda>, seed: usize) -> Self {
        let (m, k, n) = SHAPE;
        let (a, b) = (written(stream, &matrix(m * k, seed)), written(stream, &matrix(k * n, seed + 1)));
        Matrices { a, b, c: stream.alloc(m * n).unwrap() }
    }

    fn write(&mut self, stream: &mut Stream<NoCapture, Cuda>, seed: usize) {
        let (m, k, n) = SHAPE;
        stream.write(&mut self.a, matrix(m * k, seed)).unwrap();
        stream.write(&mut self.b, matrix(k * n, seed + 1)).unwrap();
    }

    fn multiply(&mut self, s: &mut impl Enqueue<Cuda>, blas: &Arc<Blas>) -> dacapo::Result<()> {
        gemm(s, blas, (&self.a, &self.b), &mut self.c)
    }

    /// Whether C is the product of what [`write`](Matrices::write) wrote.
    fn is_right(&self, stream: &mut (impl Enqueue<Cuda> + dacapo::CanWait), seed: usize) -> bool {
        let (m, k, n) = SHAPE;
        stream.read(&self.c).unwrap() == product(&matrix(m * k, seed), &matrix(k * n, seed + 1))
    }
}

/// A graph that did not own the workspace would write, on a replay, into what came to lie there.
#[test]
fn a_recorded_product_owns_its_handle_and_workspace_and_follows_its_inputs() {
    let device = blas!();
    let mut stream = device.stream().unwrap();
    let mut matrices = Matrices::new(&mut stream, 1);
    let dropped = Arc::new(AtomicUsize::new(0));
    let blas = Arc::new(Blas::new(&mut stream, &dropped));
    let (mut graph, ()) = stream.capture(|work| matrices.multiply(work, &blas)).unwrap();
    assert!(matrices.is_right(&mut stream, 1), "the warm-up was for real");
    drop(blas);
    for seed in 2..5 {
        matrices.write(&mut stream, seed);
        stream.fill(&mut matrices.c, f32::NAN).unwrap();
        graph.replay(&mut stream).unwrap();
        assert!(matrices.is_right(&mut stream, seed));
    }
    assert_eq!(dropped.load(Ordering::SeqCst), 0, "the graph holds it");
    drop(graph);
    assert!(eventually(|| dropped.load(Ordering::SeqCst) == 1));
}

/// Nobody holds the workspace at the end: the plan of the arena must leave it alone, and so must every other graph.
#[test]
fn a_workspace_born_in_the_recording_is_the_graphs_own() {
    let device = blas!();
    let mut stream = device.stream().unwrap();
    let mut matrices = Matrices::new(&mut stream, 1);
    let blas = Arc::new(Blas::new(&mut stream, &Arc::default()));
    let (mut child, ()) = stream
        .record(|work| {
            let mut workspace = work.alloc_scratch::<u8>(WORKSPACE)?;
            let (Matrices { a, b, c }, blas) = (&mut matrices, blas.clone());
            // SAFETY: as in `gemm`, with the workspace among the arguments.
            unsafe {
                work.raw((&*a, &*b, Overwrite(c), &mut workspace), move |queue, (a, b, c, workspace)| {
                    blas.multiply_in(queue, (&a, &b, &c), (workspace.get(), workspace.len()))?;
                    Ok(blas)
                })
            }
        })
        .unwrap();
    let (mut graph, ()) = stream.record(|work| work.embed(&mut child)).unwrap();
    drop(child);
    for seed in 2..5 {
        matrices.write(&mut stream, seed);
        stream.fill(&mut matrices.c, f32::NAN).unwrap();
        graph.replay(&mut stream).unwrap().wait().unwrap();
        assert!(matrices.is_right(&mut stream, seed));
    }
}

#[test]
fn a_product_is_right_eagerly_and_prepared_on_two_streams() {
    let device = blas!();
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let blas = Arc::new(Blas::new(&mut a, &Arc::default()));
    let (mut one, mut other) = (Matrices::new(&mut a, 1), Matrices::new(&mut b, 5));
    for _ in 0..20 {
        // Of one handle, so that they share a workspace.
        one.multiply(&mut a, &blas).unwrap();
        other.multiply(&mut b, &blas).unwrap();
    }
    assert!(one.is_right(&mut a, 1) && other.is_right(&mut b, 5));
    let mut prepared = a.prepare().unwrap();
    prepared.fill(&mut one.c, 0.0).unwrap();
    one.multiply(&mut prepared, &blas).unwrap();
    assert!(one.is_right(&mut prepared, 1));
}

/// Their outputs are disjoint, and so are their inputs: only the token says that they share a workspace.
#[test]
fn two_recorded_products_on_one_handle_are_right_and_have_an_edge() {
    let device = blas!();
    let mut stream = device.stream().unwrap();
    let blas = Arc::new(Blas::new(&mut stream, &Arc::default()));
    let mut pairs: Vec<_> = (0..2).map(|n| Matrices::new(&mut stream, 10 * n)).collect();
    let (mut graph, ()) =
        stream.record(|work| pairs.iter_mut().try_for_each(|pair| pair.multiply(work, &blas))).unwrap();
    assert_eq!((graph.edges(), graph.node(1).unwrap().after), (1, vec![0]));
    for round in 0..4 {
        pairs.iter_mut().enumerate().for_each(|(n, pair)| pair.write(&mut stream, 10 * n + round));
        graph.replay(&mut stream).unwrap();
        assert!(pairs.iter().enumerate().all(|(n, pair)| pair.is_right(&mut stream, 10 * n + round)));
    }
}

/// Handles that share nothing need not wait for each other.
#[test]
fn products_on_two_handles_with_two_tokens_are_right_and_have_no_edge() {
    let device = blas!();
    let mut stream = device.stream().unwrap();
    let handles: Vec<_> = (0..2).map(|_| Arc::new(Blas::new(&mut stream, &Arc::default()))).collect();
    let states = [State::new(&device), State::new(&device)];
    let mut pairs: Vec<_> = (0..2).map(|n| Matrices::new(&mut stream, 10 * n)).collect();
    let (mut graph, ()) = stream
        .record(|work| {
            let each = pairs.iter_mut().zip(handles.iter().zip(&states));
            each.into_iter().try_for_each(|(pair, (blas, state))| {
                let (Matrices { a, b, c }, blas) = (pair, blas.clone());
                // SAFETY: as in `gemm`, with a token for each handle.
                unsafe {
                    work.raw((&*a, &*b, Overwrite(c), state), move |queue, (a, b, c, ())| {
                        blas.multiply(queue, (&a, &b, &c))?;
                        Ok(blas)
                    })
                }
            })
        })
        .unwrap();
    assert_eq!(graph.edges(), 0);
    for round in 0..4 {
        pairs.iter_mut().enumerate().for_each(|(n, pair)| pair.write(&mut stream, 10 * n + round));
        graph.replay(&mut stream).unwrap();
        assert!(pairs.iter().enumerate().all(|(n, pair)| pair.is_right(&mut stream, 10 * n + round)));
    }
}

/// The calls of `cudarc` take its own types, which a section has no other way to come by.
#[test]
fn an_argument_is_one_of_the_safe_wrappers_of_cudarc_too() {
    let device = blas!();
    let mut stream = device.stream().unwrap();
    let mut matrices = Matrices::new(&mut stream, 1);
    CudaContext::new(0).unwrap().bind_to_thread().unwrap();
    let mut wrapper = CudaBlas::new(CudaContext::new(0).unwrap().default_stream()).unwrap();
    let (mut graph, ()) = stream
        .record(|work| {
            let mut workspace = work.alloc_scratch::<u8>(WORKSPACE)?;
            let (Matrices { a, b, c }, args) = (&mut matrices, &mut workspace);
            // SAFETY: as in `gemm`, with the workspace among the arguments; the views are used here alone.
            unsafe {
                work.raw((&*a, &*b, Overwrite(c), args), move |queue, (a, b, mut c, workspace)| {
                    wrapper.set_stream(queue.clone())?;
                    let place = workspace.as_mut_ptr().cast();
                    sys::cublasSetWorkspace_v2(*wrapper.handle(), place, workspace.len()).result()?;
                    wrapper.gemm(config(), &a.on(queue), &b.on(queue), &mut c.on_mut(queue))?;
                    Ok(wrapper)
                })
            }
        })
        .unwrap();
    for seed in 2..5 {
        matrices.write(&mut stream, seed);
        graph.replay(&mut stream).unwrap().wait().unwrap();
        assert!(matrices.is_right(&mut stream, seed));
    }
}

fn config() -> GemmConfig<f32> {
    let (m, k, n) = SHAPE;
    let (m, k, n) = (m as i32, k as i32, n as i32);
    let same = sys::cublasOperation_t::CUBLAS_OP_N;
    GemmConfig { transa: same, transb: same, m, n, k, alpha: 1.0, lda: m, ldb: k, beta: 0.0, ldc: m }
}
