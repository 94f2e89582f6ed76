//! One definition of a kernel for every backend.

#![forbid(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Arc;

use crate::backend::Backend;
use crate::backend::host::{Chunk, HostCode};
use crate::callback;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::kernel::grid::Extent;
use crate::kernel::signature::{Signature, check_lengths};
use crate::kernel::{Kernel, Loaded};

/// A kernel's definition: its signature, its block size, and one source for each backend.
///
/// ```
/// use dacapo::prelude::*;
///
/// # fn main() -> dacapo::Result<()> {
/// let saxpy = Program::<(In<f32>, InOut<f32>, f32)>::new("saxpy").host(|(x, y, a), _grid| {
///     for (y, x) in y.iter_mut().zip(x) {
///         *y += a * x;
///     }
/// });
/// let device = Device::host()?;
/// let kernel: Kernel<_> = saxpy.load(&device)?;
/// # Ok(())
/// # }
/// ```
pub struct Program<S: Signature> {
    pub(crate) sources: Sources,
    _signature: PhantomData<fn(S)>,
}

/// What a program has for each backend.
#[derive(Clone)]
pub struct Sources {
    pub(crate) name: Arc<str>,
    #[cfg(feature = "cuda")]
    pub(crate) params: &'static [crate::kernel::signature::ParamKind],
    /// Threads of one block.
    pub(crate) block: [u32; 3],
    pub(crate) host: Option<Arc<HostCode>>,
    #[cfg(feature = "cuda")]
    pub(crate) cuda: Option<crate::backend::cuda::Source>,
}

impl<S: Signature> Program<S> {
    /// A program without sources, whose blocks have 256 threads along x. Write the signature here
    /// (`Program::<(In<f32>,)>::new(..)`): closures take their types from it.
    pub fn new(name: &str) -> Self {
        const { check_lengths(S::PARAMS) };
        let sources = Sources {
            name: name.into(),
            #[cfg(feature = "cuda")]
            params: S::PARAMS,
            block: [256, 1, 1],
            host: None,
            #[cfg(feature = "cuda")]
            cuda: None,
        };
        Program { sources, _signature: PhantomData }
    }

    /// Threads of one block in x, y and z. A device's limits are checked at each launch.
    pub fn block(mut self, x: u32, y: u32, z: u32) -> Self {
        self.sources.block = [x, y, z];
        self
    }

    /// The source for the host: a closure that is called once a launch.
    ///
    /// It takes one tuple, with a slice for each buffer and a value for each scalar, and the grid. It may be called
    /// from several threads at once, for launches that do not depend on each other. One that itself uses a thread pool
    /// must not use one whose threads all wait for this device.
    pub fn host<F>(mut self, kernel: F) -> Self
    where
        F: for<'a> Fn(<S as crate::kernel::signature::sealed::Signature>::Views<'a>, Extent)
            + Send
            + Sync
            + 'static,
    {
        self.sources.host =
            Some(Arc::new(HostCode::once(move |args, extent| kernel(S::views(args), extent))));
        self
    }

    /// The source for the host: a closure that is called in parallel, each time for one chunk of every output.
    ///
    /// The last extent of the grid (the rows of a picture, in `Grid::covering((width, height))`) is divided into runs. A
    /// call gets the inputs whole, and of each output the part of its own rows, so that no two calls can write one
    /// element. Outputs must divide evenly over those rows, else the launch is [`Error::Unchunkable`].
    ///
    /// ```
    /// use dacapo::prelude::*;
    ///
    /// /// The difference of each pixel to its left neighbour.
    /// let difference = Program::<(In<f32>, Out<f32>)>::new("difference").host_chunks(|(picture, rows), chunk| {
    ///     let width = chunk.grid().width();
    ///     for (row, out) in chunk.rows().zip(rows.chunks_mut(width)) {
    ///         let row = &picture[row * width..][..width];
    ///         for x in 0..width {
    ///             out[x] = row[x] - row[x.saturating_sub(1)];
    ///         }
    ///     }
    /// });
    /// ```
    pub fn host_chunks<F>(mut self, kernel: F) -> Self
    where
        F: for<'a> Fn(<S as crate::kernel::signature::sealed::Signature>::Views<'a>, Chunk)
            + Send
            + Sync
            + 'static,
    {
        self.sources.host =
            Some(Arc::new(HostCode::chunks(move |args, chunk| kernel(S::views(args), chunk))));
        self
    }

    /// Loads the program for `device`. Loading is allowed at any time, also while streams record.
    ///
    /// # Errors
    /// [`Error::MissingSource`] if the program has none for this backend, and what the driver says of it. The device
    /// is as it was.
    pub fn load<B: Backend>(&self, device: &Device<B>) -> Result<Kernel<S, B>> {
        callback::refuse("load")?;
        let core = &device.core;
        core.poison.check()?;
        let name = self.sources.name.clone();
        let code = core.backend.load(&self.sources).map_err(|fault| core.poison.absorb(fault))?;
        let Some(code) = code else {
            return Err(Error::MissingSource { program: name, backend: B::NAME, hint: B::SOURCE });
        };
        Ok(Kernel::new(Loaded { device: core.id, name, block: self.sources.block, code }))
    }
}

impl<S: Signature> Clone for Program<S> {
    fn clone(&self) -> Self {
        Program { sources: self.sources.clone(), _signature: PhantomData }
    }
}

impl<S: Signature> std::fmt::Debug for Program<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program")
            .field("name", &self.sources.name)
            .field("block", &self.sources.block)
            .finish()
    }
}
