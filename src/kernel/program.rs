//! One definition of a kernel for every backend.

#![forbid(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Arc;

use crate::backend::Backend;
use crate::backend::host::{Chunk, HostCode};
use crate::callback;
use crate::device::{Device, DeviceCore};
use crate::error::{Error, Result};
use crate::kernel::check::Checks;
use crate::kernel::grid::{Extent, most_blocks};
use crate::kernel::signature::{Signature, check_lengths};
use crate::kernel::{Kernel, Loaded, UncheckedKernel};

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
///
/// Once one of its sources promises nothing, a program is [`Unchecked`], and so are the kernels that it is loaded as, on every
/// backend.
pub struct Program<S: Signature, L = Checked> {
    pub(crate) sources: Sources,
    _signature: PhantomData<fn(S, L)>,
}

/// A [`Program`] whose sources keep what a safe launch needs: it loads as a [`Kernel`].
#[derive(Clone, Copy, Debug)]
pub struct Checked(());

/// A [`Program`] with a source that promises nothing: it loads as an [`UncheckedKernel`], which only an `unsafe` call launches.
#[derive(Clone, Copy, Debug)]
pub struct Unchecked(());

/// What a program has for each backend.
#[derive(Clone)]
pub struct Sources {
    pub(crate) name: Arc<str>,
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(crate) params: &'static [crate::kernel::signature::ParamKind],
    #[cfg(feature = "wgpu")]
    pub(crate) types: &'static [crate::kernel::signature::ParamType],
    /// Threads of one block.
    pub(crate) block: [u32; 3],
    /// Bytes of shared memory that a launch gives each block, beside those that the code declares.
    pub(crate) shared_memory: usize,
    pub(crate) checks: Checks,
    pub(crate) host: Option<Arc<HostCode>>,
    #[cfg(feature = "cuda")]
    pub(crate) cuda: Option<crate::backend::cuda::Source>,
    #[cfg(feature = "wgpu")]
    pub(crate) wgsl: Option<crate::backend::wgpu::Source>,
}

impl<S: Signature> Program<S> {
    /// A program without sources, whose blocks have 256 threads along x. Write the signature here
    /// (`Program::<(In<f32>,)>::new(..)`): closures take their types from it.
    pub fn new(name: &str) -> Self {
        const { check_lengths(S::PARAMS) };
        let sources = Sources {
            name: name.into(),
            #[cfg(any(feature = "cuda", feature = "wgpu"))]
            params: S::PARAMS,
            #[cfg(feature = "wgpu")]
            types: S::TYPES,
            block: [256, 1, 1],
            shared_memory: 0,
            checks: Checks::default(),
            host: None,
            #[cfg(feature = "cuda")]
            cuda: None,
            #[cfg(feature = "wgpu")]
            wgsl: None,
        };
        Program { sources, _signature: PhantomData }
    }

    /// Loads the program for `device`. Loading is allowed at any time, also while streams record.
    ///
    /// # Errors
    /// [`Error::MissingSource`] if the program has none for this backend, and what the driver says of it. The device
    /// is as it was.
    pub fn load<B: Backend>(&self, device: &Device<B>) -> Result<Kernel<S, B>> {
        self.sources.load(device)
    }
}

impl<S: Signature> Program<S, Unchecked> {
    /// Loads the program for `device`, as a kernel that only [`launch_unchecked`](crate::LaunchUnchecked) launches. Loading is
    /// allowed at any time, also while streams record.
    ///
    /// # Errors
    /// [`Error::MissingSource`] if the program has none for this backend, and what the driver says of it. The device
    /// is as it was.
    pub fn load<B: Backend>(&self, device: &Device<B>) -> Result<UncheckedKernel<S, B>> {
        self.sources.load(device).map(UncheckedKernel::new)
    }
}

impl<S: Signature, L> Program<S, L> {
    /// Threads of one block in x, y and z. A device's limits are checked at each launch.
    ///
    /// To be called before `.ptx(..)` and `.cuda(..)`, whose promise is one for these blocks: a later change is refused by
    /// `load` there.
    pub fn block(mut self, x: u32, y: u32, z: u32) -> Self {
        self.sources.block = [x, y, z];
        self
    }

    /// Shared memory that a launch gives each block, in bytes, beside what the code declares itself: what CUDA C++ calls
    /// `extern __shared__`. Compared with what the device allows when the program is loaded for it.
    ///
    /// A device's code only. The host has no use for it. To be called before the source, as [`block`](Program::block) is.
    pub fn shared_memory(mut self, bytes: usize) -> Self {
        self.sources.shared_memory = bytes;
        self
    }

