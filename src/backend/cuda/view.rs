//! Arguments of raw sections in the form that `cudarc`'s own calls take.

#![allow(unsafe_code, reason = "who uses a view beyond its section cannot be known")]

use std::sync::Arc;

use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, SyncOnDrop, sys};

use crate::section::{Address, AddressMut};

/// An argument that a section reads, for the calls of `cudarc` that take a [`DevicePtr`]; made by [`Address::on`].
#[derive(Debug)]
pub struct View<'q, T> {
    place: Address<T>,
    queue: &'q Arc<CudaStream>,
}

/// An argument that a section writes, for the calls of `cudarc` that take a [`DevicePtrMut`]; made by
/// [`AddressMut::on_mut`].
#[derive(Debug)]
pub struct ViewMut<'q, T>(View<'q, T>);

impl<T> Address<T> {
    /// The argument for the calls of `cudarc` that take a [`DevicePtr`], as cuBLAS's `gemm` does.
    ///
    /// # Safety
    /// `queue` is that of the section whose argument it is, and the view is used only there, and only on that queue.
    pub unsafe fn on<'q>(&self, queue: &'q Arc<CudaStream>) -> View<'q, T> {
        View { place: *self, queue }
    }
}

impl<T> AddressMut<T> {
    /// The argument for the calls of `cudarc` that take a [`DevicePtrMut`].
    ///
    /// # Safety
    /// As for [`on`](Address::on).
    pub unsafe fn on_mut<'q>(&mut self, queue: &'q Arc<CudaStream>) -> ViewMut<'q, T> {
        ViewMut(View { place: **self, queue })
    }
}

impl<T> DeviceSlice<T> for View<'_, T> {
    fn len(&self) -> usize {
        self.place.len()
    }

    fn stream(&self) -> &Arc<CudaStream> {
        self.queue
    }
}

impl<T> DevicePtr<T> for View<'_, T> {
    /// What comes before the section is waited for by the section.
    fn device_ptr<'a>(&'a self, _stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        (self.place.get(), SyncOnDrop::Record(None))
    }
}

impl<T> DeviceSlice<T> for ViewMut<'_, T> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn stream(&self) -> &Arc<CudaStream> {
        self.0.stream()
    }
}

impl<T> DevicePtr<T> for ViewMut<'_, T> {
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        self.0.device_ptr(stream)
    }
}

impl<T> DevicePtrMut<T> for ViewMut<'_, T> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        self.0.device_ptr(stream)
    }
}
