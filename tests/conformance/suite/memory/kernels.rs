//! The kernels that only these tests need.

use dacapo::{In, InOut, Len, Out, Program, Uniform};

use super::zoo::{InPlace, Map, each};

pub type Join = (In<u32>, In<u32>, Out<u32>, Len<0>, Len<1>, Len<2>);
pub type Lazy = (Out<u8>, Len<0>);
pub type Show<T> = (Uniform<T>, Out<T>, Len<0>, Len<1>);
pub type Step = (InOut<u32>, u32, Uniform<u32>, Len<0>, Len<2>);
pub type All = (
    Uniform<u16>,
    In<f32>,
    u32,
    Uniform<[u32; 2]>,
    Out<u32>,
    Uniform<[u8; 3]>,
    In<u8>,
    Len<0>,
    Len<1>,
    Len<3>,
    Len<4>,
    Len<5>,
    Len<6>,
);

/// `out = in`, byte by byte.
pub fn copy() -> Program<Map<u8>> {
    let program = Program::<Map<u8>>::new("copy").host(|(x, y, ..), _| y.copy_from_slice(x));
    each(program, "const u8* x, u8* y, u64 nx, u64 ny", "min(nx, ny)", "y[i] = x[i];")
}

/// `out = a`, and the first element of `b` added to its last: cheap over large buffers.
pub fn join() -> Program<Join> {
    let program = Program::<Join>::new("join").host(|(a, b, out, ..), _| {
        out.copy_from_slice(a);
        *out.last_mut().unwrap() += b[0];
    });
    let params = "const unsigned* a, const unsigned* b, unsigned* out, u64 na, u64 nb, u64 n";
    each(program, params, "when(nb > 0, min(na, n))", "out[i] = a[i]; if (i + 1 == n) { out[i] += b[0]; }")
}

/// Writes the first byte of what it is to write all of.
pub fn lazy() -> Program<Lazy> {
    let program = Program::<Lazy>::new("lazy").host(|(y, _), _| y[0] = 1);
    each(program, "u8* y, u64 n", "min(n, 1ull)", "y[i] = 1;")
}

/// The table, and zeros behind it.
pub fn show() -> Program<Show<u8>> {
    let program = Program::<Show<u8>>::new("show").host(|(table, y, ..), _| {
        y.fill(0);
        y[..table.len()].copy_from_slice(table);
    });
    let params = "const u8* t, u8* y, u64 nt, u64 n";
    each(program, params, "n", "y[i] = 0; if (i < nt) { y[i] = t[i]; }")
}

/// The table, repeated; an empty one leaves zeros.
pub fn spread() -> Program<Show<u32>> {
    let program = Program::<Show<u32>>::new("spread").host(|(table, out, ..), _| {
        out.fill(0);
        out.iter_mut().zip(table.iter().cycle()).for_each(|(out, element)| *out = *element);
    });
    let params = "const unsigned* t, unsigned* out, u64 nt, u64 n";
    each(program, params, "n", "out[i] = 0; if (nt > 0) { out[i] = t[i % nt]; }")
}

/// `c = 3 c + (by ^ t[1])`, over its first element.
pub fn step() -> Program<Step> {
    let program = Program::<Step>::new("step")
        .host(|(c, by, table, ..), _| c[0] = c[0].wrapping_mul(3).wrapping_add(by ^ table[1]));
    let params = "unsigned* c, unsigned by, const unsigned* t, u64 n, u64 nt";
    each(program, params, "when(nt > 1, min(n, 1ull))", "c[i] = c[i] * 3 + (by ^ t[1]);")
}

/// The sum of everything, and how long the tables are.
pub fn sum_of_all() -> Program<All> {
    let program = Program::<All>::new("sum of all").host(|(a, x, b, c, out, d, y, ..), _| {
        let tables = a.iter().map(|a| u32::from(*a)).sum::<u32>() + c.iter().map(|c| c[0]).sum::<u32>();
        let bytes: u32 = d.iter().flatten().map(|d| u32::from(*d)).sum();
        out[0] = tables + x[0] as u32 + b + bytes + u32::from(y[0]);
        (out[1], out[2], out[3]) = (a.len() as u32, c.len() as u32, d.len() as u32);
    });
    let params =
        "const u16* a, const float* x, unsigned b, const u64* c, unsigned* out, const u8* d, const u8* y,
        u64 na, u64 nx, u64 nc, u64 n, u64 nd, u64 ny";
    let body = "if (i == 0) {
            unsigned sum = unsigned(x[0]) + b + y[0];
            for (u64 k = 0; k < na; k++) { sum += a[k]; }
            for (u64 k = 0; k < nc; k++) { sum += unsigned(c[k]); }
            for (u64 k = 0; k < 3 * nd; k++) { sum += d[k]; }
            out[i] = sum;
        }
        if (i == 1) { out[i] = unsigned(na); }
        if (i == 2) { out[i] = unsigned(nc); }
        if (i == 3) { out[i] = unsigned(nd); }";
    each(program, params, "when(nx > 0 && ny > 0, min(n, 4ull))", body)
}

/// `x += 1`, byte by byte.
pub fn inc() -> Program<InPlace<u8>> {
    super::zoo::inc::<u8>()
}
