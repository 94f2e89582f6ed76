//! How much memory each thread of a shader takes for itself.

#![forbid(unsafe_code)]

use wgpu::naga::valid::FunctionInfo;
use wgpu::naga::{AddressSpace, Block, EntryPoint, Function, Handle, Module, Statement, Type};

/// The most bytes of variables that a thread can have.
///
/// wgpu has no limit of its own, and what a driver does beyond its limit differs: it refuses the pipeline, loses the device,
/// or ends the process at the first launch.
pub(crate) const MOST: u64 = 64 << 10;

/// Bytes of the variables of one thread: those of the module that the entry uses, and those of the functions that are
/// active at once.
pub(crate) fn of(module: &Module, info: &FunctionInfo, entry: &EntryPoint) -> u64 {
    let globals = module.global_variables.iter();
    let private = globals.filter(|(at, var)| var.space == AddressSpace::Private && !info[*at].is_empty());
    let private: u64 = private.map(|(_, var)| size(module, var.ty)).sum();
    private + frame(module, &entry.function, &callees(module))
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
