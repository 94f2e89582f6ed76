//! Sharp edges of other libraries, as scenarios that must work here: captures left open (E10 to E14), neighbours (E20
//! to E24), errors, contents and order (E30 to E37).

use std::panic::{AssertUnwindSafe, catch_unwind};

use dacapo::{Abandonment, Call, Error, PhaseName};

use super::support::*;

/// cudarc, mircuda: `end` first returns an old, unrelated stored error, and leaves the capture open.
#[test]
fn e10_end_reports_its_own_window_and_not_what_failed_before_it() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut output = filled(&mut s, 1.0);
    let mut doomed = s.alloc::<f32>(LEN).unwrap();
    fail_late(&mut s, &mut doomed);

    let mut s = s.prepare().unwrap().begin().unwrap();
    s.launch(&k.inc, grid(), (&mut output, Len)).unwrap();
    let (mut graph, mut s) = s.end().expect("the old failure is no part of this window");
    assert!(!device.captures().any_active());
    graph.replay(&mut s).unwrap().wait().unwrap();
    assert!(matches!(s.sync(), Err(Error::CallbackPanicked { .. })), "it is reported where it belongs, once");
    s.sync().unwrap();
    assert!(all(&s.read(&output).unwrap(), 2.0));
}

/// cudarc: an early `?` between begin and end leaves the capture open.
#[test]
fn e11_an_early_return_closes_the_window() {
    fn fails_half_way(s: Stream, output: &mut Buffer<f32>) -> Result<(Graph, Stream), Error> {
        let mut s = s.prepare()?.begin()?;
        s.fill(&mut *output, 5.0)?;
        "no number".parse::<u32>().map_err(Error::step)?;
        Ok(s.end()?)
    }
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut output = filled(&mut s, 1.0);
    let id = s.id();
    let error = fails_half_way(s, &mut output).unwrap_err();
    assert!(error.step_as::<std::num::ParseIntError>().is_some());
    assert!(!device.captures().is_capturing(id) && !device.captures().any_active());

    let mut s = device.stream().unwrap();
    assert!(all(&s.read(&output).unwrap(), 1.0), "nothing ran");
    let (mut graph, ()) = s.record(|w| w.launch(&k.inc, grid(), (&mut output, Len))).unwrap();
    graph.replay(&mut s).unwrap();
    assert!(all(&s.read(&output).unwrap(), 2.0));
}

/// mircuda, ferrotorch, cudax: a panic in the callback leaves the stream capturing.
#[test]
fn e12_a_panic_in_a_step_closes_the_window_and_leaves_the_stream_usable() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut output = filled(&mut s, 1.0);
    let step = |w: &mut Work<'_>, output: &mut Buffer<f32>| {
        w.launch(&k.inc, grid(), (&mut *output, Len))?;
        if w.pass() == dacapo::Pass::Recording { panic!("a step that panics") } else { Ok(()) }
    };
    let caught = catch_unwind(AssertUnwindSafe(|| s.record(|w| step(w, &mut output)).map(drop)));
    assert!(caught.is_err());
    assert!(!device.captures().any_active());
    let caught = catch_unwind(AssertUnwindSafe(|| s.capture(|w| step(w, &mut output)).map(drop)));
    assert!(caught.is_err());
    assert!(!device.captures().any_active());
    assert!(all(&s.read(&output).unwrap(), 2.0), "one warm-up, and no recording");

    let (mut graph, ()) = s.record(|w| w.launch(&k.inc, grid(), (&mut output, Len))).unwrap();
    graph.replay(&mut s).unwrap();
    assert!(all(&s.read(&output).unwrap(), 3.0));
}

