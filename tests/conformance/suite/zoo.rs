//! The zoo: every kernel of the suite, with a source for each backend.
//!
//! A kernel does the same on each of them, whatever its grid: it goes through all elements of its buffers, and stays within
//! them by their lengths, which come last in its signature.

#![allow(dead_code, reason = "a backend's tests use a part of it")]

#[path = "zoo/sources.rs"]
mod sources;
#[cfg_attr(not(feature = "wgpu"), allow(dead_code, reason = "its text goes nowhere"))]
#[path = "zoo/wgsl.rs"]
mod wgsl;

use dacapo::{Device, In, InOut, Kernel, Len, Out, Program};

use super::subject::Subject;
#[allow(unused_imports, reason = "a binary's tests use a part of it")]
pub use sources::{each, once};
use sources::{with_cuda, with_wgsl};

/// Elements that the kernels compute with.
pub trait Number: bytemuck::Pod + Send + Sync {
    /// The type's name in CUDA C++.
    const CUDA: &'static str;
    const ONE: Self;
    /// The sum, which wraps where the type does.
    fn plus(self, other: Self) -> Self;
}

impl Number for f32 {
    const CUDA: &'static str = "float";
    const ONE: Self = 1.0;
    fn plus(self, other: Self) -> Self {
        self + other
    }
}

impl Number for u32 {
    const CUDA: &'static str = "unsigned";
    const ONE: Self = 1;
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
}

impl Number for u8 {
    const CUDA: &'static str = "u8";
    const ONE: Self = 1;
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
}

pub type Map<T> = (In<T>, Out<T>, Len<0>, Len<1>);
pub type InPlace<T> = (InOut<T>, Len<0>);
pub type Fill<T> = (Out<T>, T, Len<0>);
pub type Sum<T> = (In<T>, In<T>, Out<T>, Len<0>, Len<1>, Len<2>);
pub type Rows = (In<u32>, InOut<u32>, InOut<u8>, Len<0>, Len<1>, Len<2>);
pub type Axpy = (f32, In<f32>, InOut<f32>, Len<1>, Len<2>);
pub type Accumulate<T> = (In<T>, InOut<T>, Len<0>, Len<1>);

/// A kernel of the zoo, loaded.
pub type Loaded<S> = Kernel<S, Subject>;

/// The kernels of most tests.
pub struct Kernels<T: Number = f32> {
    /// `out = in + 1`.
    pub add1: Loaded<Map<T>>,
    /// `out = in * 2`.
    pub mul2: Loaded<Map<T>>,
    /// `c += 1`, in place.
    pub inc: Loaded<InPlace<T>>,
    /// `b = v`.
    pub fill: Loaded<Fill<T>>,
    /// `out = a + b`.
    pub sum: Loaded<Sum<T>>,
}

impl<T: Number> Kernels<T> {
    pub fn load(device: &Device<Subject>) -> Self {
        Kernels {
            add1: add1().load(device).unwrap(),
            mul2: mul2().load(device).unwrap(),
            inc: inc().load(device).unwrap(),
            fill: fill().load(device).unwrap(),
            sum: sum().load(device).unwrap(),
        }
    }
}

pub type Sum3<T> = (In<T>, In<T>, In<T>, Out<T>, Len<0>, Len<1>, Len<2>, Len<3>);

/// `out = in + 1`.
pub fn add1<T: Number>() -> Program<Map<T>> {
    add1_named("add1")
}

/// `out = in + 1`, by another name.
pub fn add1_named<T: Number>(name: &str) -> Program<Map<T>> {
    let program = Program::<Map<T>>::new(name)
        .host(|(x, y, ..), _| y.iter_mut().zip(x).for_each(|(y, x)| *y = x.plus(T::ONE)));
    each(
        program,
        &format!("const {T}* x, {T}* y, u64 nx, u64 ny", T = T::CUDA),
        "min(nx, ny)",
        "y[i] = x[i] + 1;",
    )
}

