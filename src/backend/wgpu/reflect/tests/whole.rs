//! The text, its entry point, its block, and what a thread takes.

use super::*;
use crate::kernel::{In, InOut, Out};

/// An error without a place in the text is searched for by hand.
#[test]
fn wgsl_that_does_not_parse_is_shown_with_line_and_column() {
    let text = "@compute @workgroup_size(64)\nfn main() { let x = y; }";
    assert_eq!(
        reflect(&program::<()>(text), &MUCH).unwrap_err(),
        "`k`: its WGSL is refused
error: no definition in scope for identifier: `y`
  ┌─ wgsl:2:21
  │
2 │ fn main() { let x = y; }
  │                     ^ unknown identifier"
    );
}

/// Validation comes after parsing, and has places of its own.
#[test]
fn wgsl_that_is_not_valid_is_shown_with_line_and_column() {
    let text = shader("@group(0) @binding(0) var<storage, read_write> x: array<bool>;", "");
    let message = reflect(&program::<(InOut<u32>,)>(&text), &MUCH).unwrap_err();
    assert!(message.starts_with("`k`: its WGSL is refused\nerror: Global variable"), "{message}");
    assert!(message.contains("┌─ wgsl:1:"), "{message}");
    assert_eq!(message.matches("error:").count(), 1, "said once: {message}");
}

/// A module with an entry point of another name would be launched by that name's absence.
#[test]
fn a_missing_entry_point_is_told_with_those_there_are() {
    let text = "@compute @workgroup_size(64) fn a() {}\n@compute @workgroup_size(64) fn b() {}";
    assert_eq!(
        reflect(&program::<()>(text), &MUCH).unwrap_err(),
        "`k`: the shader has no entry point `main`; it has `a`, `b`"
    );
    assert_eq!(
        reflect(&program::<()>("fn main() {}"), &MUCH).unwrap_err(),
        "`k`: the shader has no entry point: mark `main` as `@compute @workgroup_size(..)`"
    );
}

/// A vertex shader has no blocks.
#[test]
fn an_entry_point_that_is_not_compute_is_refused() {
    let text = "@vertex fn main() -> @builtin(position) vec4<f32> { return vec4<f32>(); }";
    assert_eq!(
        reflect(&program::<()>(text), &MUCH).unwrap_err(),
        "`k`: its entry point `main` is not `@compute`, which kernels are"
    );
}

/// A grid that covers `n` threads in blocks of another size would leave some out.
#[test]
fn the_workgroup_must_be_the_block() {
    let text = "@compute @workgroup_size(8, 4) fn main() {}";
    assert_eq!(
        reflect(&program::<()>(text), &MUCH).unwrap_err(),
        "`k`: the shader has `@workgroup_size(8, 4, 1)`, and the program blocks of 64 x 1 x 1 threads: say `.block(8, 4, 1)`"
    );
}

/// A size by an `override` is known only when that has its value.
#[test]
fn a_workgroup_of_override_constants_has_their_defaults() {
    let text = "override n: u32 = 32;\n@compute @workgroup_size(2 * n) fn main() {}";
    let shader = reflect(&program::<()>(text), &MUCH).unwrap();
    assert_eq!(shader.module.entry_points[0].workgroup_size, [64, 1, 1]);
    let text = "override n: u32 = 16;\n@compute @workgroup_size(2 * n) fn main() {}";
    let message = reflect(&program::<()>(text), &MUCH).unwrap_err();
    assert!(message.contains("`@workgroup_size(32, 1, 1)`"), "{message}");
}

/// Nobody can give it a value later.
#[test]
fn an_override_constant_without_a_default_is_refused() {
    let text = shader("override n: u32;\nvar<private> x: u32;", "x = n;");
    assert_eq!(
        reflect(&program::<()>(&text), &MUCH).unwrap_err(),
        "`k`: `override n` has no default, and gets no other value: give it one"
    );
}

/// Two kernels in one text have their bindings at the same places.
#[test]
fn other_entry_points_may_have_other_bindings() {
    let text = "
        struct Scalars { n: u32 }
        @group(0) @binding(0) var<storage, read> theirs: array<u32>;
        @group(0) @binding(1) var<uniform> scalars: Scalars;
        @group(0) @binding(2) var<storage, read> more: array<u32>;
        @group(0) @binding(0) var<storage, read_write> ours: array<f32>;
        @compute @workgroup_size(1) fn other() { _ = theirs[0] + more[scalars.n]; }
        @compute @workgroup_size(64) fn main() { ours[0] = 1.0; }";
    let shader = reflect(&program::<(Out<f32>,)>(text), &LITTLE).unwrap();
    assert_eq!(shader.bindings.len(), 1);
    assert_eq!(shader.module.global_variables.len(), 1, "what another one uses is left out");
}

