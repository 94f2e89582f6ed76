//! Compiled kernels on disk, from one run of a program to the next.
//!
//! An entry is one file, named by a digest of its key, that holds the whole key, the image, and a checksum of both. It is
//! written to a file of its own and renamed, so that readers see all of it or nothing, in any number of processes. Whatever
//! is wrong with an entry or with the folder, the cache then has no such entry: nothing here ever fails a load.

#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

/// Where compiled CUDA C++ is kept from one run of a program to the next.
///
/// What was compiled is found again by its source, options, the device's architecture and the compiler's version, all of
/// which are compared. A source that may read files, or the time, is compiled anew each time, since what those hold is none of
/// these: one in which `include`, `import`, `embed`, `__DATE__` or `__TIME` occurs, if only in a comment. Any number of
/// processes may share a folder. One that cannot be used is none: nothing is kept, and nothing fails.
///
/// Whoever can write to the folder decides what code runs on the device. The usual one belongs to the user alone, and on
/// Unix one that its group or everybody may write to is none.
///
/// ```no_run
/// use dacapo::DeviceOptions;
/// use dacapo::cuda::{Cuda, CudaOptions, KernelCache};
/// use dacapo::prelude::*;
///
/// # fn main() -> dacapo::Result<()> {
/// let cache = KernelCache::at("/var/cache/solver").limit(64 << 20);
/// let options = DeviceOptions::<Cuda>::new().backend(CudaOptions::new().kernel_cache(cache));
/// let device = Device::open(options)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelCache {
    folder: Folder,
    limit: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Folder {
    User,
    At(PathBuf),
    Nowhere,
}

impl KernelCache {
    /// The usual place: `dacapo/kernels` in the user's folder for caches (`$XDG_CACHE_HOME`, else `$HOME/.cache`; on Windows
    /// `%LOCALAPPDATA%`). Where there is no such folder nothing is kept.
    pub fn user() -> Self {
        KernelCache { folder: Folder::User, limit: 256 << 20 }
    }

    /// A folder, which is made when something is first kept. Files there that are not the cache's are left alone.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        KernelCache { folder: Folder::At(folder.into()), ..Self::user() }
    }

    /// Keeps nothing, and looks nowhere.
    pub fn off() -> Self {
        KernelCache { folder: Folder::Nowhere, ..Self::user() }
    }

    /// How many bytes the folder holds at most; 256 MiB unless said otherwise. Above it, what was not used for the longest
    /// time goes.
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    pub(crate) fn open(&self) -> Option<Cache> {
        let folder = match &self.folder {
            Folder::User => folder_of_caches(|name| std::env::var_os(name))?.join("dacapo").join("kernels"),
            Folder::At(folder) => folder.clone(),
            Folder::Nowhere => return None,
        };
        Some(Cache { folder, limit: self.limit })
    }
}

impl Default for KernelCache {
    fn default() -> Self {
        Self::user()
    }
}

/// Where programs keep what they can make again, by the variables of the environment.
fn folder_of_caches(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
    let folder = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if cfg!(windows) {
        return folder("LOCALAPPDATA");
    }
    folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")))
}

/// What tells one compilation from every other.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(Vec<u8>);

impl Key {
    /// Appends a part. Its length goes first, so that no two lists of parts look alike.
    pub(crate) fn add(&mut self, part: &str) {
        self.0.extend_from_slice(&(part.len() as u64).to_le_bytes());
        self.0.extend_from_slice(part.as_bytes());
    }

    /// The name of the entry.
    fn file(&self) -> String {
        let mut name: String = Sha256::digest(&self.0).iter().map(|byte| format!("{byte:02x}")).collect();
        name.push_str(ENTRY);
        name
    }
}

/// An open cache: a place, and nothing that two users of it would have to share.
pub(crate) struct Cache {
    folder: PathBuf,
    limit: u64,
}

/// What an entry's name ends in, behind the digest.
const ENTRY: &str = ".kernel";
/// What the name of an entry that is being written ends in.
const UNFINISHED: &str = ".tmp";
/// How an entry starts: the format.
const MAGIC: &[u8; 16] = b"dacapo kernel 1\n";
/// Bytes of the checksum, at the entry's end.
const SUM: usize = 32;
/// Who writes longer than this was ended before the end.
const ABANDONED: Duration = Duration::from_secs(3600);
/// By how much the clock of a file server may be ahead of this machine's.
const AHEAD: Duration = Duration::from_secs(3600);