/// cuda.core: an invalidated capture cannot be ended.
#[test]
fn e13_a_window_that_was_doomed_evicted_or_refused_by_the_driver_still_ends() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut output = filled(&mut s, 1.0);
    for spoil in ["doomed", "evicted", "refused"] {
        let mut recording = s.prepare().unwrap().begin().unwrap();
        recording.launch(&k.inc, grid(), (&mut output, Len)).unwrap();
        match spoil {
            "doomed" => recording.write(&mut output, &[0.0]).unwrap_err(),
            "evicted" => {
                device.evict(recording.window().unwrap()).unwrap();
                recording.launch(&k.inc, grid(), (&mut output, Len)).unwrap_err()
            }
            _ if subject::refuse_next(&device, Call::End) => Error::NotReplayed,
            _ => {
                s = recording.abort();
                continue;
            }
        };
        let (usable, error) = recording.end().unwrap_err().into_parts();
        s = usable;
        let expected = match spoil {
            "doomed" => matches!(error, Error::LengthMismatch { operation: "write", .. }),
            "evicted" => matches!(error, Error::Evicted { doomed_by: None, .. }),
            _ => matches!(error, Error::Driver { call: Call::End, .. }),
        };
        assert!(expected, "{spoil}: {error}");
        assert!(!device.captures().any_active());
    }
    let (mut graph, ()) = s.record(|w| w.launch(&k.inc, grid(), (&mut output, Len))).unwrap();
    graph.replay(&mut s).unwrap();
    assert!(all(&s.read(&output).unwrap(), 2.0));
}

