//! The status record where the driver refuses a way out of a window. Every other way is in the conformance suite.

mod support;
#[path = "conformance/suite/eviction/watcher.rs"]
mod watcher;

use dacapo::host::Severity;
use dacapo::prelude::*;
use dacapo::{Call, CaptureOptions, WindowPhase};

use support::working;
use watcher::Watcher;

/// Elements of a small buffer.
const N: usize = 64;

/// A failed way out is a way out: a stream that stayed listed would look as if it captured for ever.
#[test]
fn every_refused_transition_is_seen_as_the_end_of_the_window() {
    let (device, k) = working(1);
    let faults = device.faults();
    let watcher = Watcher::start(device.captures());
    let mut x = device.stream().unwrap().alloc::<f32>(N).unwrap();
    let mut s = device.stream().unwrap();
    let id = s.id();

    faults.fail_nth(Call::Begin, 1, Severity::Call);
    s = s.prepare().unwrap().begin().unwrap_err().into_parts().0;
    assert_eq!(watcher.sees(id), None, "the driver refused to begin");
    for call in [Call::End, Call::Seal] {
        let recording = s.prepare().unwrap().begin().unwrap();
        faults.fail_nth(call, 1, Severity::Call);
        s = recording.end().unwrap_err().into_parts().0;
        assert_eq!(watcher.sees(id), None, "the driver refused: {call}");
    }
    let mut recording = s.prepare().unwrap().begin().unwrap();
    recording.write(&mut x, &[0.0]).unwrap_err();
    assert_eq!(watcher.sees(id), Some(WindowPhase::Recording), "a doomed recording is open until its end");
    s = recording.end().unwrap_err().into_parts().0;
    assert_eq!(watcher.sees(id), None);
    let mut recording = s.prepare_with(CaptureOptions::new().arena_limit(1)).unwrap().begin().unwrap();
    let mut t = recording.alloc::<f32>(N).unwrap();
    recording.launch(&k.inc, Grid::covering(N), (&mut t,)).unwrap();
    drop(t);
    s = recording.end().unwrap_err().into_parts().0;
    assert_eq!(watcher.sees(id), None, "the arena was beyond its limit");

    let recording = s.prepare().unwrap().begin().unwrap();
    faults.fail_nth(Call::Launch, 1, Severity::Sticky);
    device.stream().unwrap().launch(&k.inc, Grid::covering(N), (&mut x,)).unwrap_err();
    assert!(device.check().is_err());
    assert_eq!(watcher.sees(id), Some(WindowPhase::Recording), "a lost device closes nobody's window");
    let (s, _) = recording.end().unwrap_err().into_parts();
    assert_eq!(watcher.sees(id), None);
    assert!(s.prepare().is_err());
    assert_eq!(watcher.sees(id), None, "a window that could not open was never open");
}
