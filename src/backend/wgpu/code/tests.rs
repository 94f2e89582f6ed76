//! Kernels that are loaded again, on a device; skipped where there is none, unless one is required.

use std::sync::{Arc, Barrier};

use crate::backend::wgpu::Wgpu;
use crate::device::Device;
use crate::kernel::{InOut, Kernel, Len, Program, Signature};

const TEXT: &str = "
struct Scalars { len: u32 }
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(2) var<uniform> scalars: Scalars;
@compute @workgroup_size(64) fn a(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < scalars.len { x[id.x] += y[id.x]; }
}
@compute @workgroup_size(64) fn b(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < scalars.len { x[id.x] -= y[id.x]; }
}";

fn device() -> Option<Device<Wgpu>> {
    let opened = Device::<Wgpu>::new();
    let required = std::env::var("DACAPO_REQUIRE").is_ok_and(|what| what.contains("wgpu"));
    match opened {
        Err(error) if required => panic!("a wgpu device is required: {error}"),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
        Ok(device) => Some(device),
    }
}

fn load<S: Signature>(device: &Device<Wgpu>, name: &str, entry: &str) -> Kernel<S, Wgpu> {
    Program::<S>::new(name).block(64, 1, 1).wgsl(TEXT, entry).load(device).unwrap()
}

/// A model that loads the program of each of its layers would compile it hundreds of times.
#[test]
fn a_kernel_that_is_loaded_again_is_the_same_code() {
    type S = (InOut<u32>, InOut<u32>, Len<0>);
    type Signed = (InOut<u32>, InOut<u32>, Len<1>);
    let Some(device) = device() else { return };
    let first = load::<S>(&device, "first", "a");
    let code = &first.loaded.code;
    assert!(Arc::ptr_eq(code, &load::<S>(&device, "second", "a").loaded.code), "whatever its name is");
    assert!(Arc::ptr_eq(code, &load::<Signed>(&device, "first", "a").loaded.code), "a count is a count");
    assert!(!Arc::ptr_eq(code, &load::<S>(&device, "first", "b").loaded.code));
    let other = Program::<S>::new("first").block(32, 1, 1).wgsl(TEXT, "a").load(&device);
    assert!(
        other.unwrap_err().to_string().contains("`.block(64, 1, 1)`"),
        "compared although the text is known"
    );
}

/// Threads that start together would each compile what one of them could.
#[test]
fn threads_that_load_one_program_at_once_get_one_code() {
    type S = (InOut<u32>, InOut<u32>, Len<0>);
    let Some(device) = device() else { return };
    let start = Barrier::new(4);
    let load = || {
        start.wait();
        load::<S>(&device, "k", "a")
    };
    let kernels = std::thread::scope(|threads| {
        let running: Vec<_> = (0..4).map(|_| threads.spawn(load)).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    for kernel in &kernels {
        assert!(Arc::ptr_eq(&kernel.loaded.code, &kernels[0].loaded.code));
    }
}

/// A program that generates its kernels would keep each of them for ever.
#[test]
fn code_that_nobody_has_is_given_up() {
    type S = (InOut<u32>, InOut<u32>, Len<0>);
    let Some(device) = device() else { return };
    let kernel = load::<S>(&device, "k", "a");
    let code = Arc::downgrade(&kernel.loaded.code);
    drop(kernel);
    assert!(code.upgrade().is_none());
    assert_eq!(load::<S>(&device, "k", "a").name(), "k");
}
