//! What an eviction takes from the owner, what it leaves, and what it says.

use std::sync::Arc;

use dacapo::{Call, Error, ErrorKind};

use super::support::*;
use super::{evict, is_eviction_of};

/// An owner who is stuck for ever is the reason to evict: what leaves only with his next call never leaves.
#[test]
fn what_a_recording_pinned_leaves_while_its_owner_is_still_stuck() {
    let Some((device, k)) = working(1) else { return };
    let mut other = device.stream().unwrap();
    let baseline = Baseline::take(&mut other);
    let mut x = other.alloc::<f32>(LARGE).unwrap();
    let (mut child, ()) = other
        .record(|work| {
            let mut t = work.alloc_scratch::<f32>(LARGE)?;
            work.launch(&k.fill, Grid::covering(LARGE), (&mut t, 1.0f32, Len))?;
            work.copy(&t, &mut x)
        })
        .unwrap();
    let owner = device.stream().unwrap().prepare_with(CaptureOptions::new().share_arena(&child)).unwrap();
    let mut owner = owner.begin().unwrap();
    let token = Arc::new(());
    let held = token.clone();
    owner.launch(&k.inc, Grid::covering(LARGE), (&mut x, Len)).unwrap();
    owner.embed(&mut child).unwrap();
    owner.host_call(move || drop(held.clone())).unwrap();
    drop((x, child));
    let in_use = device.memory_usage().in_use;
    assert!(in_use >= 8 * LARGE, "the recording alone holds the buffer and the arena");

    evict(&device, owner.window().unwrap()).unwrap();
    assert_eq!(Arc::strong_count(&token), 1);
    let left = device.memory_usage().in_use;
    assert!(left < in_use, "{left}");
    assert!(is_eviction_of(&owner.alloc::<f32>(N).unwrap_err(), owner.window().unwrap()));
    drop(owner);
    assert!(baseline.returns(&mut other));
}

/// A buffer that says `still recording` for ever would be waited for, for ever.
#[test]
fn buffers_born_in_an_evicted_recording_say_so_wherever_they_are_used() {
    let Some((device, k)) = working(2) else { return };
    let mut s = device.stream().unwrap();
    let mut other = device.stream().unwrap();
    let mut y = s.alloc::<f32>(N).unwrap();
    let mut recording = s.prepare().unwrap().begin().unwrap();
    let window = recording.window().unwrap();
    let mut born = recording.alloc::<f32>(2 * N).unwrap();
    let half = born.split_off(N).unwrap();
    let early = other.read(&born).unwrap_err();
    assert!(matches!(early, Error::StillRecording { window: named, .. } if named == window));
    evict(&device, window).unwrap();

    let lost = |error: &Error| match error {
        Error::NeverSealed { cause } => is_eviction_of(cause, window),
        _ => false,
    };
    for buffer in [&born, &half] {
        assert!(lost(&other.read(buffer).unwrap_err()));
    }
    assert!(lost(&other.fill(&mut born, 1.0).unwrap_err()), "it has no memory to be filled");
    let error =
        other.record(|work| work.launch(&k.add1, Grid::covering(N), (&half, &mut y, Len, Len))).unwrap_err();
    assert!(lost(&error), "nor can another recording use it");
    assert_eq!(error.root().kind(), ErrorKind::Evicted);
    let mut s = recording.abort();
    assert!(lost(&s.read(&born).unwrap_err()), "and nothing that the owner does changes that");
    let tainted = s.launch(&k.add1, Grid::covering(N), (&half, &mut y, Len, Len)).unwrap_err();
    assert!(lost(&tainted));
    let root = s.read(&y).unwrap_err();
    assert!(matches!(&root, Error::Tainted { cause } if is_eviction_of(cause.root(), window)), "{root}");
    s.fill(&mut y, 2.0).unwrap();
    assert!(all(&s.read(&y).unwrap(), 2.0));
}

/// What a warm-up enqueued is not undone: an eviction ends a window, and stops no work.
#[test]
fn work_that_a_warm_up_enqueued_runs_on_after_its_eviction() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<f32>(N).unwrap();
    let gate = Gate::close(&mut s);
    let mut prepared = s.prepare().unwrap();
    let window = prepared.window().unwrap();
    prepared.launch(&k.inc, Grid::covering(N), (&mut x, Len)).unwrap();
    let future = prepared.read_async(&x).unwrap();
    evict(&device, window).unwrap();
    let refused = prepared.launch(&k.inc, Grid::covering(N), (&mut x, Len)).unwrap_err();
    assert!(is_eviction_of(&refused, window));
    gate.open();
    assert!(all(&block_on(future).unwrap(), 1.0));
    let mut s = prepared.cancel();
    assert!(all(&s.read(&x).unwrap(), 1.0), "a refused launch taints nothing and adds nothing");
}

/// The report is what the log of a service shows at 3 a.m.
#[test]
fn the_report_names_the_window_its_stream_and_the_thread_that_called() {
    let Some((device, _)) = working(1) else { return };
    let recording = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    let (id, window) = (recording.id(), recording.window().unwrap());
    let report = evict(&device, window).unwrap();
    assert_eq!((report.window(), report.window().stream()), (window, id));
    assert!(report.by().contains("janitor"));
    let text = report.to_string();
    assert!(text.contains(&window.to_string()) && text.contains("janitor"), "{text}");
    let error = recording.end().unwrap_err().into_error();
    assert_eq!(error.to_string(), text, "the owner reads the same sentence");

    let prepared = device.stream().unwrap().prepare().unwrap();
    let window = prepared.window().unwrap();
    let nameless = std::thread::scope(|scope| {
        scope.spawn(|| (device.evict(window).unwrap(), std::thread::current().id())).join().unwrap()
    });
    let (report, caller) = nameless;
    assert!(report.by().contains(&format!("{caller:?}")), "a thread without a name has a number");
}

