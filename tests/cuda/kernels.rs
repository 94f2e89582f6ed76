//! Loading and launching.

use dacapo::cuda::Cuda;
use dacapo::prelude::*;
use dacapo::{Call, Error, GridLimit};

use crate::support::{Mixed, program, ramp, written};

const PTX: &str = ".version 7.0
.target sm_70
.address_size 64
.visible .entry negate(.param .u64 x, .param .u64 n)
{
  .reg .pred %p; .reg .b32 %r<4>; .reg .f32 %f<3>; .reg .b64 %d<6>;
  ld.param.u64 %d1, [n];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
  mad.lo.u32 %r1, %r1, %r2, %r3; cvt.u64.u32 %d2, %r1;
  setp.ge.u64 %p, %d2, %d1; @%p ret;
  ld.param.u64 %d3, [x]; cvta.to.global.u64 %d3, %d3; shl.b64 %d4, %d2, 2; add.u64 %d3, %d3, %d4;
  ld.global.f32 %f1, [%d3]; neg.f32 %f2, %f1; st.global.f32 [%d3], %f2; ret;
}
";

/// Why a program is refused.
pub fn refused<S: dacapo::Signature>(program: Program<S>, device: &Device<Cuda>) -> String {
    match program.load(device) {
        Err(Error::Driver { call: Call::Load, message }) => message.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn ptx_runs_as_written() {
    let (device, _) = crate::device!();
    let mut stream = device.stream().unwrap();
    let program = Program::<(InOut<f32>, Len<0>)>::new("negate");
    // SAFETY: the kernel compares its index with `n`, and touches `x` only.
    let negate = unsafe { program.ptx(PTX, "negate") }.load(&device).unwrap();
    let mut x = written(&mut stream, &ramp(1000));
    stream.launch(&negate, Grid::covering(1000), (&mut x, Len)).unwrap();
    assert_eq!(stream.read(&x).unwrap(), ramp(1000).iter().map(|x| -x).collect::<Vec<_>>());
}

/// A launch reads as many bytes as the function has parameters, whatever it is given.
#[test]
fn a_signature_that_is_not_the_functions_is_refused_with_both_numbers() {
    let (device, _) = crate::device!();
    let message = refused(program::<(InOut<f32>,)>("inc"), &device);
    assert!(message.contains("more than the 1 parameters"), "{message}");
    let message = refused(program::<(InOut<f32>, Len<0>, f32)>("inc"), &device);
    assert!(message.contains("the function has 2 parameters, the signature 3"), "{message}");
    let message = refused(program::<(InOut<f32>, f32)>("inc"), &device);
    assert!(message.contains("parameter 1 has 8 bytes in the function and 4 in the signature"), "{message}");
    let message = refused(program::<(InOut<f32>, Len<0>)>("missing"), &device);
    assert!(message.contains("no function `missing`"), "{message}");
    // SAFETY: it becomes no kernel.
    let large = unsafe { Program::<(InOut<f32>, Len<0>)>::new("negate").block(32, 33, 1).ptx(PTX, "negate") };
    let message = refused(large, &device);
    assert!(message.contains("blocks of 1056 threads"), "{message}");
}

#[test]
fn a_source_that_does_not_compile_is_refused_with_what_the_compiler_said() {
    let (device, _) = crate::device!();
    // SAFETY: neither source becomes a kernel.
    let text =
        unsafe { Program::<()>::new("broken").cuda("extern \"C\" __global__ void f() { oops(); }", "f") };
    assert!(refused(text, &device).contains("oops"));
    // SAFETY: as above.
    let ptx = unsafe { Program::<()>::new("broken").ptx(".version 7.0\n.target sm_70\nnonsense", "f") };
    assert!(refused(ptx, &device).contains("nonsense"));
    let host = Program::<()>::new("elsewhere").host(|(), _| ());
    assert!(matches!(host.load(&device), Err(Error::MissingSource { backend: "cuda", .. })));
}

/// A length that the caller gives is one that the caller gets wrong.
#[test]
fn lengths_are_those_of_the_arguments_whatever_the_grid_covers() {
    let (device, kernels) = crate::device!();
    let mut stream = device.stream().unwrap();
    let x = written(&mut stream, &ramp(10));
    let mut y = stream.alloc::<f32>(1000).unwrap();
    let slice = y.slice_mut(5..12).unwrap();
    stream
        .launch(&kernels.axpy, Grid::covering(5000), (2.0, x.slice(2..9).unwrap(), Len, slice, Len))
        .unwrap();
    let mut expected = vec![0.0; 1000];
    (0..7).for_each(|n| expected[5 + n] = 2.0 * (n as f32 + 3.0));
    assert_eq!(stream.read(&y).unwrap(), expected);
    let table = [9, 3, 3, 0];
    let from = stream.alloc::<u32>(10).unwrap();
    let mut to = stream.alloc::<u32>(6).unwrap();
    stream.fill(&mut to, 77).unwrap();
    stream.launch(&kernels.gather, Grid::covering(1000), (&from, Len, &mut to, Len, &table, Len)).unwrap();
    assert_eq!(stream.read(&to).unwrap(), [0, 0, 0, 0, 77, 77]);
}

#[test]
fn scalars_of_every_size_arrive_where_the_function_expects_them() {
    let (device, kernels) = crate::device!();
    let mut stream = device.stream().unwrap();
    let mut y = stream.alloc_scratch::<f64>(3).unwrap();
    let mixed = Mixed { a: 0.5, b: 10, c: 100.25 };
    stream.launch(&kernels.mixed, Grid::covering(3), (7, mixed, &mut y, Len, 1000)).unwrap();
    assert_eq!(stream.read(&y).unwrap(), [1117.75; 3]);
}

#[test]
fn empty_grids_and_empty_buffers_do_nothing() {
    let (device, kernels) = crate::device!();
    let mut stream = device.stream().unwrap();
    let (x, mut y) = (stream.alloc::<f32>(0).unwrap(), stream.alloc::<f32>(0).unwrap());
    stream.launch(&kernels.add1, Grid::covering(0), (&x, Len, &mut y, Len)).unwrap();
    stream.launch(&kernels.add1, Grid::blocks(3), (&x, Len, &mut y, Len)).unwrap();
    let (mut graph, ()) =
        stream.record(|work| work.launch(&kernels.add1, Grid::blocks(3), (&x, Len, &mut y, Len))).unwrap();
    graph.replay(&mut stream).unwrap().wait().unwrap();
    let (mut empty, ()) = stream.record(|_| Ok(())).unwrap();
    empty.replay(&mut stream).unwrap().wait().unwrap();
    stream.sync().unwrap();
}

#[test]
fn a_grid_has_as_many_threads_as_it_says_and_limits_are_named() {
    let (device, kernels) = crate::device!();
    let mut stream = device.stream().unwrap();
    let mut n = stream.alloc::<u32>(1).unwrap();
    stream.launch(&kernels.count, Grid::blocks((3, 5, 2)), (&mut n, Len)).unwrap();
    assert_eq!(stream.read(&n).unwrap(), [30 * 256]);
    let error = stream.launch(&kernels.count, Grid::blocks((1, 1 << 16)), (&mut n, Len)).unwrap_err();
    assert!(matches!(error, Error::Limit { limit: GridLimit::BlocksY, .. }), "{error}");
}

/// Code that went while the device runs it would be somebody else's memory.
#[test]
fn a_kernel_may_be_dropped_while_it_runs() {
    let (device, kernels) = crate::device!();
    let mut stream = device.stream().unwrap();
    let mut x = stream.alloc::<u32>(32).unwrap();
    for _ in 0..20 {
        let spin: Kernel<(InOut<u32>, Len<0>, u64), _> = crate::support::load(&device, "spin");
        stream.launch(&spin, Grid::covering(32), (&mut x, Len, 1_000_000)).unwrap();
    }
    drop(kernels);
    assert_eq!(stream.read(&x).unwrap(), [20; 32]);
}