/// Drivers refuse, lose the device or end the process over what no thread can have.
#[test]
fn private_memory_beyond_any_device_is_refused() {
    let text = shader("var<private> x: array<u32, 1000000>;", "x[0] = 1u;");
    assert_eq!(
        reflect(&program::<()>(&text), &MUCH).unwrap_err(),
        "`k`: each thread of the shader has 4000000 bytes of variables of its own, and 8192 are allowed: keep large arrays in a buffer or in workgroup memory"
    );
}

/// A function's variables are as much a thread's as the module's are, and those of two that are not active at once are not
/// added up.
#[test]
fn private_memory_is_that_of_the_functions_that_are_active_at_once() {
    let text = |entry: &str| {
        format!(
            "fn a() {{ var x: array<u32, 1500>; x[0] = 1u; }}
             fn b() {{ var x: array<u32, 1500>; x[0] = 1u; }}
             fn c() {{ var x: array<u32, 1500>; x[0] = 1u; a(); }}
             fn unused() {{ var x: array<u32, 100000>; x[0] = 1u; }}
             @compute @workgroup_size(64) fn main() {{ {entry} }}"
        )
    };
    reflect(&program::<()>(&text("a(); if true { b(); } else { a(); }")), &MUCH).unwrap();
    let message = reflect(&program::<()>(&text("loop { switch 1 { default { c(); } } break; }")), &MUCH);
    assert!(message.unwrap_err().contains("has 12000 bytes"));
}

/// wgpu hands what no block can have to the driver, one of which takes all memory of the machine to compile it.
#[test]
fn workgroup_memory_beyond_the_limit_is_refused() {
    let text = |n: u32| {
        let globals =
            "var<workgroup> x: array<u32, n>; var<workgroup> y: u32; var<workgroup> z: array<u32, 999>;";
        shader(&format!("override n = {n}u; {globals}"), "x[0] = 1u; y = 1u;")
    };
    reflect(&program::<()>(&text(252)), &MUCH).unwrap();
    assert_eq!(
        reflect(&program::<()>(&text(253)), &MUCH).unwrap_err(),
        "`k`: the shader has 1040 bytes of workgroup variables, and this device allows 1024 (wgpu's limit `max_compute_workgroup_storage_size`)"
    );
}

/// What the signature asks of a device is told before what the shader asks of it.
#[test]
fn numbers_that_the_device_lacks_are_named_with_their_feature() {
    let buffer = "@group(0) @binding(0) var<storage, read_write> x: array<f64>;";
    assert_eq!(
        refused_on::<(Out<f64>,)>(buffer, &LITTLE),
        "`k`: parameter 0, `Out<f64>`: shaders of this device have no `f64` (wgpu's feature `SHADER_F64`); take an `f32` in its place"
    );
    assert!(
        refused_on::<(u64,)>("", &LITTLE)
            .contains("parameter 0, `u64`: shaders of this device have no `u64`")
    );
    assert!(refused_on::<(In<[i64; 2]>,)>("", &LITTLE).contains("`SHADER_INT64`"));
    accepted::<(Out<f64>,)>(buffer);
}

/// A shader may use what no argument shows.
#[test]
fn capabilities_that_the_device_lacks_are_named() {
    let text = shader("", "var x: f64 = 1.0lf; x += 1.0lf;");
    let message = reflect(&program::<()>(&text), &LITTLE).unwrap_err();
    assert!(message.starts_with("`k`: its WGSL is refused\n") && message.contains("FLOAT64"), "{message}");
}

/// One buffer more than the device can bind would be found at the first launch.
#[test]
fn as_many_buffers_as_the_device_binds_and_no_more() {
    type Eight = (In<u8>, In<u8>, In<u8>, In<u8>, In<u8>, In<u8>, In<u8>, In<u8>);
    type Nine = (In<u8>, In<u8>, In<u8>, In<u8>, In<u8>, In<u8>, In<u8>, In<u8>, In<u8>);
    let text = |count: u32| -> String {
        (0..count).map(|i| format!("@group(0) @binding({i}) var<storage> b{i}: array<u32>;\n")).collect()
    };
    assert_eq!(accepted::<Eight>(&text(8)).bindings.len(), 8);
    assert_eq!(
        refused::<Nine>(&text(9)),
        "`k`: it has 9 buffers, and a kernel of this device can have 8 (wgpu's limit `max_storage_buffers_per_shader_stage`)"
    );
}
