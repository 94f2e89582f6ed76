//! How much memory a shader takes beside its arguments, which wgpu leaves to drivers.
//!
//! What those do beyond their limits differs: they refuse the pipeline, lose the device, or take the process with them.

#![forbid(unsafe_code)]

use wgpu::naga::valid::FunctionInfo;
use wgpu::naga::{AddressSpace, Block, EntryPoint, Function, Handle, Module, Statement, Type};

/// The most bytes of variables of its own that a thread can have: what WGSL guarantees. wgpu knows no limit, and a driver was
/// seen to give the device up at twice as many.
pub(crate) const MOST_PRIVATE: u64 = 8 << 10;

/// Bytes of the variables that the threads of a block share.
pub(crate) fn shared(module: &Module, info: &FunctionInfo) -> u64 {
    // Each one starts at a multiple of 16.
    used(module, info, AddressSpace::WorkGroup).map(|bytes| bytes.next_multiple_of(16)).sum()
}

/// Bytes of the variables of one thread: those of the module that the entry uses, and those of the functions that are
/// active at once.
pub(crate) fn private(module: &Module, info: &FunctionInfo, entry: &EntryPoint) -> u64 {
    let globals: u64 = used(module, info, AddressSpace::Private).sum();
    globals + frame(module, &entry.function, &callees(module))
}

/// The sizes of the variables in `space` that the entry uses.
fn used(module: &Module, info: &FunctionInfo, space: AddressSpace) -> impl Iterator<Item = u64> {
    let globals = module.global_variables.iter();
    let used = globals.filter(move |(at, var)| var.space == space && !info[*at].is_empty());
    used.map(|(_, var)| size(module, var.ty))
}

/// Of each function of the module, what it takes with the functions that it calls.
fn callees(module: &Module) -> Vec<(Handle<Function>, u64)> {
    let mut frames = Vec::new();
    // Functions stand behind those that they call, and none calls itself.
    for (handle, function) in module.functions.iter() {
        let frame = frame(module, function, &frames);
        frames.push((handle, frame));
    }
    frames
}

fn frame(module: &Module, function: &Function, callees: &[(Handle<Function>, u64)]) -> u64 {
    let own: u64 = function.local_variables.iter().map(|(_, var)| size(module, var.ty)).sum();
    own + deepest(&function.body, callees)
}

/// What the largest of the functions that are called in `block` takes.
fn deepest(block: &Block, callees: &[(Handle<Function>, u64)]) -> u64 {
    let of = |statement: &Statement| match statement {
        Statement::Call { function, .. } => {
            callees.iter().find(|(callee, _)| callee == function).map_or(0, |(_, frame)| *frame)
        }
        Statement::Block(block) => deepest(block, callees),
        Statement::If { accept, reject, .. } => deepest(accept, callees).max(deepest(reject, callees)),
        Statement::Loop { body, continuing, .. } => deepest(body, callees).max(deepest(continuing, callees)),
        Statement::Switch { cases, .. } => {
            cases.iter().map(|case| deepest(&case.body, callees)).max().unwrap_or(0)
        }
        _ => 0,
    };
    block.iter().map(of).max().unwrap_or(0)
}

fn size(module: &Module, ty: Handle<Type>) -> u64 {
    module.types[ty].inner.try_size(module.to_ctx()).map_or(u64::MAX >> 8, u64::from)
}
