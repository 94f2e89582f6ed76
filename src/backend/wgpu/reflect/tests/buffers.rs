//! Buffers: their bindings, their access, their elements.

use bytemuck::{Pod, Zeroable};
use wgpu::naga::{AddressSpace, StorageAccess};

use super::*;
use crate::kernel::{In, InOut, Out, Uniform};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Body {
    at: [f32; 3],
    mass: f32,
    speed: [f32; 3],
    kind: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Tight {
    at: [f32; 3],
    speed: [f32; 3],
}

/// The variable of the only buffer parameter.
fn buffer(kind: &str, ty: &str) -> String {
    format!("@group(0) @binding(0) var<{kind}> x: {ty};")
}

fn input(ty: &str) -> String {
    buffer("storage, read", ty)
}

fn output(ty: &str) -> String {
    buffer("storage, read_write", ty)
}

/// A page that a dispatch binds read-only and read-write at once is refused by wgpu.
#[test]
fn every_storage_buffer_becomes_one_that_is_read_and_written() {
    let text = shader(
        "@group(0) @binding(0) var<storage, read> x: array<f32>;
         @group(0) @binding(1) var<uniform> t: array<vec4<f32>, 2>;
         @group(0) @binding(2) var<storage, read_write> y: array<f32>;",
        "y[0] = x[0] + t[1].x;",
    );
    let shader = reflect(&program::<(In<f32>, Uniform<[f32; 4]>, Out<f32>)>(&text), &LITTLE).unwrap();
    let both = AddressSpace::Storage { access: StorageAccess::LOAD | StorageAccess::STORE };
    assert!(shader.module.global_variables.iter().all(|(_, var)| var.space == both));
    let least: Vec<_> = shader.bindings.iter().map(|binding| binding.least).collect();
    assert_eq!(least, [4, 32, 4]);
}

/// A launch would bind an argument to nothing.
#[test]
fn a_missing_binding_is_told_with_its_declaration() {
    assert_eq!(
        refused::<(In<f32>, u32, Out<[f32; 4]>)>(&input("array<f32>")),
        "`k`: the shader has no `@binding(1)` for parameter 2, `Out<[f32; 4]>`: declare `@group(0) @binding(1) var<storage, read_write> name: array<vec4<f32>>;`"
    );
}

/// wgpu would ask for a bind group that nobody makes.
#[test]
fn a_binding_too_many_is_refused() {
    let globals = input("array<f32>") + "@group(0) @binding(1) var<storage> more: array<f32>;";
    assert_eq!(
        refused::<(In<f32>,)>(&globals),
        "`k`: `more` at `@group(0) @binding(1)` belongs to no parameter: the signature has 1 buffer and 0 scalars, in group 0: the buffers from binding 0 on, then one struct of all scalars"
    );
}

/// Only group 0 is bound.
#[test]
fn a_binding_of_another_group_is_refused() {
    let globals = input("array<f32>") + "@group(1) @binding(0) var<storage> other: array<f32>;";
    let message = refused::<(In<f32>,)>(&globals);
    assert!(
        message.starts_with("`k`: `other` at `@group(1) @binding(0)` belongs to no parameter"),
        "{message}"
    );
    let message = refused::<(In<f32>,)>("@group(1) @binding(0) var<storage> x: array<f32>;");
    assert!(message.contains("the shader has no `@binding(0)` for parameter 0, `In<f32>`"), "{message}");
}

/// What a kernel may write is what the edges of a graph are made of.
#[test]
fn access_must_be_what_the_parameter_says() {
    assert_eq!(
        refused::<(In<f32>,)>(&output("array<f32>")),
        "`k`: `x` at `@group(0) @binding(0)` can be written, and is parameter 0, `In<f32>`: declare it as `var<storage, read>`"
    );
    assert_eq!(
        refused::<(Out<f32>,)>(&input("array<f32>")),
        "`k`: `x` at `@group(0) @binding(0)` can only be read, and is parameter 0, `Out<f32>`: declare it as `var<storage, read_write>`"
    );
    assert!(
        refused::<(InOut<f32>,)>(&input("array<f32>")).contains("declare it as `var<storage, read_write>`")
    );
    assert!(refused::<(Uniform<f32>,)>(&output("array<f32>")).contains("declare it as `var<storage, read>`"));
}

/// A uniform has other limits and other strides than a buffer of any length can keep.
#[test]
fn only_a_table_may_be_a_uniform() {
    let globals = buffer("uniform", "array<vec4<f32>, 4>");
    accepted::<(Uniform<[f32; 4]>,)>(&globals);
    assert!(
        refused::<(In<[f32; 4]>,)>(&globals).contains("is a uniform, and is parameter 0, `In<[f32; 4]>`")
    );
    let texture = "@group(0) @binding(0) var x: texture_2d<f32>;";
    assert!(refused::<(In<f32>,)>(texture).contains("is no buffer, and is parameter 0, `In<f32>`"));
}

/// Floats that are read as integers are numbers all the same.
#[test]
fn elements_are_numbers_of_the_same_kind() {
    assert_eq!(
        refused::<(In<f32>,)>(&input("array<u32>")),
        "`k`: `x` at `@group(0) @binding(0)`, `array<u32>`, is parameter 0, `In<f32>`, and its elements are `u32`, and those of the parameter `f32`: make them `f32`"
    );
    for ty in ["f32", "i32", "u32", "f64", "i64", "u64"] {
        let declared = [
            accepts::<f32>(ty),
            accepts::<i32>(ty),
            accepts::<u32>(ty),
            accepts::<f64>(ty),
            accepts::<i64>(ty),
            accepts::<u64>(ty),
        ];
        assert_eq!(declared.iter().filter(|accepted| **accepted).count(), 1, "{ty}");
    }
    assert!(refused::<(In<f32>,)>(&input("array<vec4<f32>>")).contains("its elements are `vec4<f32>`"));
    assert!(refused::<(In<[f32; 4]>,)>(&input("array<vec4<i32>>")).contains("make them `vec4<f32>`"));
    assert!(refused::<(In<[f32; 4]>,)>(&input("array<vec2<f32>>")).contains("make them `vec4<f32>`"));
}

fn accepts<T: Pod>(ty: &str) -> bool {
    reflect(&program::<(In<T>,)>(&shader(&input(&format!("array<{ty}>")), "")), &MUCH).is_ok()
}

/// An atomic is its number to everybody else.
#[test]
fn atomics_count_as_their_numbers() {
    accepted::<(InOut<u32>,)>(&output("array<atomic<u32>>"));
    accepted::<(Out<i32>,)>(&output("atomic<i32>"));
    assert!(
        refused::<(InOut<u32>,)>(&output("array<atomic<i32>>")).contains("its elements are `atomic<i32>`")
    );
}

/// The element that most kernels get wrong: a `vec3` takes the place of four.
#[test]
fn three_numbers_are_no_vec3_in_an_array() {
    assert_eq!(
        refused::<(In<[f32; 3]>,)>(&input("array<vec3<f32>>")),
        "`k`: `x` at `@group(0) @binding(0)`, `array<vec3<f32>>`, is parameter 0, `In<[f32; 3]>`, and the shader's `vec3<f32>` takes 16 bytes in an array, and the parameter's `[f32; 3]` has 12: WGSL starts every `vec3<f32>` at a multiple of 16; write `array<f32, 3>` in its place"
    );
    accepted::<(In<[f32; 3]>,)>(&input("array<array<f32, 3>>"));
    accepted::<(In<[f32; 3]>,)>(&input("array<f32>"));
    accepted::<(In<[f32; 4]>,)>(&input("array<vec4<f32>>"));
    accepted::<(In<[i32; 2]>,)>(&input("array<vec2<i32>>"));
}

/// A shader has no bytes, and one that took them for words of their own would read a quarter.
#[test]
fn small_elements_are_words() {
    accepted::<(In<u8>,)>(&input("array<u32>"));
    accepted::<(InOut<i8>,)>(&output("array<atomic<u32>>"));
    accepted::<(In<[u16; 2]>,)>(&input("array<u32>"));
    accepted::<(In<[u8; 3]>,)>(&input("array<u32>"));
    assert_eq!(
        refused::<(In<u8>,)>(&input("array<i32>")),
        "`k`: `x` at `@group(0) @binding(0)`, `array<i32>`, is parameter 0, `In<u8>`, and its elements are `i32`, and WGSL has no `u8`: make them words, `u32`, each of which holds several"
    );
}

/// A struct that is laid out otherwise is read at the wrong places from its second element on.
#[test]
fn plain_data_must_have_the_stride_of_its_size() {
    let body = "struct Body { at: vec3<f32>, mass: f32, speed: vec3<f32>, kind: u32 }\n";
    accepted::<(In<Body>,)>(&(body.to_owned() + &input("array<Body>")));
    let tight = "struct Tight { at: vec3<f32>, speed: vec3<f32> }\n";
    assert_eq!(
        refused::<(In<Tight>,)>(&(tight.to_owned() + &input("array<Tight>"))),
        "`k`: `x` at `@group(0) @binding(0)`, `array<Tight>`, is parameter 0, `In<Tight>`, and the shader's `Tight` takes 32 bytes in an array, and the parameter's `Tight` has 24: WGSL starts every `vec3<f32>` at a multiple of 16; write `array<f32, 3>` in its place"
    );
    accepted::<(In<[f32; 16]>,)>(&input("array<mat4x4<f32>>"));
    let message = refused::<(In<[f32; 9]>,)>(&input("array<mat3x3<f32>>"));
    assert!(
        message.contains("takes 48 bytes in an array, and the parameter's `[f32; 9]` has 36"),
        "{message}"
    );
}

/// An argument of fewer bytes than the shader declares cannot be bound.
#[test]
fn every_form_of_a_variable_has_the_fewest_bytes_that_it_is_bound_with() {
    let least = |shader: Shader| shader.bindings[0].least;
    assert_eq!(least(accepted::<(In<f32>,)>(&input("f32"))), 4);
    assert_eq!(least(accepted::<(In<f32>,)>(&input("array<f32, 10>"))), 40);
    assert_eq!(least(accepted::<(In<[f32; 4]>,)>(&input("array<vec4<f32>>"))), 16);
    let list = "struct List { len: atomic<u32>, all: array<u32> }\n".to_owned();
    assert_eq!(least(accepted::<(InOut<u32>,)>(&(list + &output("List")))), 8);
    let pair = "struct Pair { a: u32, b: vec4<u32> }\n".to_owned();
    assert_eq!(least(accepted::<(InOut<u32>,)>(&(pair + &output("Pair")))), 32);
    let body = "struct Body { at: vec3<f32>, mass: f32, speed: vec3<f32>, kind: u32 }\n".to_owned();
    assert_eq!(least(accepted::<(In<Body>,)>(&(body + &input("Body")))), 32);
}

/// A struct over a buffer of numbers is a view of these numbers.
#[test]
fn a_struct_over_numbers_has_no_others() {
    let mixed = "struct Mixed { len: u32, all: array<f32> }\n".to_owned();
    assert_eq!(
        refused::<(InOut<u32>,)>(&(mixed.clone() + &output("Mixed"))),
        "`k`: `x` at `@group(0) @binding(0)`, `Mixed`, is parameter 0, `InOut<u32>`, and its member `all` has numbers of type `f32`, and the parameter's elements are `u32`: make all of it `u32`"
    );
    let message = refused::<(In<Body>,)>(&(mixed + &input("Mixed")));
    assert!(
        message.contains("the shader's `f32` takes 4 bytes in an array, and the parameter's `Body` has 32")
    );
    let small = "struct Small { a: u32 }\n".to_owned();
    let message = refused::<(In<Body>,)>(&(small + &input("Small")));
    assert!(
        message.ends_with("the shader's `Small` has 4 bytes, and the parameter's `Body` has 32"),
        "{message}"
    );
}