/// ferrotorch: a guard's drop swallows the failure of the end.
#[test]
fn e14_a_window_closed_by_a_drop_says_why_through_the_buffers_that_it_made() {
    let Some((device, _)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let cause = |s: &mut Stream, born: &Buffer<f32>| match s.read(born) {
        Err(Error::NeverSealed { cause }) => (*cause).clone(),
        other => panic!("{other:?}"),
    };
    let mut dropped = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    let born = dropped.alloc::<f32>(LEN).unwrap();
    drop(dropped);
    let error = cause(&mut s, &born);
    assert!(matches!(error, Error::Abandoned { how: Abandonment::Dropped, .. }), "{error}");

    let mut doomed = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    let mut born = doomed.alloc::<f32>(LEN).unwrap();
    doomed.write(&mut born, &[0.0]).unwrap_err();
    drop(doomed);
    let error = cause(&mut s, &born);
    assert!(matches!(error, Error::LengthMismatch { .. }), "{error}");
}

/// cubecl: `begin` takes no caller, so that a neighbour opens, stops, fills and dooms somebody else's window.
#[test]
fn e20_a_neighbour_on_the_same_slot_cannot_touch_a_window() {
    let Some((device, k)) = working(1) else { return };
    let mut owner = device.stream().unwrap();
    let mut neighbour = AnyStream::from(device.stream().unwrap());
    let mut output = filled(&mut owner, 1.0);
    let mut others = filled(&mut neighbour, 1.0);
    let owner = owner.prepare().unwrap();
    let wrong_phase = |outcome: Result<(), Error>| matches!(outcome, Err(Error::WrongPhase { .. }));
    assert!(wrong_phase(neighbour.begin()), "the open window is not its own");
    assert!(wrong_phase(neighbour.cancel()));
    neighbour.prepare().unwrap();
    neighbour.cancel().unwrap();

    let mut owner = owner.begin().unwrap();
    owner.launch(&k.inc, grid(), (&mut output, Len)).unwrap();
    assert!(wrong_phase(neighbour.abort()));
    assert!(wrong_phase(neighbour.end().map(drop)));
    neighbour.launch(&k.inc, grid(), (&mut others, Len)).unwrap();
    neighbour.write(&mut others, &[0.0]).unwrap_err();
    neighbour.prepare().unwrap();
    neighbour.begin().unwrap();
    neighbour.write(&mut others, &[0.0]).unwrap_err();
    neighbour.abort().unwrap();
    assert_eq!(owner.phase(), PhaseName::Recording);
    let (mut graph, mut owner) = owner.end().expect("none of it was this window's");
    assert_eq!(graph.nodes(), 1);
    graph.replay(&mut owner).unwrap();
    assert!(all(&owner.read(&output).unwrap(), 2.0));
}

/// cudarc: touching a window-written buffer from another stream joins that stream to the capture.
#[test]
fn e22_a_stream_that_touches_what_a_window_writes_does_not_join_it() {
    let Some((device, k)) = working(2) else { return };
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut output = filled(&mut a, 1.0);
    let mut copy = b.alloc::<f32>(LEN).unwrap();
    let mut a = a.prepare().unwrap().begin().unwrap();
    a.launch(&k.inc, grid(), (&mut output, Len)).unwrap();
    let born = a.alloc::<f32>(LEN).unwrap();

    b.copy(&output, &mut copy).unwrap();
    b.launch(&k.inc, grid(), (&mut output, Len)).unwrap();
    assert!(!device.captures().is_capturing(b.id()));
    assert!(all(&b.read(&copy).unwrap(), 1.0), "it executed");
    let error = b.copy(&born, &mut copy).unwrap_err();
    assert!(matches!(error, Error::StillRecording { operation: "copy", .. }), "{error}");
    a.fill(&mut output, 7.0).expect("the other stream's mistake dooms nobody's window");
    let (mut graph, mut a) = a.end().unwrap();
    graph.replay(&mut a).unwrap();
    assert!(all(&a.read(&output).unwrap(), 7.0));
    b.fill(&mut copy, 0.0).unwrap();
    b.sync().unwrap();
}

/// cubecl: a cross-stream input makes another stream wait on a captured event and never rejoin.
#[test]
fn e23_recording_a_cross_stream_input_makes_nobody_wait() {
    let Some((device, k)) = working(2) else { return };
    let (mut s, mut n) = (device.stream().unwrap(), device.stream().unwrap());
    let mut input = n.alloc::<f32>(LEN).unwrap();
    let mut output = s.alloc::<f32>(LEN).unwrap();
    s.sync().unwrap();
    n.sync().unwrap();
    n.fill(&mut input, 1.0).unwrap();
    let before = subject::driver_calls(&device);
    let mut s = s.prepare().unwrap().begin().unwrap();
    s.launch(&k.add1, grid(), (&input, &mut output, Len, Len)).unwrap();
    assert_eq!(
        subject::driver_calls(&device),
        before.map(|calls| calls + 1),
        "the start of the recording, and no wait"
    );
    n.launch(&k.inc, grid(), (&mut input, Len)).unwrap();
    n.sync().expect("the other stream runs on while the window is open");
    let (mut graph, mut s) = s.end().unwrap();
    graph.replay(&mut s).unwrap();
    n.launch(&k.inc, grid(), (&mut input, Len)).unwrap();
    assert!(all(&s.read(&output).unwrap(), 3.0));
    assert!(all(&n.read(&input).unwrap(), 3.0));
}

/// warp: one open capture blocks captures on every device, and defers every free in the process.
#[test]
fn e24_an_open_window_holds_up_no_other_capture_and_no_release_of_memory() {
    let Some((first, k)) = working(2) else { return };
    let Some((second, other_k)) = working(1) else { return };
    let mut s = first.stream().unwrap();
    let mut output = filled(&mut s, 1.0);
    let mut recording = s.prepare().unwrap().begin().unwrap();
    recording.launch(&k.inc, grid(), (&mut output, Len)).unwrap();

    for (device, k) in [(&first, &k), (&second, &other_k)] {
        let mut s = device.stream().unwrap();
        let baseline = Baseline::take(&mut s);
        let mut c = filled(&mut s, 0.0);
        let (mut graph, ()) = s
            .record(|w| {
                let mut tmp = w.alloc::<f32>(LARGE)?;
                w.fill(&mut tmp, 1.0)?;
                w.launch(&k.inc, grid(), (&mut c, Len))
            })
            .unwrap();
        graph.replay(&mut s).unwrap();
        assert!(all(&s.read(&c).unwrap(), 1.0));
        drop((graph, c));
        assert!(baseline.returns(&mut s), "freed with the window open: {:?}", device.memory_usage());
    }
    let (mut graph, mut s) = recording.end().unwrap();
    graph.replay(&mut s).unwrap();
    assert!(all(&s.read(&output).unwrap(), 2.0));
}

/// cudarc: one last-writer-wins error slot per context, cleared by an unrelated call.
#[test]
fn e30_each_stream_keeps_its_first_late_failure_until_it_is_asked() {
    let Some((device, k)) = working(1) else { return };
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let (mut x, mut y) = (a.alloc::<f32>(LEN).unwrap(), b.alloc::<f32>(LEN).unwrap());
    let fails = |s: &mut Stream, buffer: &mut Buffer<f32>, name: &'static str| {
        s.host_call_with(Touches::new().writes(buffer), move || panic!("{name}")).unwrap();
    };
    fails(&mut a, &mut x, "first");
    fails(&mut a, &mut x, "second");
    fails(&mut b, &mut y, "other");
    b.fill(&mut y, 0.0).unwrap();
    a.launch(&k.fill, grid(), (&mut x, 1.0f32, Len)).unwrap();
    assert!(all(&a.read(&x).unwrap(), 1.0));

    let told = |outcome| match outcome {
        Err(Error::CallbackPanicked { message }) => message.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(told(b.sync()), "other");
    assert_eq!(told(a.sync()), "first");
    a.sync().unwrap();
    b.sync().unwrap();
}

/// cubecl: a read or sync inside the window is not refused up front; the wait kills the capture. What waits here on the
/// window's own account, the library's calls included, is refused before the driver hears of it.
#[test]
fn e32_a_wait_beside_a_window_never_reaches_the_driver_on_its_behalf() {
    let Some((device, k)) = working(1) else { return };
    let mut s = AnyStream::from(device.stream().unwrap());
    let mut output = filled(&mut s, 1.0);
    s.prepare().unwrap();
    let mut graph = {
        s.begin().unwrap();
        s.launch(&k.inc, grid(), (&mut output, Len)).unwrap();
        s.end().unwrap()
    };
    let ticket = graph.replay(&mut s).unwrap();
    s.prepare().unwrap();
    s.begin().unwrap();
    let before = subject::driver_calls(&device);
    assert!(matches!(s.sync(), Err(Error::WrongPhase { operation: "sync", .. })));
    assert!(matches!(s.read(&output), Err(Error::WrongPhase { operation: "read", .. })));
    assert!(matches!(graph.replay(&mut s), Err(Error::WrongPhase { operation: "replay", .. })));
    assert_eq!(subject::driver_calls(&device), before);
    ticket.wait().expect("a ticket is nobody's window");
    s.launch(&k.inc, grid(), (&mut output, Len)).unwrap();
    let mut graph = s.end().unwrap();
    graph.replay(&mut s).unwrap();
    assert!(all(&s.read(&output).unwrap(), 3.0));
    device.check().unwrap();
}

/// cuda-async, mircuda: updates before a replay order only on the same stream.
#[test]
fn e34_an_update_on_another_stream_is_ordered_with_the_replays_around_it() {
    let Some((device, k)) = working(2) else { return };
    let (mut s, mut other) = (device.stream().unwrap(), device.stream().unwrap());
    let mut input = filled(&mut s, 1.0);
    let (mut output, mut results) = (s.alloc::<f32>(LEN).unwrap(), s.alloc::<f32>(2 * LEN).unwrap());
    let (mut graph, ()) = s.record(|w| w.launch(&k.add1, grid(), (&input, &mut output, Len, Len))).unwrap();
    s.sync().unwrap();
    let gate = Gate::close(&mut other);
    for round in 0..2 {
        other.write(&mut input, &[10.0 * (round + 1) as f32; LEN]).unwrap();
        graph.replay(&mut s).unwrap();
        let at = round * LEN;
        other.copy(&output, results.slice_mut(at..at + LEN).unwrap()).unwrap();
    }
    assert!(is_held_up(&mut s), "the replay waits for the update");
    gate.open();
    let results = s.read(&results).unwrap();
    assert!(all(&results[..LEN], 11.0) && all(&results[LEN..], 21.0));
}

/// A check by address passes an object that has another one's old address. Here a graph names its members themselves.
#[test]
fn e34_a_new_buffer_in_the_place_of_an_old_one_is_not_taken_for_it() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut output = s.alloc::<f32>(LEN).unwrap();
    let old = filled(&mut s, 1.0);
    let (mut graph, ()) = s.record(|w| w.launch(&k.add1, grid(), (&old, &mut output, Len, Len))).unwrap();
    drop(old);
    let news: Vec<_> = (0..40).map(|_| filled(&mut s, 50.0)).collect();
    graph.replay(&mut s).unwrap();
    assert!(all(&s.read(&output).unwrap(), 2.0));
    drop(news);
}

