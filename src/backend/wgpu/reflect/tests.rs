//! Reflection, rule by rule, without a device.

mod buffers;
mod scalars;
mod whole;

use wgpu::naga::valid::Capabilities;

use crate::backend::wgpu::reflect::{Allowed, Shader};
use crate::kernel::{Program, Signature};

/// A device with as little as wgpu guarantees.
const LITTLE: Allowed =
    Allowed { capabilities: Capabilities::empty(), immediates: 0, buffers: 8, shared: 1024 };

/// A device with immediates, and all kinds of numbers.
const MUCH: Allowed = Allowed {
    capabilities: Capabilities::FLOAT64.union(Capabilities::SHADER_INT64).union(Capabilities::SHADER_FLOAT16),
    immediates: 32,
    buffers: 8,
    shared: 1024,
};

/// A program `k` of blocks of 64 threads, whose function is `main`.
fn program<S: Signature>(text: &str) -> Program<S> {
    Program::new("k").block(64, 1, 1).wgsl(text, "main")
}

fn reflect<S: Signature>(program: &Program<S>, allowed: &Allowed) -> Result<Shader, String> {
    let source = program.sources.wgsl.as_ref().expect("it was given");
    Shader::reflect(source, &program.sources, allowed)
}

/// A shader that declares `globals`, and uses what `body` does.
fn shader(globals: &str, body: &str) -> String {
    format!("{globals}\n@compute @workgroup_size(64) fn main() {{ {body} }}")
}

/// What is said of a program of the signature `S` that declares `globals`.
fn refused<S: Signature>(globals: &str) -> String {
    refused_on::<S>(globals, &MUCH)
}

fn refused_on<S: Signature>(globals: &str, allowed: &Allowed) -> String {
    reflect(&program::<S>(&shader(globals, "")), allowed).expect_err("it must be refused")
}

/// The shader of a program of the signature `S` that declares `globals`.
#[track_caller]
fn accepted<S: Signature>(globals: &str) -> Shader {
    accepted_on::<S>(globals, &MUCH)
}

#[track_caller]
fn accepted_on<S: Signature>(globals: &str, allowed: &Allowed) -> Shader {
    match reflect(&program::<S>(&shader(globals, "")), allowed) {
        Ok(shader) => shader,
        Err(message) => panic!("{message}"),
    }
}