    /// A limit of the kernel's own: a launch that `check` refuses is an error, on every backend, and does not run.
    ///
    /// It is given the grid, and one tuple that has for each parameter what is known before the launch: how many elements
    /// a buffer or a table has, the value of a scalar, the count that a [`Len`](crate::Len) stands for. A refusal says why,
    /// with anything that can be displayed. It is called by whoever launches, once a launch, after the device's own limits
    /// were checked and not for an empty grid; for a recorded launch when that is recorded, which is the last time that
    /// any of it could change. No lock is held meanwhile.
    ///
    /// Checks add up. None can be taken away, so that what an `unsafe` source promises may rest on those before it.
    ///
    /// ```
    /// use dacapo::prelude::*;
    /// use dacapo::{Error, ErrorKind};
    ///
    /// # fn main() -> dacapo::Result<()> {
    /// # let device = Device::host()?;
    /// # let mut stream = device.stream()?;
    /// let rotate = Program::<(In<u8>, Out<u8>, u32)>::new("rotate")
    ///     .check(|_grid, (x, y, by)| match () {
    ///         () if x != y => Err(format!("{x} elements do not fit in {y}")),
    ///         () if by as usize > x => Err(format!("{x} elements cannot be rotated by {by}")),
    ///         () => Ok(()),
    ///     })
    ///     .host(|(x, y, by), _grid| {
    ///         y.copy_from_slice(x);
    ///         y.rotate_left(by as usize);
    ///     })
    ///     .load(&device)?;
    /// let (mut x, mut y) = (stream.alloc(3)?, stream.alloc(3)?);
    /// stream.write(&mut x, &[1, 2, 3])?;
    /// let error = stream.launch(&rotate, Grid::covering(3), (&x, &mut y, 4u32)).unwrap_err();
    /// assert_eq!(error.to_string(), "rotate: its check refused this launch: 3 elements cannot be rotated by 4");
    /// assert_eq!(error.kind(), ErrorKind::Misuse);
    /// stream.launch(&rotate, Grid::covering(3), (&x, &mut y, 1u32))?;
    /// assert_eq!(stream.read(&y)?, [2, 3, 1]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn check<F, M>(mut self, check: F) -> Self
    where
        F: Fn(Extent, <S as crate::kernel::signature::sealed::Signature>::Facts) -> Result<(), M>
            + Send
            + Sync
            + 'static,
        M: std::fmt::Display,
    {
        self.sources.checks.add(move |extent, facts| {
            check(extent, S::facts(facts)).map_err(|message| message.to_string().into())
        });
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

    /// The program, whose launches are from now on what `M` says.
    #[cfg(feature = "cuda")]
    pub(crate) fn marked<M>(self) -> Program<S, M> {
        Program { sources: self.sources, _signature: PhantomData }
    }
}

impl Sources {
    fn load<S: Signature, B: Backend>(&self, device: &Device<B>) -> Result<Kernel<S, B>> {
        callback::refuse("load")?;
        let core = &device.core;
        core.poison.check()?;
        let code = core.backend.load(self).map_err(|fault| core.poison.absorb(fault))?;
        let Some(code) = code else {
            return Err(Error::MissingSource {
                program: self.name.clone(),
                backend: B::NAME,
                hint: B::SOURCE,
            });
        };
        Ok(Kernel::new(self.loaded::<S, B>(core, code)).with_checks(&self.checks))
    }

    /// What launches of `code`, for this program, need.
    pub(crate) fn loaded<S: Signature, B: Backend>(
        &self,
        device: &DeviceCore<B>,
        code: B::Code,
    ) -> Loaded<B> {
        Loaded {
            device: device.id,
            block: self.block,
            most_blocks: most_blocks(self.block, &device.limits),
            lengths: <S as crate::kernel::signature::sealed::Signature>::LENGTHS,
            code,
            params: <S as crate::kernel::signature::sealed::Signature>::PARAMS,
            name: self.name.clone(),
        }
    }
}

impl<S: Signature, L> Clone for Program<S, L> {
    fn clone(&self) -> Self {
        Program { sources: self.sources.clone(), _signature: PhantomData }
    }
}

impl<S: Signature, L> std::fmt::Debug for Program<S, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program")
            .field("name", &self.sources.name)
            .field("block", &self.sources.block)
            .field("shared_memory", &self.sources.shared_memory)
            .finish_non_exhaustive()
    }
}