/// The first failure is what must be mended; the later ones follow from it.
#[test]
fn the_report_carries_the_first_failure_of_the_recording_and_no_later_one() {
    let Some((device, k)) = working(1) else { return };
    let mut x = device.stream().unwrap().alloc::<f32>(N).unwrap();
    let mut s = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    let window = s.window().unwrap();
    s.write(&mut x, &[0.0; 3]).unwrap_err();
    let doomed = s.launch(&k.inc, Grid::covering(N), (&mut x, Len)).unwrap_err();
    assert!(matches!(doomed, Error::Doomed { .. }));
    let report = evict(&device, window).unwrap();
    assert!(matches!(report.doomed_by(), Some(Error::LengthMismatch { source_len: 3, target_len: N, .. })));
    let text = report.to_string();
    assert!(text.contains("3 elements") && text.contains("64"), "{text}");
    let after = s.launch(&k.inc, Grid::covering(N), (&mut x, Len)).unwrap_err();
    assert!(is_eviction_of(&after, window), "the eviction is the news, with the failure inside: {after}");
    let (mut s, error) = s.end().unwrap_err().into_parts();
    let Error::Evicted { doomed_by: Some(cause), .. } = error else { panic!("{error}") };
    assert!(matches!(*cause, Error::LengthMismatch { .. }));
    assert!(all(&s.read(&x).unwrap(), 0.0));
}

/// A warm-up's failures concern the bytes that it was to write; they doom no recording.
#[test]
fn a_warm_up_that_failed_something_is_evicted_without_a_doom() {
    let Some((device, _)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<f32>(N).unwrap();
    let mut prepared = s.prepare().unwrap();
    prepared.write(&mut x, &[0.0]).unwrap_err();
    assert!(evict(&device, prepared.window().unwrap()).unwrap().doomed_by().is_none());
}

/// An old name that reached a later window would kill a healthy recording.
#[test]
fn a_window_that_is_over_in_any_way_cannot_be_evicted() {
    let Some((device, _)) = working(1) else { return };
    let mut s = Some(device.stream().unwrap());
    let mut x = s.as_mut().unwrap().alloc::<f32>(N).unwrap();
    let mut over = Vec::new();
    for way in 0..8 {
        let prepared = s.take().unwrap().prepare().unwrap();
        over.push(prepared.window().unwrap());
        s = Some(match way {
            0 => prepared.cancel(),
            1 => prepared.begin().unwrap().abort(),
            2 => prepared.begin().unwrap().end().unwrap().1,
            3 => {
                drop(prepared);
                device.stream().unwrap()
            }
            4 => {
                drop(prepared.begin().unwrap());
                device.stream().unwrap()
            }
            5 => {
                if !subject::refuse_next(&device, Call::Begin) {
                    device.evict(prepared.window().unwrap()).unwrap();
                }
                prepared.begin().unwrap_err().into_parts().0
            }
            6 => {
                let mut recording = prepared.begin().unwrap();
                if !subject::refuse_next(&device, Call::Seal) {
                    recording.write(&mut x, &[0.0]).unwrap_err();
                }
                recording.end().unwrap_err().into_parts().0
            }
            _ => {
                evict(&device, prepared.window().unwrap()).unwrap();
                prepared.cancel()
            }
        });
    }
    let open = s.unwrap().prepare().unwrap().begin().unwrap();
    for window in over {
        let refused = evict(&device, window).unwrap_err();
        assert!(matches!(refused, Error::NotOpen { window: named } if named == window));
        assert_eq!(refused.kind(), ErrorKind::Misuse);
    }
    assert_eq!(open.end().unwrap().0.nodes(), 0, "and the open one is none the worse");
}

/// Windows are numbered by each device for itself: a number alone would reach a stranger's.
#[test]
fn a_window_of_another_device_cannot_be_evicted() {
    let (Some((device, _)), Some((foreign, _))) = (working(1), working(1)) else { return };
    let ours = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    let theirs = foreign.stream().unwrap().prepare().unwrap().begin().unwrap();
    assert_eq!(ours.window().unwrap().generation(), theirs.window().unwrap().generation());
    assert!(matches!(evict(&device, theirs.window().unwrap()), Err(Error::NotOpen { .. })));
    assert!(ours.end().is_ok() && theirs.end().is_ok());
}

/// Room that is kept from one recording to the next must not bring the evicted one's nodes along.
#[test]
fn the_next_window_of_the_stream_starts_empty_and_works() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<f32>(N).unwrap();
    for round in 1..=5u8 {
        let mut evicted = s.prepare().unwrap().begin().unwrap();
        evicted.launch(&k.fill, Grid::covering(N), (&mut x, -1.0f32, Len)).unwrap();
        let _lost = evicted.alloc::<f32>(N).unwrap();
        evict(&device, evicted.window().unwrap()).unwrap();
        let idle = if round % 2 == 0 { evicted.abort() } else { evicted.end().unwrap_err().into_parts().0 };
        let mut recording = idle.prepare().unwrap().begin().unwrap();
        recording.launch(&k.inc, Grid::covering(N), (&mut x, Len)).unwrap();
        let (mut graph, idle) = recording.end().unwrap();
        s = idle;
        assert_eq!(graph.nodes(), 1);
        graph.replay(&mut s).unwrap();
        assert!(all(&s.read(&x).unwrap(), f32::from(round)));
    }
}
