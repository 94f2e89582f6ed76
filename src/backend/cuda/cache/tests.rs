use super::*;

use std::ffi::OsString;

/// A folder of a test's own.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        let random = RandomState::new().build_hasher().finish();
        Place(std::env::temp_dir().join(format!("dacapo-cache-{random:016x}")))
    }

    fn cache(&self, limit: u64) -> Cache {
        KernelCache::at(&self.0).limit(limit).open().unwrap()
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(&self.0)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.0.join(key.file())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn key(parts: &[&str]) -> Key {
    let mut key = Key::default();
    parts.iter().for_each(|part| key.add(part));
    key
}

const ROOM: u64 = 1 << 20;

#[test]
fn what_is_kept_is_found_by_its_key_alone_and_by_other_processes() {
    let place = Place::new();
    assert_eq!(place.cache(ROOM).find(&key(&["a"])), None);
    place.cache(ROOM).keep(&key(&["a"]), b"image of a");
    assert_eq!(place.cache(ROOM).find(&key(&["a"])).unwrap(), b"image of a");
    assert_eq!(place.cache(ROOM).find(&key(&["b"])), None);
    assert_eq!(place.names(), [key(&["a"]).file()], "nothing unfinished is left");
}

/// Keys that are only joined would make `-DA`, `B` the same as `-D`, `AB`.
#[test]
fn keys_with_the_same_letters_in_other_parts_differ() {
    let keys = [key(&["ab", "c"]), key(&["a", "bc"]), key(&["abc"]), key(&["abc", ""])];
    let mut names: Vec<_> = keys.iter().map(Key::file).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), keys.len());
}

/// Half an image, or one with a bit turned over, would be loaded as code.
#[test]
fn an_entry_that_is_cut_short_or_changed_anywhere_is_none_and_is_replaced() {
    let (place, key) = (Place::new(), key(&["source", "--option"]));
    let cache = place.cache(ROOM);
    cache.keep(&key, b"an image");
    let sound = fs::read(place.path(&key)).unwrap();
    for len in 0..sound.len() {
        fs::write(place.path(&key), &sound[..len]).unwrap();
        assert_eq!(cache.find(&key), None, "cut at {len}");
    }
    for bit in 0..8 * sound.len() {
        let mut changed = sound.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        fs::write(place.path(&key), &changed).unwrap();
        assert_eq!(cache.find(&key), None, "bit {bit}");
    }
    fs::write(place.path(&key), [&sound[..], b"more"].concat()).unwrap();
    assert_eq!(cache.find(&key), None, "with more behind it");
    cache.keep(&key, b"an image");
    assert_eq!(cache.find(&key).unwrap(), b"an image");
}

/// Whoever renames a file, or finds two sources with one digest, would launch the wrong kernel.
#[test]
fn a_sound_entry_of_another_key_under_this_ones_name_is_none() {
    let (place, mine, other) = (Place::new(), key(&["mine"]), key(&["other"]));
    let cache = place.cache(ROOM);
    cache.keep(&other, b"the other's");
    fs::rename(place.path(&other), place.path(&mine)).unwrap();
    assert_eq!(cache.find(&mine), None);
    cache.keep(&mine, b"mine");
    assert_eq!(cache.find(&mine).unwrap(), b"mine");
}

/// Lengths that an entry states are whatever somebody wrote there, with a sum that fits.
#[test]
fn an_entry_that_lies_about_its_lengths_is_none() {
    let (place, key) = (Place::new(), key(&["a"]));
    let cache = place.cache(ROOM);
    cache.keep(&key, b"image");
    for length in [0, 1, key.0.len() as u64 + 5, u64::MAX, u64::MAX - 15] {
        let mut body = MAGIC.to_vec();
        body.extend_from_slice(&length.to_le_bytes());
        body.extend_from_slice(&key.0);
        body.extend_from_slice(b"image");
        let sum = Sha256::digest(&body);
        body.extend_from_slice(&sum);
        fs::write(place.path(&key), &body).unwrap();
        assert_eq!(cache.find(&key), None, "{length}");
    }
    fs::write(place.path(&key), entry(&key, b"")).unwrap();
    assert_eq!(cache.find(&key), None, "an entry without an image");
}

