//! The struct of the scalars, and the way it goes.

use bytemuck::{Pod, Zeroable};
use wgpu::naga::AddressSpace;

use super::*;
use crate::backend::wgpu::params::{Field, Passing, Value};
use crate::kernel::{InOut, Len};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Window {
    from: u32,
    to: u32,
}

fn uniform(members: &str) -> String {
    format!("struct Scalars {{ {members} }}\n@group(0) @binding(0) var<uniform> scalars: Scalars;")
}

fn immediate(members: &str) -> String {
    format!("struct Scalars {{ {members} }}\nvar<immediate> scalars: Scalars;")
}

fn space(shader: &Shader) -> AddressSpace {
    shader.module.global_variables.iter().next().expect("there is one").1.space
}

/// Neither author nor caller should know what the device has.
#[test]
fn scalars_go_by_immediates_where_they_fit_and_else_by_a_uniform() {
    for globals in [uniform("a: f32, b: u32"), immediate("a: f32, b: u32")] {
        let shader = accepted_on::<(f32, u32)>(&globals, &MUCH);
        assert_eq!((shader.params.passing, shader.params.bytes), (Passing::Immediates, 8));
        assert_eq!(space(&shader), AddressSpace::Immediate);
        let shader = accepted_on::<(f32, u32)>(&globals, &LITTLE);
        assert_eq!((shader.params.passing, shader.params.bytes), (Passing::Uniform, 16));
        assert_eq!(space(&shader), AddressSpace::Uniform);
        let (_, var) = shader.module.global_variables.iter().next().unwrap();
        assert_eq!(var.binding.map(|at| (at.group, at.binding)), Some((0, 0)));
    }
    let large = uniform("a: mat4x4<f32>");
    let shader = accepted_on::<([f32; 16],)>(&large, &MUCH);
    assert_eq!(shader.params.passing, Passing::Uniform, "64 bytes, of 32");
}

/// A signature without scalars has nothing to pass.
#[test]
fn without_scalars_nothing_is_passed() {
    assert_eq!(accepted::<()>("").params.passing, Passing::Nothing);
    let message = refused::<()>(&uniform("a: f32"));
    assert!(message.contains("`scalars` at `@group(0) @binding(0)` belongs to no parameter"), "{message}");
    let message = refused::<()>(&immediate("a: f32"));
    assert!(message.contains("`scalars` belongs to no parameter"), "{message}");
}

/// Each member has a place of WGSL's, which is not where the host packs it.
#[test]
fn members_have_the_offsets_of_the_struct() {
    let globals = "struct Scalars { a: f32, b: vec3<f32>, n: u32 }
        @group(0) @binding(0) var<storage, read_write> x: array<f32>;
        @group(0) @binding(1) var<uniform> scalars: Scalars;";
    let shader = accepted::<(f32, InOut<f32>, [f32; 3], Len<1>)>(globals);
    let field = |at, value| Field { at, value };
    let expected = [field(0, Value::Bytes(4)), field(16, Value::Bytes(12)), field(28, Value::Count)];
    assert_eq!(*shader.params.fields, expected);
    assert_eq!(shader.params.bytes, 32);
}

/// A shader that found its scalars nowhere would read zeros.
#[test]
fn a_missing_variable_is_told_with_its_declaration() {
    assert_eq!(
        refused::<(f32, u32)>(""),
        "`k`: the shader has no variable for the 2 scalars of the signature: declare a struct with as many members, and `@group(0) @binding(0) var<uniform> name: Struct;` or `var<immediate> name: Struct;`"
    );
}

/// A binding right behind the buffers may be a buffer that has no parameter.
#[test]
fn the_variable_must_be_a_uniform_struct() {
    let storage = "@group(0) @binding(0) var<storage> scalars: array<f32>;";
    assert_eq!(
        refused::<(f32,)>(storage),
        "`k`: `scalars` at `@group(0) @binding(0)` is no uniform, and stands where the signature has 1 scalar: declare `@group(0) @binding(0) var<uniform> name: Struct;`"
    );
    assert_eq!(
        refused::<(f32,)>("@group(0) @binding(0) var<uniform> a: f32;"),
        "`k`: `a` at `@group(0) @binding(0)` is `f32`, and is to be a struct with one member for each scalar"
    );
}

/// One scalar less, and each one behind it is another one.
#[test]
fn there_are_as_many_members_as_scalars() {
    assert_eq!(
        refused::<(f32, u32)>(&uniform("a: f32")),
        "`k`: the struct `Scalars` of `scalars` at `@group(0) @binding(0)` has 1 member, and the signature 2 scalars: parameter 0, `f32`; parameter 1, `u32`"
    );
}

/// Scalars in another order are of other kinds, or else nobody can tell.
#[test]
fn members_have_the_types_of_the_scalars() {
    assert_eq!(
        refused::<(f32, u32)>(&uniform("n: u32, a: f32")),
        "`k`: member `n` of `scalars` at `@group(0) @binding(0)` is parameter 0, `f32`: it is `u32`, and is to be `f32`"
    );
    assert!(
        refused::<([f32; 3],)>(&uniform("a: vec4<f32>"))
            .ends_with("it is `vec4<f32>`, and is to be `vec3<f32>`")
    );
    accepted::<(Window,)>(&uniform("w: vec2<u32>"));
    assert!(
        refused::<(Window,)>(&uniform("w: u32"))
            .ends_with("the shader's `u32` has 4 bytes, and the parameter's `Window` has 8")
    );
}

/// A count has 64 bits elsewhere.
#[test]
fn a_length_is_a_u32() {
    let globals = |ty: &str| {
        format!(
            "struct Scalars {{ n: {ty} }}
            @group(0) @binding(0) var<storage, read_write> x: array<f32>;
            @group(0) @binding(1) var<uniform> scalars: Scalars;"
        )
    };
    accepted::<(InOut<f32>, Len<0>)>(&globals("u32"));
    let message = refused::<(InOut<f32>, Len<0>)>(&globals("u64"));
    assert!(message.ends_with("is parameter 1, `Len<0>`: it is `u64`, and is to be `u32`"), "{message}");
}

/// A byte that was passed as a word would bring three of its neighbours along.
#[test]
fn scalars_that_wgsl_lacks_are_refused() {
    for message in [refused::<(u8,)>(&uniform("a: u32")), refused::<(i16,)>(&uniform("a: u32"))] {
        assert!(message.contains("WGSL has no `"), "{message}");
        assert!(message.ends_with("take a `u32` or an `i32` in its place"), "{message}");
    }
}

/// Immediates have rules of their own, which a device without them cannot keep.
#[test]
fn immediates_that_can_be_no_uniform_are_refused_where_they_must_be_one() {
    let globals = immediate("a: array<f32, 4>");
    accepted_on::<([f32; 4],)>(&globals, &MUCH);
    let message = refused_on::<([f32; 4],)>(&globals, &LITTLE);
    assert!(message.starts_with("`k`: this device passes the scalars, `scalars`, in a uniform"), "{message}");
    assert!(message.contains("stride"), "{message}");
}
