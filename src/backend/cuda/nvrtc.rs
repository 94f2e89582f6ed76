//! CUDA C++, compiled for one architecture.

#![allow(unsafe_code, reason = "calls of NVRTC")]

use std::ffi::CString;

use cudarc::nvrtc::{result, sys};

use crate::backend::cuda::text::Unit;
use crate::backend::fault::Severity;
use crate::backend::{Call, Fault};

/// The oldest compiler that gives cubins.
const OLDEST: (i32, i32) = (11, 1);

/// A program of NVRTC's; destroyed when it goes out of scope.
struct Text(sys::nvrtcProgram);

fn refuse(message: String) -> Fault {
    Fault::new(Call::Load, Severity::Call, message)
}

/// The version of the compiler, which is there.
pub(crate) fn version() -> Result<(i32, i32), Fault> {
    // SAFETY: looks whether the dynamic linker finds the library, whose initialisers then run.
    if !unsafe { sys::is_culib_present() } {
        return Err(refuse("CUDA C++ needs NVRTC, and its library, libnvrtc, is not found".to_owned()));
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both are places for numbers.
    let found = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    found.result().map_err(|error| refuse(error.to_string()))?;
    if (major, minor) < OLDEST {
        let (least, less) = OLDEST;
        return Err(refuse(format!(
            "CUDA C++ needs NVRTC {least}.{less} or later, and the library found is {major}.{minor}"
        )));
    }
    Ok((major, minor))
}

/// The cubin of `unit`. Called with nothing held: a compilation takes as long as it takes.
pub(crate) fn compile(unit: &Unit<'_>) -> Result<Vec<u8>, Fault> {
    let name = unit.name;
    if unit.options.iter().any(|option| option.contains('\0')) {
        return Err(refuse(format!("`{name}`: an option with a zero byte in it")));
    }
    let zero = |_| refuse(format!("`{name}`: a source or name with a zero byte in it"));
    let (text, file) = (CString::new(unit.text).map_err(zero)?, CString::new(name).map_err(zero)?);
    let program = result::create_program(&text, Some(&file)).map_err(|error| refuse(error.to_string()))?;
    let program = Text(program);
    // SAFETY: the program is live.
    if let Err(error) = unsafe { result::compile_program(program.0, &unit.options) } {
        return Err(refuse(format!("`{name}`: {error}: {}", program.log())));
    }
    program.cubin().map_err(|error| refuse(format!("`{name}`: {error}")))
}

impl Text {
    /// What the compiler said.
    fn log(&self) -> String {
        // SAFETY: the program is live.
        let log = unsafe { result::get_program_log(self.0) }.unwrap_or_default();
        let bytes: Vec<u8> = log.into_iter().map(|byte| byte as u8).take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }

    fn cubin(&self) -> Result<Vec<u8>, result::NvrtcError> {
        let mut size = 0;
        // SAFETY: the program is live and compiled, and `size` is a place for a size.
        unsafe { sys::nvrtcGetCUBINSize(self.0, &mut size) }.result()?;
        let mut image = vec![0u8; size];
        // SAFETY: as above, and there is room for the size that the call before gave.
        unsafe { sys::nvrtcGetCUBIN(self.0, image.as_mut_ptr().cast()) }.result()?;
        Ok(image)
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        // SAFETY: the program came from `create_program`, and is destroyed here only.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}