/// `out = in * 2`.
pub fn mul2<T: Number>() -> Program<Map<T>> {
    let program = Program::<Map<T>>::new("mul2")
        .host(|(x, y, ..), _| y.iter_mut().zip(x).for_each(|(y, x)| *y = x.plus(*x)));
    each(
        program,
        &format!("const {T}* x, {T}* y, u64 nx, u64 ny", T = T::CUDA),
        "min(nx, ny)",
        "y[i] = x[i] + x[i];",
    )
}

/// `c += 1`, in place.
pub fn inc<T: Number>() -> Program<InPlace<T>> {
    let program =
        Program::<InPlace<T>>::new("inc").host(|(c, _), _| c.iter_mut().for_each(|c| *c = c.plus(T::ONE)));
    each(program, &format!("{T}* c, u64 n", T = T::CUDA), "n", "c[i] = c[i] + 1;")
}

/// `b = v`.
pub fn fill<T: Number>() -> Program<Fill<T>> {
    let program = Program::<Fill<T>>::new("fill").host(|(b, v, _), _| b.fill(v));
    each(program, &format!("{T}* b, {T} v, u64 n", T = T::CUDA), "n", "b[i] = v;")
}

/// `out = a + b`.
pub fn sum<T: Number>() -> Program<Sum<T>> {
    let program = Program::<Sum<T>>::new("sum").host(|(a, b, out, ..), _| {
        out.iter_mut().zip(a.iter().zip(b)).for_each(|(out, (a, b))| *out = a.plus(*b));
    });
    let params = format!("const {T}* a, const {T}* b, {T}* out, u64 na, u64 nb, u64 n", T = T::CUDA);
    each(program, &params, "min(n, min(na, nb))", "out[i] = a[i] + b[i];")
}

/// `out = a + b + c`.
pub fn sum3<T: Number>() -> Program<Sum3<T>> {
    let program = Program::<Sum3<T>>::new("sum3").host(|(a, b, c, out, ..), _| {
        (0..out.len()).for_each(|i| out[i] = a[i].plus(b[i]).plus(c[i]));
    });
    let lengths = "u64 na, u64 nb, u64 nc, u64 n";
    let params = format!("const {T}* a, const {T}* b, const {T}* c, {T}* out, {lengths}", T = T::CUDA);
    each(program, &params, "min(min(n, nc), min(na, nb))", "out[i] = a[i] + b[i] + c[i];")
}

/// A kernel of this name that changes nothing.
pub fn named<T: Number>(name: &str) -> Program<InPlace<T>> {
    let program = Program::<InPlace<T>>::new(name).host(|_, _| {});
    each(program, &format!("{T}* c, u64 n", T = T::CUDA), "n", "")
}

/// `out = in * 3 + 1`.
pub fn triple1() -> Program<Map<u32>> {
    let program = Program::<Map<u32>>::new("triple1").host(|(x, y, ..), _| {
        y.iter_mut().zip(x).for_each(|(y, x)| *y = x.wrapping_mul(3).wrapping_add(1));
    });
    let params = "const unsigned* x, unsigned* y, u64 nx, u64 ny";
    each(program, params, "min(nx, ny)", "y[i] = x[i] * 3 + 1;")
}

/// `out` is one more than how many elements `x` has.
pub fn count() -> Program<(In<f32>, Out<u32>, Len<0>, Len<1>)> {
    let program = Program::<(In<f32>, Out<u32>, Len<0>, Len<1>)>::new("count")
        .host(|(x, out, ..), _| out.fill(x.len() as u32 + 1));
    each(program, "const float* x, unsigned* out, u64 nx, u64 n", "n", "out[i] = unsigned(nx) + 1;")
}

/// Looks at `x`, and does nothing.
pub fn nothing() -> Program<(In<f32>, Len<0>)> {
    let program = Program::<(In<f32>, Len<0>)>::new("nothing").host(|_, _| ());
    each(program, "const float* x, u64 n", "n", "")
}

/// `y = x + a1 + .. + a28`, of as many parameters as there may be.
#[rustfmt::skip]
pub type SumOf28 = (
    In<u32>,
    u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32,
    u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32,
    Out<u32>, Len<0>, Len<29>,
);