/// A cache on a full, foreign or read-only disk would fail programs that need none.
#[test]
fn a_folder_that_cannot_be_used_is_no_cache_and_no_failure() {
    let (place, key) = (Place::new(), key(&["a"]));
    fs::write(&place.0, b"a file in the folder's place").unwrap();
    for cache in [place.cache(ROOM), KernelCache::at(place.0.join("below")).open().unwrap()] {
        cache.keep(&key, b"image");
        assert_eq!(cache.find(&key), None);
    }
    assert_eq!(fs::read(&place.0).unwrap(), b"a file in the folder's place");
    fs::remove_file(&place.0).unwrap();
    // A folder where the entry should be: it can be neither read nor replaced.
    fs::create_dir_all(place.path(&key).join("something")).unwrap();
    let cache = place.cache(ROOM);
    cache.keep(&key, b"image");
    assert_eq!(cache.find(&key), None);
    assert_eq!(place.names(), [key.file()], "what could not be finished is gone");
}

/// Permissions do not bind the superuser, who keeps an entry where others keep none. Either way nothing fails.
#[cfg(unix)]
#[test]
fn a_folder_that_may_only_be_read_gives_what_it_has() {
    use std::os::unix::fs::PermissionsExt;
    let (place, old, new) = (Place::new(), key(&["old"]), key(&["new"]));
    let cache = place.cache(ROOM);
    cache.keep(&old, b"old");
    fs::set_permissions(&place.0, fs::Permissions::from_mode(0o500)).unwrap();
    cache.keep(&new, b"new");
    let found = cache.find(&new);
    assert!(found.is_none() || found.unwrap() == b"new");
    assert_eq!(cache.find(&old).unwrap(), b"old");
    fs::set_permissions(&place.0, fs::Permissions::from_mode(0o700)).unwrap();
}

/// Others who could write to the folder could have their code run.
#[cfg(unix)]
#[test]
fn the_folder_is_the_users_alone() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    place.cache(ROOM).keep(&key(&["a"]), b"image");
    assert_eq!(fs::metadata(&place.0).unwrap().permissions().mode() & 0o777, 0o700);
}