/// ferrotorch: a graph test that launches on another stream passes with an empty graph. So nodes can be audited.
#[test]
fn e36_work_on_another_stream_is_no_node_of_the_graph() {
    let Some((device, k)) = working(2) else { return };
    let (mut s, mut other) = (device.stream().unwrap(), device.stream().unwrap());
    let mut output = filled(&mut s, 1.0);
    let (mut empty, ()) = s.record(|_| other.launch(&k.inc, grid(), (&mut output, Len))).unwrap();
    assert_eq!((empty.nodes(), empty.edges(), empty.node(0)), (0, 0, None));
    assert!(all(&other.read(&output).unwrap(), 2.0), "it ran where it was launched");
    empty.replay(&mut s).unwrap().wait().unwrap();
    assert!(all(&s.read(&output).unwrap(), 2.0), "and a graph without nodes replays as nothing");

    let (graph, ()) = s.record(|w| w.launch(&k.inc, grid(), (&mut output, Len))).unwrap();
    let node = graph.node(0).unwrap();
    assert_eq!((node.name.as_str(), node.bytes), ("inc", (LEN * 4, LEN * 4)));
    assert!(graph.to_dot().contains("inc"));
}

/// torch: shared pools demand that graphs replay in the order of their capture, and another stream needs explicit
/// waits.
#[test]
fn e37_graphs_that_share_an_arena_replay_in_any_order_on_any_stream() {
    let Some((device, k)) = working(2) else { return };
    let (mut s, mut other) = (device.stream().unwrap(), device.stream().unwrap());
    let input = filled(&mut s, 3.0);
    let (mut x, mut y) = (s.alloc::<f32>(LEN).unwrap(), s.alloc::<f32>(LEN).unwrap());
    let (mut g1, ()) = s
        .record(|w| {
            let mut tmp = w.alloc::<f32>(LEN)?;
            w.launch(&k.add1, grid(), (&input, &mut tmp, Len, Len))?;
            w.launch(&k.mul2, grid(), (&tmp, &mut x, Len, Len))
        })
        .unwrap();
    let in_use = device.memory_usage().in_use;
    let shared = CaptureOptions::new().share_arena(&g1);
    let (mut g2, ()) = s
        .record_with(shared, |w| {
            let mut tmp = w.alloc::<f32>(LEN)?;
            w.launch(&k.mul2, grid(), (&input, &mut tmp, Len, Len))?;
            w.launch(&k.mul2, grid(), (&tmp, &mut y, Len, Len))
        })
        .unwrap();
    drop(input);
    assert_eq!(device.memory_usage().in_use, in_use, "one arena for both, and dead inputs live on");
    let gate = Gate::close(&mut s);
    g2.replay(&mut s).unwrap();
    g1.replay(&mut other).unwrap();
    g2.replay(&mut other).unwrap();
    g1.replay(&mut s).unwrap();
    assert!(is_held_up(&mut other), "sharers take turns");
    gate.open();
    assert!(all(&other.read(&x).unwrap(), 8.0));
    assert!(all(&s.read(&y).unwrap(), 12.0));
    device.check().unwrap();
}