impl Cache {
    /// The image of `key`, if there is a sound entry.
    pub(crate) fn find(&self, key: &Key) -> Option<Vec<u8>> {
        if !is_private(&self.folder) {
            return None;
        }
        let path = self.folder.join(key.file());
        // Before it is opened: to open a pipe could take for ever.
        let found = fs::metadata(&path).ok()?;
        if !found.is_file() || found.len() > self.limit {
            return None;
        }
        let file = File::open(&path).ok()?;
        let mut bytes = Vec::new();
        (&file).take(self.limit).read_to_end(&mut bytes).ok()?;
        let image = image_of(&bytes, key)?.to_vec();
        // What is used stays; where that cannot be noted, it goes a little earlier.
        let _ = file.set_modified(SystemTime::now());
        Some(image)
    }

    /// Keeps `image`, if that is possible, and lets the oldest entries go where there are too many.
    pub(crate) fn keep(&self, key: &Key, image: &[u8]) {
        if self.write(key, image).is_ok() {
            self.evict();
        }
    }

    fn write(&self, key: &Key, image: &[u8]) -> io::Result<()> {
        let entry = entry(key, image);
        if entry.len() as u64 > self.limit {
            return Ok(());
        }
        make(&self.folder)?;
        if !is_private(&self.folder) {
            return Ok(());
        }
        let name = key.file();
        let mut unfinished = Unfinished::create(&self.folder, &name)?;
        unfinished.file.write_all(&entry)?;
        fs::rename(&unfinished.path, self.folder.join(name))
    }

    /// Removes the entries that were not used for the longest time, until the rest is within the limit, and what ended
    /// processes left unfinished. Others may do the same at the same time.
    fn evict(&self) {
        let mut entries: Vec<_> = self.files(ENTRY).collect();
        entries.sort_unstable();
        let mut held: u64 = entries.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, bytes, path) in entries {
            if held <= self.limit {
                break;
            }
            if fs::remove_file(path).is_ok() {
                held -= bytes;
            }
        }
        let now = SystemTime::now();
        let abandoned = |used: SystemTime| now.duration_since(used).is_ok_and(|age| age > ABANDONED);
        for (_, _, path) in self.files(UNFINISHED).filter(|(used, ..)| abandoned(*used)) {
            let _ = fs::remove_file(path);
        }
    }

    /// The cache's own files whose names end in `kind`: when each was last used, its bytes, its path.
    fn files(&self, kind: &'static str) -> impl Iterator<Item = (SystemTime, u64, PathBuf)> {
        let all = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let own = all.filter(move |file| file.file_name().to_str().is_some_and(|name| is_own(name, kind)));
        own.filter_map(|file| {
            let found = file.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((credible(found.modified().ok()?), found.len(), file.path()))
        })
    }
}

/// When a file was last used, as far as its date can be believed. One that is far ahead came from a clock that was wrong: it
/// would outlive everything that is really in use, and push out each new entry in its stead.
fn credible(used: SystemTime) -> SystemTime {
    let is_ahead = used.duration_since(SystemTime::now()).is_ok_and(|ahead| ahead > AHEAD);
    if is_ahead { SystemTime::UNIX_EPOCH } else { used }
}

/// Whether a file of this name is one of the cache's: a digest first, and `kind` at the end.
fn is_own(name: &str, kind: &str) -> bool {
    let digest = name.get(..2 * SUM).unwrap_or_default();
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    digest.len() == 2 * SUM && digest.bytes().all(is_digit) && name.ends_with(kind)
}

/// The bytes of an entry.
fn entry(key: &Key, image: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&(key.0.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&key.0);
    bytes.extend_from_slice(image);
    let sum = Sha256::digest(&bytes);
    bytes.extend_from_slice(&sum);
    bytes
}

/// The image in an entry, if that is whole and the one of `key`.
fn image_of<'e>(entry: &'e [u8], key: &Key) -> Option<&'e [u8]> {
    let (body, sum) = entry.split_last_chunk::<SUM>()?;
    if Sha256::digest(body).as_slice() != sum {
        return None;
    }
    let (length, rest) = body.strip_prefix(MAGIC)?.split_first_chunk::<8>()?;
    let (found, image) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    (found == key.0 && !image.is_empty()).then_some(image)
}

/// Whether nobody but its owner may write to the folder, as far as the system tells.
fn is_private(folder: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::metadata(folder).is_ok_and(|found| found.permissions().mode() & 0o022 == 0)
    }
    #[cfg(not(unix))]
    folder.is_dir()
}

/// Makes the folder, which nobody else may write to.
fn make(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// A file that is being written under a name of its own; removed unless it was renamed.
struct Unfinished {
    path: PathBuf,
    file: File,
}

impl Unfinished {
    fn create(folder: &Path, name: &str) -> io::Result<Self> {
        // Seeded anew each time: no two writers share a name, whatever process or machine they are in.
        let random = RandomState::new().build_hasher().finish();
        let path = folder.join(format!("{name}.{random:016x}{UNFINISHED}"));
        let file = File::options().write(true).create_new(true).open(&path)?;
        Ok(Unfinished { path, file })
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Gone already, if it was renamed.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests;