#[rustfmt::skip]
pub fn sum_of_28() -> Program<SumOf28> {
    let program = Program::<SumOf28>::new("sum_of_28").host(|(
        x,
        a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14,
        a15, a16, a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28,
        y, ..
    ), _| {
        y[0] = x[0]
            + a1 + a2 + a3 + a4 + a5 + a6 + a7 + a8 + a9 + a10 + a11 + a12 + a13 + a14
            + a15 + a16 + a17 + a18 + a19 + a20 + a21 + a22 + a23 + a24 + a25 + a26 + a27 + a28;
    });
    let named = |before: &str, between: &str| {
        (1..=28).map(|i| format!("{before}a{i}")).collect::<Vec<_>>().join(between)
    };
    let params = format!("const unsigned* x, {}, unsigned* y, u64 nx, u64 ny", named("unsigned ", ", "));
    each(program, &params, "min(nx, ny)", &format!("y[i] = x[i] + {};", named("", " + ")))
}

/// A scalar of several fields.
#[derive(Clone, Copy, PartialEq, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Camera {
    pub at: [f32; 3],
    pub id: u32,
}

/// The sum of scalars of several sizes.
pub fn scalars() -> Program<(u8, Camera, u64, Out<f64>, Len<3>)> {
    let program =
        Program::<(u8, Camera, u64, Out<f64>, Len<3>)>::new("scalars").host(|(a, camera, b, out, _), _| {
            out[0] = f64::from(a) + f64::from(camera.at[2]) + f64::from(camera.id) + b as f64;
        });
    let params = "u8 a, Camera camera, u64 b, double* out, u64 n";
    each(program, params, "min(n, 1ull)", "out[i] = (double)a + camera.at[2] + camera.id + (double)b;")
}

/// The sum of scalars that are words, or made of words.
pub fn scalars_of_words() -> Program<(f32, Camera, u32, Out<f32>, Len<3>)> {
    let program = Program::<(f32, Camera, u32, Out<f32>, Len<3>)>::new("scalars_of_words");
    let program =
        program.host(|(a, camera, b, out, _), _| out[0] = a + camera.at[2] + (camera.id + b) as f32);
    let params = "float a, Camera camera, unsigned b, float* out, u64 n";
    each(program, params, "min(n, 1ull)", "out[i] = a + camera.at[2] + float(camera.id + b);")
}

/// `rows += x`, and counts in `marks` how often each row was seen.
pub fn rows() -> Program<Rows> {
    let program = Program::<Rows>::new("rows");
    let program = program.host_chunks(|(x, rows, marks, ..), chunk| {
        let width = chunk.grid().width();
        assert_eq!((rows.len(), marks.len()), (chunk.rows().len() * width, chunk.rows().len()));
        for (at, row) in chunk.rows().enumerate() {
            marks[at] += 1;
            (0..width).for_each(|i| rows[at * width + i] += x[row * width + i]);
        }
    });
    let params = "const unsigned* x, unsigned* rows, u8* marks, u64 nx, u64 nr, u64 nm";
    each(program, params, "min(nx, nr)", "rows[i] += x[i]; if (i < nm) { marks[i] += 1; }")
}

/// `out = in`.
pub fn copy<T: Number>() -> Program<Map<T>> {
    let program = Program::<Map<T>>::new("copy").host(|(x, y, ..), _| y.copy_from_slice(x));
    each(
        program,
        &format!("const {T}* x, {T}* y, u64 nx, u64 ny", T = T::CUDA),
        "min(nx, ny)",
        "y[i] = x[i];",
    )
}

/// `n += 1 + x.len()`.
pub fn add_count() -> Program<Accumulate<u32>> {
    let program =
        Program::<Accumulate<u32>>::new("add_count").host(|(x, n, ..), _| n[0] += 1 + x.len() as u32);
    each(
        program,
        "const unsigned* x, unsigned* n, u64 nx, u64 nn",
        "min(nn, 1ull)",
        "n[i] += 1 + unsigned(nx);",
    )
}

