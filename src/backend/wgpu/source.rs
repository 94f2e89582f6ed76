//! Kernels' sources for wgpu.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::kernel::{Program, Signature};

/// What a program has for this backend.
#[derive(Clone)]
pub(crate) struct Source {
    /// WGSL.
    pub(crate) text: Arc<str>,
    /// The name of the function.
    pub(crate) entry: Arc<str>,
}

impl<S: Signature, L> Program<S, L> {
    /// The source for wgpu: `source` is WGSL, and `entry` the name of a `@compute` function in it.
    ///
    /// ```no_run
    /// use dacapo::prelude::*;
    /// use dacapo::wgpu::Wgpu;
    ///
    /// const SAXPY: &str = "
    ///     struct Scalars { a: f32, len: u32 }
    ///     @group(0) @binding(0) var<storage, read> x: array<f32>;
    ///     @group(0) @binding(1) var<storage, read_write> y: array<f32>;
    ///     @group(0) @binding(2) var<uniform> scalars: Scalars;
    ///
    ///     @compute @workgroup_size(64)
    ///     fn saxpy(@builtin(global_invocation_id) id: vec3<u32>) {
    ///         if id.x < scalars.len {
    ///             y[id.x] += scalars.a * x[id.x];
    ///         }
    ///     }
    /// ";
    ///
    /// # fn main() -> dacapo::Result<()> {
    /// let device = Device::<Wgpu>::new()?;
    /// let saxpy = Program::<(In<f32>, InOut<f32>, f32, Len<1>)>::new("saxpy")
    ///     .block(64, 1, 1)
    ///     .wgsl(SAXPY, "saxpy")
    ///     .load(&device)?;
    /// let mut stream = device.stream()?;
    /// let (mut x, mut y) = (stream.alloc::<f32>(1000)?, stream.alloc::<f32>(1000)?);
    /// stream.write(&mut x, &[1.0; 1000])?;
    /// stream.write(&mut y, &[2.0; 1000])?;
    /// stream.launch(&saxpy, Grid::covering(1000), (&x, &mut y, 3.0, Len))?;
    /// assert_eq!(stream.read(&y)?, [5.0; 1000]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # What the shader declares
    ///
    /// All of it is compared with the signature when the program is loaded; a difference is an error that names both.
    ///
    /// - **Buffers.** Every `In`, `Out`, `InOut` and `Uniform` is `@group(0) @binding(i)`, where `i` counts these parameters
    ///   alone, in their order: `var<storage, read>` for an `In` and a `Uniform`, which may also be a `var<uniform>`, and
    ///   `var<storage, read_write>` for an `Out` and an `InOut`. The variable is an array without a length, an array with one,
    ///   a struct, or a struct that ends in an array without a length. An argument must have at least the bytes that the
    ///   variable has without the latter.
    /// - **Scalars.** All scalars and [`Len`](crate::Len)s, in their order, are the members of one struct, which is
    ///   `@group(0) @binding(k) var<uniform>`, `k` being the number of buffers, or `var<immediate>`, without a binding. It is the
    ///   same to the library, which uses immediates where the device has them and they fit. A `Len` is a `u32`. Without
    ///   scalars there is no such variable.
    /// - **The block.** `@workgroup_size` is what [`block`](Program::block) says, by default 256.
    /// - Nothing else has a binding. The text may have other entry points, with other bindings.
    ///
    /// # Elements and scalars
    ///
    /// | in Rust | in WGSL |
    /// | --- | --- |
    /// | `f32`, `i32`, `u32` | the same; an `atomic` of it in an `Out` or `InOut` |
    /// | `f64`, `i64`, `u64`, a half (`f16`) | the same, on a device with wgpu's feature for it |
    /// | `[T; 2]`, `[T; 4]` of these | `vec2<T>`, `vec4<T>`, or `array<T, N>`; in a buffer also the plain `T` |
    /// | `[T; 3]` | a `vec3<T>` as a scalar. In a buffer `array<T, 3>` or the plain `T`, since WGSL puts 16 bytes between one `vec3` and the next |
    /// | `u8`, `i8`, `u16`, `i16` and short arrays of them | as an element, words: a `u32` holds four bytes or two halves, the first one in its lowest bits. Never a scalar |
    /// | any other plain data | what has as many bytes from one element to the next as the type has |
    ///
    /// A buffer whose bytes are no multiple of 4 ends inside a word: the kernel may read and write that word as a whole, and
    /// what is behind the buffer's last byte stays as it is. Take a [`Len`](crate::Len) for the true count.
    ///
    /// # Safety is wgpu's
    ///
    /// A shader reaches nothing but its arguments: wgpu checks it, and keeps every index within the variable. An index beyond
    /// the end reads or writes some element, or none, so that what is right is still the shader's concern. `arrayLength`
    /// counts whole elements.
    ///
    /// `override` constants have their defaults.
    pub fn wgsl(mut self, source: impl Into<Arc<str>>, entry: &str) -> Self {
        self.sources.wgsl = Some(Source { text: source.into(), entry: entry.into() });
        self
    }
}
