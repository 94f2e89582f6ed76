//! The parameters of a signature, as the messages of this backend name them.

#![forbid(unsafe_code)]

use wgpu::naga::valid::Capabilities;
use wgpu::naga::{Scalar, ScalarKind};

use crate::backend::wgpu::element::{Form, name_of};
use crate::backend::wgpu::reflect::Allowed;
use crate::kernel::program::Sources;
use crate::kernel::signature::{ParamKind, ParamType, Role};

/// The parameters of a signature, those with bindings apart from the others.
pub(crate) struct Parameters {
    pub(crate) buffers: Vec<Parameter>,
    pub(crate) scalars: Vec<Parameter>,
}

/// One of them, and its place in the signature.
#[derive(Clone, Copy)]
pub(crate) struct Parameter {
    pub(crate) at: usize,
    pub(crate) kind: ParamKind,
    pub(crate) ty: ParamType,
}

impl Parameters {
    pub(crate) fn of(sources: &Sources) -> Self {
        let all = sources.params.iter().zip(sources.types).enumerate();
        let all = all.map(|(at, (kind, ty))| Parameter { at, kind: *kind, ty: *ty });
        let (buffers, scalars) = all.partition(|param| param.kind.buffer().is_some());
        Parameters { buffers, scalars }
    }

    /// What the device cannot do, whatever the shader is.
    pub(crate) fn check(&self, allowed: &Allowed) -> Result<(), String> {
        let (count, most) = (self.buffers.len(), allowed.buffers);
        if count > most as usize {
            return Err(format!(
                "it has {count} buffers, and a kernel of this device can have {most} (wgpu's limit `max_storage_buffers_per_shader_stage`)"
            ));
        }
        self.buffers.iter().chain(&self.scalars).try_for_each(|param| param.check(allowed))
    }
}

impl Parameter {
    /// As it is written, with its place.
    pub(crate) fn name(&self) -> String {
        format!("parameter {}, `{}`", self.at, self.written())
    }

    /// The declaration that it asks for, as the `binding`-th buffer.
    pub(crate) fn declaration(&self, binding: usize) -> String {
        let element = Form::of(&self.ty).example(&self.ty);
        format!("@group(0) @binding({binding}) {} name: array<{element}>;", self.variable())
    }

    /// The kind of variable that it asks for.
    pub(crate) fn variable(&self) -> &'static str {
        if self.is_written() { "var<storage, read_write>" } else { "var<storage, read>" }
    }

    pub(crate) fn is_written(&self) -> bool {
        self.kind.buffer().is_some_and(|buffer| buffer.role == Role::Output)
    }

    pub(crate) fn is_table(&self) -> bool {
        self.kind.buffer().is_some_and(|buffer| buffer.role == Role::Table)
    }

    fn written(&self) -> String {
        let name = self.ty.short_name();
        match (self.kind, self.ty.word) {
            (ParamKind::Len(of), _) => format!("Len<{of}>"),
            (_, "") => name,
            (_, word) => format!("{word}<{name}>"),
        }
    }

    /// Whether the device has numbers of this kind.
    fn check(&self, allowed: &Allowed) -> Result<(), String> {
        let Form::Numbers { scalar, .. } = Form::of(&self.ty) else { return Ok(()) };
        let (needed, feature) = match (scalar.kind, scalar.width) {
            (ScalarKind::Float, 8) => (Capabilities::FLOAT64, "SHADER_F64"),
            (ScalarKind::Float, 2) => (Capabilities::SHADER_FLOAT16, "SHADER_F16"),
            (_, 8) => (Capabilities::SHADER_INT64, "SHADER_INT64"),
            _ => return Ok(()),
        };
        if allowed.capabilities.contains(needed) {
            return Ok(());
        }
        let other = match scalar {
            Scalar::F64 | Scalar::F16 => "f32",
            Scalar::I64 => "i32",
            _ => "u32",
        };
        let (name, number) = (self.name(), name_of(scalar));
        Err(format!(
            "{name}: shaders of this device have no `{number}` (wgpu's feature `{feature}`); take an `{other}` in its place"
        ))
    }
}