/// What [`noise`] writes to element `at`.
pub fn noise_at(seed: u32, at: usize) -> u32 {
    (seed.wrapping_add(at as u32)).wrapping_mul(2_654_435_761).rotate_left(13)
}

const NOISE: &str = "const unsigned v = (seed + unsigned(i)) * 2654435761u; y[i] = (v << 13) | (v >> 19);";

/// Noise of a seed that is a scalar.
pub fn noise() -> Program<Fill<u32>> {
    let program = Program::<Fill<u32>>::new("noise")
        .host(|(y, seed, _), _| y.iter_mut().enumerate().for_each(|(at, y)| *y = noise_at(seed, at)));
    each(program, "unsigned* y, unsigned seed, u64 n", "n", NOISE)
}

/// Noise of a seed in a buffer.
pub fn noise_from() -> Program<(Out<u32>, In<u32>, Len<0>, Len<1>)> {
    let program = Program::<(Out<u32>, In<u32>, Len<0>, Len<1>)>::new("noise_from")
        .host(|(y, seed, ..), _| y.iter_mut().enumerate().for_each(|(at, y)| *y = noise_at(seed[0], at)));
    let params = "unsigned* y, const unsigned* seeds, u64 n, u64 ns";
    each(program, params, "when(ns > 0, n)", &format!("const unsigned seed = seeds[0]; {NOISE}"))
}

/// `y += a x`.
pub fn axpy() -> Program<Axpy> {
    let program = Program::<Axpy>::new("axpy")
        .host(|(a, x, y, ..), _| y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x));
    each(program, "float a, const float* x, float* y, u64 nx, u64 ny", "min(nx, ny)", "y[i] += a * x[i];")
}

/// `x += 1`, after so many cycles of the device's clock, or about as many of the host's.
pub fn spin() -> Program<(InOut<u32>, u32, Len<0>)> {
    let program = Program::<(InOut<u32>, u32, Len<0>)>::new("spin").host(|(x, cycles, _), _| {
        (0..cycles / 10).for_each(|_| std::hint::spin_loop());
        x.iter_mut().for_each(|x| *x += 1);
    });
    let params = "unsigned* x, unsigned cycles, u64 n";
    let clock = "const u64 from = clock64(); while (clock64() - from < cycles) {}";
    let program = with_cuda(program, params, &format!("if (first < n) {{ {clock} x[first] += 1; }}"));
    // A walk that never comes to 0, which no compiler knows, a step of which takes some ten cycles.
    let walk = "unsigned at = 27u;
        for (u64 k = 0; k < cycles / 10u; k++) { if (at % 2u == 1u) { at = 3u * at + 1u; } else { at = at / 2u; } }";
    with_wgsl(program, params, &format!("if (first < n) {{ {walk} x[first] += min(at, 1u); }}"))
}

/// Each thread of the grid counts in the element that has its number, if there is one.
pub fn visit() -> Program<InPlace<u8>> {
    let program = Program::<InPlace<u8>>::new("visit").host(|(c, _), grid| {
        let threads = grid.threads().into_iter().product();
        c.iter_mut().take(threads).for_each(|c| *c += 1);
    });
    let program = with_cuda(program, "u8* c, u64 n", "if (first < n) c[first] += 1;");
    let count = "atomicAdd(&c[first / 4u], 1u << (8u * (first % 4u)));";
    with_wgsl(program, "atomic* c, u64 n", &format!("if (first < n) {{ {count} }}"))
}

/// `sum += x`.
pub fn accumulate<T: Number>() -> Program<Accumulate<T>> {
    let program = Program::<Accumulate<T>>::new("accumulate").host(|(x, sum, ..), _| {
        sum.iter_mut().zip(x).for_each(|(sum, x)| *sum = sum.plus(*x));
    });
    let params = format!("const {T}* x, {T}* sum, u64 nx, u64 n", T = T::CUDA);
    each(program, &params, "min(n, nx)", "sum[i] = sum[i] + x[i];")
}
