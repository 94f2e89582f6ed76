//! A kernel's sources for devices, from one text.

use dacapo::{Program, Signature};

/// The program with a source for every kind of device, which does `body` once for every `i` below `count`, whatever the grid.
///
/// Whoever adds a kernel must see to it that `count` is at most the length of every buffer that `body` indexes with `i`, that
/// it compares every other index with the length of what it indexes, that it writes nothing of another `i`, and that it ends.
pub fn each<S: Signature>(program: Program<S>, params: &str, count: &str, body: &str) -> Program<S> {
    let stride = "blocks * threads";
    let for_cuda = format!("for (u64 i = first, count = {count}; i < count; i += {stride}) {{ {body} }}");
    let for_wgsl = super::wgsl::each(params, count, body);
    with_wgsl(with_cuda(program, params, &for_cuda), params, &for_wgsl)
}

/// The program with a source for every kind of device, of which one thread does `body`, whatever the grid. In it, `at` is an
/// element of a buffer that repeats, or that has none.
///
/// Whoever adds a kernel must see to it that `body` compares every index with the length of what it indexes, and that it ends.
pub fn once<S: Signature>(program: Program<S>, params: &str, body: &str) -> Program<S> {
    let body = format!("if (first == 0ull) {{ {body} }}");
    with_wgsl(with_cuda(program, params, &body), params, &body)
}

/// The program with a source in CUDA C++. Its rules are those of [`each`] and [`once`].
#[cfg(all(feature = "cuda", feature = "nvrtc"))]
pub fn with_cuda<S: Signature>(program: Program<S>, params: &str, body: &str) -> Program<S> {
    let source = format!(
        "typedef unsigned char u8;
        typedef unsigned short u16;
        typedef unsigned long long u64;
        struct Camera {{ float at[3]; unsigned id; }};
        __device__ unsigned at(const u8* x, u64 n, u64 i) {{ return n ? x[i % n] : 9; }}
        __device__ u64 when(bool condition, u64 n) {{ return condition ? n : 0; }}
        extern \"C\" __global__ void kernel({params}) {{
            const u64 threads = blockDim.x * blockDim.y * blockDim.z;
            const u64 thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
            const u64 blocks = (u64)gridDim.x * gridDim.y * gridDim.z;
            const u64 block = ((u64)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
            const u64 first = block * threads + thread;
            {body}
        }}"
    );
    // SAFETY: every kernel of the zoo keeps to the rules of `each` and `once`, or is `visit`, so that it stays within its
    // buffers, no two threads touch one element, and it ends; and it has no state.
    unsafe { program.cuda(&source, "kernel") }
}

/// The program as it is: CUDA is not tested.
#[cfg(not(all(feature = "cuda", feature = "nvrtc")))]
pub fn with_cuda<S: Signature>(program: Program<S>, _params: &str, _body: &str) -> Program<S> {
    program
}

/// The program with a source in WGSL, where that has types for all parameters.
#[cfg(feature = "wgpu")]
pub fn with_wgsl<S: Signature>(program: Program<S>, params: &str, body: &str) -> Program<S> {
    match super::wgsl::module(params, body) {
        Some(source) => {
            assert_valid(&source);
            program.wgsl(source, "kernel")
        }
        None => program,
    }
}

/// The program as it is: wgpu is not tested.
#[cfg(not(feature = "wgpu"))]
pub fn with_wgsl<S: Signature>(program: Program<S>, _params: &str, _body: &str) -> Program<S> {
    program
}

/// Asserts that a source is one, on whatever device its kernel is about to be loaded: so every run of the suite checks
/// all of them, also where no device takes WGSL.
#[cfg(feature = "wgpu")]
fn assert_valid(source: &str) {
    use std::collections::HashSet;
    use std::sync::{LazyLock, Mutex};

    use wgpu::naga::front::wgsl::parse_str;
    use wgpu::naga::valid::{Capabilities, ValidationFlags, Validator};

    static KNOWN: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
    if KNOWN.lock().unwrap().contains(source) {
        return;
    }
    let module = parse_str(source).unwrap_or_else(|error| panic!("{}", error.emit_to_string(source)));
    if let Err(error) = Validator::new(ValidationFlags::all(), Capabilities::empty()).validate(&module) {
        panic!("{}", error.emit_to_string(source));
    }
    KNOWN.lock().unwrap().insert(source.to_owned());
}
