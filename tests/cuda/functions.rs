//! Functions that `cudarc` has loaded.

#![allow(unsafe_code, reason = "what a function promises cannot be checked")]

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction};
use cudarc::nvrtc::compile_ptx;
use dacapo::cuda::Cuda;
use dacapo::prelude::*;
use dacapo::{Error, Signature};

use crate::neighbours::Beside;
use crate::support::{eventually, ramp, written};

const SOURCE: &str = r#"
extern "C" __global__ void times(float a, float* x, unsigned long long n) {
    unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    if (i < n) x[i] *= a;
}
"#;

type Times = (f32, InOut<f32>, Len<1>);

fn times(context: &Arc<CudaContext>) -> CudaFunction {
    context.load_module(compile_ptx(SOURCE).unwrap()).unwrap().load_function("times").unwrap()
}

fn adopt<S: Signature>(
    device: &Device<Cuda>,
    function: CudaFunction,
    block: [u32; 3],
) -> Result<Kernel<S, Cuda>, Error> {
    let [x, y, z] = block;
    let program = Program::<S>::new("times").block(x, y, z);
    // SAFETY: the function compares its index with the length, writes only the buffer, has no state and ends; where the
    // signature is another one, it is refused before any launch.
    unsafe { Kernel::from_function(device, function, &program) }
}

/// A module that is unloaded under a graph is code that is gone.
#[test]
fn a_loaded_function_is_a_kernel_and_stays_loaded() {
    let Beside { context, device, theirs, .. } = crate::beside!();
    let mut stream = device.stream().unwrap();
    let mut x = written(&mut stream, &ramp(1000));
    let holders = Arc::strong_count(&context);
    // Nobody else keeps the module.
    let kernel = adopt::<Times>(&device, times(&context), [128, 1, 1]).unwrap();
    assert_eq!((kernel.name(), kernel.block()), ("times", [128, 1, 1]));
    assert_eq!(Arc::strong_count(&context), holders + 1);
    let grid = Grid::covering(1000);
    stream.launch(&kernel, grid, (2.0f32, &mut x, Len)).unwrap();
    let (mut graph, ()) = stream.record(|w| w.launch(&kernel, grid, (3.0f32, &mut x, Len))).unwrap();
    drop(kernel);
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&x).unwrap(), ramp(1000).iter().map(|x| x * 6.0).collect::<Vec<_>>());
    graph.replay(&mut stream).unwrap();
    drop(graph);
    assert_eq!(stream.read(&x).unwrap()[0], 18.0);
    assert!(eventually(|| Arc::strong_count(&context) == holders), "unloaded when nobody needs it any more");
    drop(theirs);
}

/// Parameters that are not the function's are read from wherever they are taken to be.
#[test]
fn a_function_of_another_signature_is_refused() {
    let Beside { context, device, .. } = crate::beside!();
    let function = times(&context);
    let refused = [
        adopt::<(f32, InOut<f32>)>(&device, function.clone(), [128, 1, 1]).err(),
        adopt::<(f32, InOut<f32>, Len<1>, u32)>(&device, function.clone(), [128, 1, 1]).err(),
        adopt::<(f64, InOut<f32>, Len<1>)>(&device, function.clone(), [128, 1, 1]).err(),
        adopt::<Times>(&device, function.clone(), [2048, 1, 1]).err(),
    ];
    let said = ["more than the 2", "has 3 parameters", "parameter 0 has 4 bytes", "blocks of 2048 threads"];
    for (error, said) in refused.into_iter().zip(said) {
        let Some(Error::Driver { message, .. }) = error else { panic!("{error:?}") };
        assert!(message.contains(said) && message.contains("times"), "{message}");
    }
    adopt::<Times>(&device, function, [1024, 1, 1]).unwrap();
}

/// What an `unsafe` promise rests on must hold at every launch, wherever the code came from.
#[test]
fn a_function_has_the_checks_and_the_shared_memory_of_its_program() {
    let Beside { context, device, .. } = crate::beside!();
    let mut stream = device.stream().unwrap();
    let mut x = written(&mut stream, &ramp(10));
    let program = Program::<Times>::new("times").shared_memory(60 << 10).check(|_, (a, len, _)| match () {
        () if a.is_finite() => Ok(()),
        () => Err(format!("{len} elements times {a}")),
    });
    // SAFETY: as above, whatever the check lets through.
    let kernel = unsafe { Kernel::from_function(&device, times(&context), &program) }.unwrap();
    stream.launch(&kernel, Grid::covering(10), (2.0f32, &mut x, Len)).unwrap();
    assert_eq!(stream.read(&x).unwrap()[9], 20.0);
    let error = stream.launch(&kernel, Grid::covering(10), (f32::NAN, &mut x, Len)).unwrap_err();
    assert!(error.to_string().contains("10 elements times NaN"), "{error}");
    let greedy = program.shared_memory(1 << 30);
    // SAFETY: refused before any launch.
    let error = unsafe { Kernel::from_function(&device, times(&context), &greedy) }.unwrap_err();
    assert!(error.to_string().contains("shared memory"), "{error}");
}
