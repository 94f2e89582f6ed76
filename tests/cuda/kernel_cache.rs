//! Compiled kernels that are kept on disk.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use dacapo::cuda::{Cuda, CudaOptions, KernelCache, SourceText};
use dacapo::prelude::*;
use dacapo::{DeviceOptions, Error};
use sha2::{Digest, Sha256};

use crate::support::device_with;

const TEXT: &str =
    r#"extern "C" __global__ void set(unsigned* x, unsigned long long n) { if (n > 0) x[0] = VALUE; }"#;

fn source(value: u32) -> SourceText {
    SourceText::new(TEXT).define("VALUE", value)
}

/// A folder of a test's own.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let place = Place(std::env::temp_dir().join(format!("dacapo-{name}-{}", std::process::id())));
        let _ = fs::remove_dir_all(&place.0);
        place
    }

    fn device(&self) -> Option<Device<Cuda>> {
        device_at(KernelCache::at(&self.0))
    }

    fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(&self.0).into_iter().flatten().map(|file| file.unwrap().path()).collect()
    }

    /// The only file, and its number on the disk, which a file that is written anew has not.
    fn entry(&self) -> (PathBuf, u64) {
        let files = self.files();
        assert_eq!(files.len(), 1, "{files:?}");
        (files[0].clone(), fs::metadata(&files[0]).unwrap().ino())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn device_at(cache: KernelCache) -> Option<Device<Cuda>> {
    device_with(DeviceOptions::new().max_streams(1).backend(CudaOptions::new().kernel_cache(cache)))
}

/// Loads the kernel, and looks what it does.
fn result(device: &Device<Cuda>, source: SourceText) -> u32 {
    let program = Program::<(InOut<u32>, Len<0>)>::new("set");
    // SAFETY: it sets the first element, if there is one, to the same number from every thread.
    let set = unsafe { program.cuda(source, "set") }.load(device).unwrap();
    let mut stream = device.stream().unwrap();
    let mut x = stream.alloc::<u32>(1).unwrap();
    stream.launch(&set, Grid::covering(1), (&mut x, Len)).unwrap();
    stream.read(&x).unwrap()[0]
}

/// What is compiled is written to a file of its own, which then takes the entry's place: the file is the same one after a load
/// that compiled nothing, and only then.
#[test]
fn what_was_compiled_once_is_found_by_every_later_load() {
    let place = Place::new("found");
    let Some(device) = place.device() else { return };
    assert_eq!(result(&device, source(7)), 7);
    let first = place.entry();
    assert_eq!(result(&device, source(7)), 7);
    drop(device);
    assert_eq!(result(&place.device().unwrap(), source(7)), 7, "on another device");
    assert_eq!(place.entry(), first);
    assert_eq!(result(&place.device().unwrap(), source(8)), 8, "other options are another kernel");
    assert_eq!(place.files().len(), 2);
}

/// Replaces the image in an entry, with a checksum that fits.
fn forge(path: &Path, image: &[u8]) {
    let sound = fs::read(path).unwrap();
    let key = u64::from_le_bytes(sound[16..24].try_into().unwrap()) as usize;
    let mut entry = [&sound[..24 + key], image].concat();
    let sum = Sha256::digest(&entry);
    entry.extend_from_slice(&sum);
    fs::write(path, entry).unwrap();
}

/// A disk that errs would keep a program from starting until somebody finds the folder.
#[test]
fn an_entry_that_is_damaged_or_no_code_is_compiled_again_and_replaced() {
    let place = Place::new("damaged");
    let Some(device) = place.device() else { return };
    assert_eq!(result(&device, source(7)), 7);
    let (path, _) = place.entry();
    let sound = fs::read(&path).unwrap();
    let damages: [&dyn Fn(); 4] = [
        &|| fs::write(&path, &sound[..sound.len() / 2]).unwrap(),
        &|| {
            let mut changed = sound.clone();
            changed[sound.len() / 2] ^= 1;
            fs::write(&path, changed).unwrap();
        },
        &|| fs::write(&path, b"").unwrap(),
        &|| forge(&path, b"no code"),
    ];
    for (n, damage) in damages.iter().enumerate() {
        damage();
        let (_, before) = place.entry();
        assert_eq!(result(&device, source(7)), 7, "damage {n}");
        assert_ne!(place.entry().1, before, "damage {n}");
        assert_eq!(fs::read(&path).unwrap().len(), sound.len(), "damage {n}");
    }
}

#[test]
fn a_cache_that_is_off_or_cannot_be_used_changes_nothing() {
    let place = Place::new("unused");
    let Some(device) = device_at(KernelCache::off()) else { return };
    assert_eq!(result(&device, source(7)), 7);
    fs::write(&place.0, b"a file in the folder's place").unwrap();
    assert_eq!(result(&place.device().unwrap(), source(7)), 7);
    assert_eq!(fs::read(&place.0).unwrap(), b"a file in the folder's place");
    fs::remove_file(&place.0).unwrap();
    let small = device_at(KernelCache::at(&place.0).limit(100)).unwrap();
    assert_eq!(result(&small, source(7)), 7);
    assert!(place.files().is_empty(), "what is larger than the limit is not kept");
}

/// A header that changes would go unnoticed.
#[test]
fn what_includes_files_and_what_does_not_compile_is_not_kept() {
    let place = Place::new("included");
    let Some(device) = place.device() else { return };
    let including = SourceText::new(format!("#include <cstdint>\n{TEXT}")).define("VALUE", 7);
    // SAFETY: it is only loaded.
    let program = unsafe { Program::<(InOut<u32>, Len<0>)>::new("set").cuda(including, "set") };
    match program.load(&device) {
        Ok(_) => {}
        // Where the compiler comes without headers.
        Err(Error::Driver { message, .. }) => assert!(message.contains("cstdint"), "{message}"),
        Err(other) => panic!("{other}"),
    }
    // SAFETY: it becomes no kernel.
    let broken = unsafe { Program::<()>::new("set").cuda("oops", "set") };
    broken.load(&device).unwrap_err();
    assert!(place.files().is_empty(), "{:?}", place.files());
}

/// Two that compile the same at once, and a third that finds what one of them kept.
#[test]
fn several_threads_may_load_one_source_at_once() {
    let place = Place::new("threads");
    let Some(device) = place.device() else { return };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let device = &device;
            scope.spawn(move || {
                for n in 0..4 {
                    let value = 1 + (n + thread) % 4;
                    assert_eq!(result(device, source(value)), value);
                }
            });
        }
    });
    assert_eq!(place.files().len(), 4, "{:?}", place.files());
}
