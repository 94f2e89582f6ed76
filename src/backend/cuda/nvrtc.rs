//! CUDA C++, compiled for one architecture.

#![allow(unsafe_code, reason = "calls of NVRTC")]
#![allow(non_snake_case, reason = "NVRTC's names")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::OnceLock;

use cudarc::nvrtc::sys as declared;
use declared::{nvrtcProgram, nvrtcResult as Answer};

use crate::backend::cuda::sys::calls;
use crate::backend::cuda::text::Unit;
use crate::backend::fault::Severity;
use crate::backend::{Call as Driver, Fault};

/// A program of NVRTC's; destroyed when it goes out of scope.
struct Text(nvrtcProgram);

fn refuse(message: String) -> Fault {
    Fault::new(Driver::Load, Severity::Call, message)
}

/// The version of the compiler, if there is one.
pub(crate) fn version() -> Result<(i32, i32), Fault> {
    // SAFETY: looks whether the dynamic linker finds the library, whose initialisers then run.
    if !unsafe { declared::is_culib_present() } {
        return Err(refuse("CUDA C++ needs NVRTC, and its library, libnvrtc, is not found".to_owned()));
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both are places for numbers.
    unsafe { nvrtcVersion(&mut major, &mut minor) }.check()?;
    Ok((major, minor))
}

/// The cubin of `unit`, whose compiler is there, for the program `name`. Called with no lock held: a compilation takes as long
/// as it takes.
pub(crate) fn compile(unit: &Unit<'_>, name: &str) -> Result<Vec<u8>, Fault> {
    let zero = |_| refuse(format!("`{name}`: a source or an option with a zero byte in it"));
    let options: Result<Vec<CString>, _> =
        unit.options.iter().map(|option| CString::new(option.as_str()).map_err(zero)).collect();
    let options = options?;
    let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    let count = c_int::try_from(options.len()).map_err(|error| refuse(error.to_string()))?;
    let text = Text::new(&CString::new(unit.text).map_err(zero)?)?;
    // SAFETY: the program is live, and there are `count` options, each with a zero byte at its end.
    let compiled = unsafe { nvrtcCompileProgram(text.0, count, options.as_ptr()) };
    if let Err(fault) = compiled.check() {
        return Err(refuse(format!("`{name}`: {}: {}", fault.message(), text.log())));
    }
    text.cubin().map_err(|fault| refuse(format!("`{name}`: {}", fault.message())))
}

impl Text {
    fn new(text: &CStr) -> Result<Self, Fault> {
        let (mut raw, none) = (std::ptr::null_mut(), std::ptr::null());
        // SAFETY: `raw` is a place for a handle, and the text, which is copied, has a zero byte at its end. There are no headers,
        // and where the text is from is not said.
        unsafe { nvrtcCreateProgram(&mut raw, text.as_ptr(), std::ptr::null(), 0, none, none) }.check()?;
        Ok(Text(raw))
    }

    /// What the compiler said.
    fn log(&self) -> String {
        let mut size = 0;
        // SAFETY: the program is live, and `size` is a place for a size.
        let sized = unsafe { nvrtcGetProgramLogSize(self.0, &mut size) };
        let mut log = vec![0u8; if sized == Code::SUCCESS { size } else { 0 }];
        if !log.is_empty() {
            // SAFETY: as above, and there is room for the size that the call before gave. Without a log there are zeros.
            let _ = unsafe { nvrtcGetProgramLog(self.0, log.as_mut_ptr().cast()) };
        }
        let text = log.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).trim().to_owned()
    }

    fn cubin(&self) -> Result<Vec<u8>, Fault> {
        let mut size = 0;
        // SAFETY: the program is live and compiled, and `size` is a place for a size.
        unsafe { nvrtcGetCUBINSize(self.0, &mut size) }.check()?;
        let mut image = vec![0u8; size];
        // SAFETY: as above, and there is room for the size that the call before gave.
        unsafe { nvrtcGetCUBIN(self.0, image.as_mut_ptr().cast()) }.check()?;
        Ok(image)
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        // SAFETY: the program came from `nvrtcCreateProgram`, and is destroyed here only.
        let _ = unsafe { nvrtcDestroyProgram(&mut self.0) };
    }
}

/// What a call of NVRTC answered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(u32);

impl Code {
    const SUCCESS: Code = Code(Answer::NVRTC_SUCCESS as u32);
    /// No number of NVRTC's.
    const MISSING: Code = Code(u32::MAX);

    fn check(self) -> Result<(), Fault> {
        match self {
            Code::SUCCESS => Ok(()),
            Code::MISSING => Err(refuse("the NVRTC found is too old: 11.1 or later is needed".to_owned())),
            Code(code) => Err(refuse(self.text().unwrap_or_else(|| format!("NVRTC's error {code}")))),
        }
    }

    fn text(self) -> Option<String> {
        // SAFETY: the call takes an error, and gives a text for whatever number it is.
        let call = unsafe { find::<unsafe extern "C" fn(u32) -> *const c_char>("nvrtcGetErrorString") }?;
        // SAFETY: as above.
        let text = unsafe { call(self.0) };
        if text.is_null() {
            return None;
        }
        // SAFETY: the text is the library's own, with a zero byte at its end, and never freed.
        Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }
}

/// NVRTC's function `name`, if it has one. The library has been found before.
///
/// # Safety
/// `F` is the type of a pointer to that function.
unsafe fn find<F: Copy>(name: &str) -> Option<F> {
    // SAFETY: opens the library, whose initialisers ran when it was found.
    let library = unsafe { declared::culib() };
    // SAFETY: the caller's word. The library is never closed, so that the pointer stays one.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    found.ok().map(|found| *found)
}

calls! {
    fn nvrtcVersion(major: *mut c_int, minor: *mut c_int);
    fn nvrtcCreateProgram(
        program: *mut nvrtcProgram, text: *const c_char, name: *const c_char, headers: c_int,
        contents: *const *const c_char, names: *const *const c_char
    );
    fn nvrtcCompileProgram(program: nvrtcProgram, count: c_int, options: *const *const c_char);
    fn nvrtcDestroyProgram(program: *mut nvrtcProgram);
    fn nvrtcGetProgramLogSize(program: nvrtcProgram, size: *mut usize);
    fn nvrtcGetProgramLog(program: nvrtcProgram, log: *mut c_char);
    fn nvrtcGetCUBINSize(program: nvrtcProgram, size: *mut usize);
    fn nvrtcGetCUBIN(program: nvrtcProgram, image: *mut c_char);
}