/// Entries of a folder that everybody writes to are everybody's code.
#[cfg(unix)]
#[test]
fn a_folder_that_others_may_write_to_is_none() {
    use std::os::unix::fs::PermissionsExt;
    let (place, key, other) = (Place::new(), key(&["a"]), key(&["b"]));
    let cache = place.cache(ROOM);
    cache.keep(&key, b"image");
    for mode in [0o777, 0o770, 0o702] {
        fs::set_permissions(&place.0, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(cache.find(&key), None, "{mode:o}");
        cache.keep(&other, b"other");
        assert_eq!(place.names(), [key.file()], "{mode:o}");
    }
    fs::set_permissions(&place.0, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(cache.find(&key).unwrap(), b"image");
}

/// The moment `hours` ago.
fn hours_ago(hours: u64) -> SystemTime {
    SystemTime::now() - Duration::from_secs(3600 * hours)
}

fn date(path: &Path, at: SystemTime) {
    File::options().append(true).open(path).unwrap().set_modified(at).unwrap();
}

/// A folder that only grows fills the disk in the end.
#[test]
fn above_the_limit_what_was_not_used_for_the_longest_time_goes() {
    let place = Place::new();
    let keys: Vec<Key> = ["a", "b", "c", "d"].iter().map(|name| key(&[name])).collect();
    let size = entry(&keys[0], &[0; 1000]).len() as u64;
    let cache = place.cache(3 * size);
    for (key, age) in keys.iter().zip([40, 30, 20]) {
        cache.keep(key, &[0; 1000]);
        date(&place.path(key), hours_ago(age));
    }
    assert!(cache.find(&keys[0]).is_some(), "all three fit, and this makes the first the latest");
    cache.keep(&keys[3], &[0; 1000]);
    let there: Vec<bool> = keys.iter().map(|key| cache.find(key).is_some()).collect();
    assert_eq!(there, [true, false, true, true]);
}

/// The dates of a clock that was ahead are later than every use until they are reached: each new entry was the oldest, and
/// went as soon as it was written.
#[test]
fn what_a_clock_that_was_ahead_dated_goes_first_and_does_not_push_out_what_is_new() {
    let place = Place::new();
    let keys: Vec<Key> = ["a", "b", "c", "d"].iter().map(|name| key(&[name])).collect();
    let cache = place.cache(3 * entry(&keys[0], &[0; 1000]).len() as u64);
    let in_a_year = SystemTime::now() + Duration::from_secs(3600 * 24 * 365);
    for key in &keys[..3] {
        cache.keep(key, &[0; 1000]);
        date(&place.path(key), in_a_year);
    }
    let left = place.0.join(format!("{}.1{UNFINISHED}", keys[0].file()));
    fs::write(&left, b"half").unwrap();
    date(&left, in_a_year);
    assert!(cache.find(&keys[0]).is_some(), "used, it has the date of now");
    cache.keep(&keys[3], &[0; 1000]);
    assert!(cache.find(&keys[0]).is_some() && cache.find(&keys[3]).is_some());
    assert_eq!(place.names().len(), 3, "one of the others went, and what was left unfinished");
}

#[test]
fn an_image_that_is_larger_than_the_limit_is_not_kept_and_moves_nothing_out() {
    let (place, small, large) = (Place::new(), key(&["small"]), key(&["large"]));
    let cache = place.cache(500);
    cache.keep(&small, &[1; 100]);
    cache.keep(&large, &[2; 500]);
    assert_eq!(place.names(), [small.file()]);
    assert_eq!(place.cache(100).find(&small), None, "nothing above the limit is read either");
}

/// An entry's limit must not be the end of somebody's own files, nor of what a neighbour is just writing.
#[test]
fn eviction_removes_what_the_cache_wrote_and_ended_processes_left_and_nothing_else() {
    let (place, key) = (Place::new(), key(&["a"]));
    fs::create_dir_all(&place.0).unwrap();
    let foreign = ["notes.kernel", "notes.tmp", &format!("{}.txt", "0".repeat(64)), "ä.kernel"];
    foreign.iter().for_each(|name| fs::write(place.0.join(name), [0; 1000]).unwrap());
    let left = format!("{}.1{UNFINISHED}", key.file());
    let writing = format!("{}.2{UNFINISHED}", key.file());
    fs::write(place.0.join(&left), b"half").unwrap();
    fs::write(place.0.join(&writing), b"half").unwrap();
    for name in foreign.iter().copied().chain([left.as_str()]) {
        date(&place.0.join(name), hours_ago(50));
    }
    place.cache(500).keep(&key, &[1; 10]);
    let mut expected: Vec<String> = foreign.iter().map(|name| (*name).to_owned()).collect();
    expected.extend([key.file(), writing]);
    expected.sort();
    assert_eq!(place.names(), expected);
}

/// Finds, or makes and keeps, five images in turn, in a folder that has room for three.
fn find_and_keep(folder: &Path, first: usize) {
    let image = |n: usize| vec![n as u8 + 1; 20_000 + n];
    let size = entry(&key(&["0"]), &image(0)).len() as u64;
    let cache = KernelCache::at(folder).limit(3 * size + 100).open().unwrap();
    for round in 0..100 {
        let n = (first + round) % 5;
        let key = key(&[&n.to_string()]);
        match cache.find(&key) {
            Some(found) => assert!(found == image(n), "the image of {n}"),
            None => cache.keep(&key, &image(n)),
        }
    }
}

/// A reader that sees a half-written file, or a writer that takes another one's away, shows here as a wrong image, or as
/// something unfinished that stays.
#[test]
fn threads_and_processes_that_share_a_folder_never_meet_half_an_entry() {
    const FOLDER: &str = "DACAPO_TEST_CACHE_FOLDER";
    if let Some(folder) = std::env::var_os(FOLDER) {
        return find_and_keep(Path::new(&folder), 2);
    }
    let place = Place::new();
    let module = module_path!().split_once("::").unwrap().1;
    let this = format!("{module}::threads_and_processes_that_share_a_folder_never_meet_half_an_entry");
    let child = || {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", &this]).env(FOLDER, &place.0).stdout(std::process::Stdio::piped());
        child.spawn().unwrap()
    };
    let children: Vec<_> = (0..3).map(|_| child()).collect();
    std::thread::scope(|scope| {
        (0..8).for_each(|first| {
            drop(scope.spawn({
                let folder = &place.0;
                move || find_and_keep(folder, first)
            }))
        });
    });
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "the child ran this test");
    }
    assert!(place.names().iter().all(|name| name.ends_with(ENTRY)), "{:?}", place.names());
}

#[cfg(not(windows))]
#[test]
fn the_usual_folder_is_where_users_look_for_caches_or_none() {
    let with = |xdg: Option<&str>, home: Option<&str>| {
        folder_of_caches(|name| match name {
            "XDG_CACHE_HOME" => xdg.map(OsString::from),
            "HOME" => home.map(OsString::from),
            _ => None,
        })
    };
    assert_eq!(with(Some("/c"), Some("/h")), Some("/c".into()));
    assert_eq!(with(None, Some("/h")), Some("/h/.cache".into()));
    assert_eq!(with(Some("relative"), Some("/h")), Some("/h/.cache".into()));
    assert_eq!(with(Some(""), None), None);
    assert!(KernelCache::off().open().is_none());
    assert_eq!(KernelCache::default(), KernelCache::user());
}
