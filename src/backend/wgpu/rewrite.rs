//! Changes to a shader that its author does not see: where its variables live.

#![forbid(unsafe_code)]

use wgpu::naga::{AddressSpace, GlobalVariable, Handle, Module, ResourceBinding, StorageAccess};

/// Makes every storage buffer one that is read and written, and `tables`, which may be uniforms, storage as well.
///
/// wgpu refuses a dispatch that binds one buffer as read-only and as read-write, whatever the ranges are; and two arguments
/// of a launch may well be in one page.
pub(crate) fn open_buffers(module: &mut Module, tables: &[Handle<GlobalVariable>]) {
    let both = AddressSpace::Storage { access: StorageAccess::LOAD | StorageAccess::STORE };
    for (handle, global) in module.global_variables.iter_mut() {
        if matches!(global.space, AddressSpace::Storage { .. }) || tables.contains(&handle) {
            global.space = both;
        }
    }
}

/// Puts the scalars into immediates.
pub(crate) fn into_immediates(module: &mut Module, scalars: Handle<GlobalVariable>) {
    let global = module.global_variables.get_mut(scalars);
    global.space = AddressSpace::Immediate;
    global.binding = None;
}

/// Puts the scalars into a uniform buffer at `binding`.
pub(crate) fn into_uniform(module: &mut Module, scalars: Handle<GlobalVariable>, binding: u32) {
    let global = module.global_variables.get_mut(scalars);
    global.space = AddressSpace::Uniform;
    global.binding = Some(ResourceBinding { group: 0, binding });
}
