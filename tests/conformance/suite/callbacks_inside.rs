//! What a host callback may do: call us, drop what is ours, own the last of it. It neither waits for itself nor reaches
//! a driver, which on some devices would hang in there.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use dacapo::{AllocationMode, Error, Layout, Recording};

use super::support::*;
use super::zoo;

/// One of everything, owned by a callback.
pub struct Belongings {
    device: Device,
    kernels: Kernels,
    stream: Stream,
    prepared: Stream<dacapo::Prepared>,
    recording: Stream<Recording>,
    /// A recording on which only operations are tried: it must come out as it went in.
    open: Stream<Recording>,
    any: AnyStream,
    graph: Graph,
    pub ticket: Ticket,
    x: Buffer<f32>,
    y: Buffer<f32>,
}

impl Belongings {
    pub fn new(device: &Device) -> Self {
        let kernels = Kernels::load(device);
        let stream = || device.stream().unwrap();
        let mut own = stream();
        let (x, mut y) = (filled(&mut own, 1.0), filled(&mut own, 2.0));
        let (mut graph, ()) = own.record(|w| w.launch(&kernels.inc, grid(), (&mut y, Len))).unwrap();
        let ticket = graph.replay(&mut own).unwrap();
        let mut open = stream().prepare().unwrap().begin().unwrap();
        open.launch(&kernels.inc, grid(), (&mut y, Len)).unwrap();
        Belongings {
            device: device.clone(),
            stream: own,
            prepared: stream().prepare().unwrap(),
            recording: stream().prepare().unwrap().begin().unwrap(),
            open,
            any: AnyStream::from(stream()),
            graph,
            ticket,
            x,
            y,
            kernels,
        }
    }
}

/// What each call came to.
#[derive(Default)]
pub struct Outcomes(Vec<(&'static str, Option<Error>)>);

impl Outcomes {
    fn note<T>(&mut self, call: &'static str, outcome: Result<T, impl Into<Error>>) {
        self.0.push((call, outcome.err().map(Into::into)));
    }

    fn device(&mut self, has: &mut Belongings) {
        self.note("open", Device::open(DeviceOptions::new()));
        self.note("host", dacapo::Device::host());
        self.note("stepped", dacapo::Device::stepped(Default::default()));
        self.note("stream", has.device.stream());
        self.note("evict", has.device.evict(has.open.window().unwrap()));
        self.note("load", zoo::inc::<f32>().load(&has.device));
        self.note("wait", has.ticket.wait());
        self.note("wait_timeout", has.ticket.wait_timeout(Duration::from_secs(60)));
    }

    /// The operations of every phase.
    fn enqueue(
        &mut self,
        s: &mut impl Enqueue<Subject>,
        has: (&Kernels, &Buffer<f32>, &mut Buffer<f32>, &mut Graph),
    ) {
        let (k, x, y, graph) = has;
        self.note("alloc", s.alloc::<f32>(LEN));
        self.note("alloc_scratch", s.alloc_scratch::<f32>(LEN));
        self.note("launch", s.launch(&k.add1, grid(), (x, &mut *y, Len, Len)));
        self.note("launch of nothing", s.launch(&k.add1, Grid::covering(0), (x, &mut *y, Len, Len)));
        self.note("copy", s.copy(x, &mut *y));
        self.note("fill", s.fill(&mut *y, 1.0));
        self.note("write", s.write(&mut *y, &[0.0; LEN]));
        self.note("write of owned data", s.write(&mut *y, vec![0.0; LEN]));
        self.note("write_pitched", s.write_pitched(&mut *y, &pitched(), &[0.0; 4]));
        self.note("host_call", s.host_call(|| {}));
        self.note("host_call_with", s.host_call_with(Touches::new().reads(x).writes(&mut *y), || {}));
        self.note("embed", s.embed(graph));
    }

    /// Those of a stream that executes.
    fn waits(&mut self, s: &mut Stream, x: &Buffer<f32>, graph: &mut Graph) {
        let long = Duration::from_secs(60);
        self.note("read", s.read(x));
        self.note("read_timeout", s.read_timeout(x, long));
        self.note("read_into", s.read_into(x, &mut [0.0; LEN]));
        self.note("read_into_timeout", s.read_into_timeout(x, &mut [0.0; LEN], long));
        self.note("read_pitched", s.read_pitched(x, &pitched()));
        self.note("read_pitched_into", s.read_pitched_into(x, &pitched(), &mut [0.0; 4]));
        self.note("read_async", s.read_async(x));
        self.note("sync", s.sync());
        self.note("sync_timeout", s.sync_timeout(long));
        self.note("profile", s.profile(|_| Ok(())));
        self.note("memory_cleanup", s.memory_cleanup());
        self.note("replay", graph.replay(s));
        self.note("record", s.record(|_| Ok(())));
        self.note("capture", s.capture(|_| Ok(())));
        self.note("allocating", s.allocating(AllocationMode::Dedicated, |w| w.alloc::<f32>(LEN)));
    }

    fn transitions(&mut self, has: Belongings) -> (Stream<Recording>, Buffer<f32>) {
        let mut any = has.any;
        self.note("any prepare", any.prepare());
        self.note("any begin", any.begin());
        self.note("any cancel", any.cancel());
        self.note("any end", any.end());
        self.note("any abort", any.abort());
        self.note("prepare", has.stream.prepare());
        self.note("begin", has.prepared.begin());
        self.note("end", has.recording.end());
        (has.open, has.y)
    }
}

fn pitched() -> Layout {
    Layout::pitched(&[2, 2], 8).unwrap()
}

/// Makes every kind of call there is, and hands back what it tried to change.
pub fn call_everything(mut has: Belongings, outcomes: &mut Outcomes) -> (Stream<Recording>, Buffer<f32>) {
    outcomes.device(&mut has);
    let Belongings { kernels, stream, open, any, graph, x, y, .. } = &mut has;
    outcomes.enqueue(stream, (kernels, x, y, graph));
    outcomes.enqueue(open, (kernels, x, y, graph));
    outcomes.enqueue(any, (kernels, x, y, graph));
    outcomes.waits(stream, x, graph);
    outcomes.transitions(has)
}

/// Runs `inside` in a host callback of `stream`, and returns what it returned, and how often it called the driver.
pub fn in_callback<T: Send + 'static>(
    stream: &mut Stream,
    inside: impl FnOnce() -> T + Send + 'static,
) -> (T, Option<u64>) {
    let told = call_back(stream, inside);
    told.recv().expect("the callback does not panic")
}

/// Enqueues such a callback; what it came to is told when it ran.
pub fn call_back<T: Send + 'static>(
    stream: &mut Stream,
    inside: impl FnOnce() -> T + Send + 'static,
) -> Receiver<(T, Option<u64>)> {
    let (tell, told) = channel();
    let calls = subject::counter(&stream.device());
    let mut inside = Some(inside);
    let call = move || {
        let before = calls();
        let value = inside.take().expect("called once")();
        tell.send((value, before.zip(calls()).map(|(before, after)| after - before))).unwrap();
    };
    stream.host_call(call).unwrap();
    told
}

pub fn all_are_refused(outcomes: Outcomes) {
    assert!(outcomes.0.len() > 50, "{}", outcomes.0.len());
    for (call, outcome) in outcomes.0 {
        assert!(matches!(outcome, Some(Error::InCallback { .. })), "{call}: {outcome:?}");
    }
}

/// A call that waits for the device inside a callback waits for itself, and a driver may not be called there at all.
#[test]
fn every_call_inside_a_callback_is_refused_before_it_reaches_the_driver_and_changes_nothing() {
    let Some((device, _k)) = working(2) else { return };
    let mut s = device.stream().unwrap();
    let belongings = Belongings::new(&device);
    belongings.ticket.wait().unwrap();
    let ((outcomes, open, y), calls) = in_callback(&mut s, move || {
        let mut outcomes = Outcomes::default();
        let (open, y) = call_everything(belongings, &mut outcomes);
        (outcomes, open, y)
    });
    all_are_refused(outcomes);
    assert_eq!(calls.unwrap_or(0), 0);

    let (mut graph, mut open) = open.end().expect("what was refused dooms nothing");
    assert_eq!(graph.nodes(), 1);
    assert!(all(&open.read(&y).unwrap(), 3.0), "and taints nothing");
    graph.replay(&mut open).unwrap();
    assert!(all(&open.read(&y).unwrap(), 4.0));
    assert!(!device.captures().any_active());
    s.sync().unwrap();
}

/// Everything that can be dropped, some of it in flight.
pub fn objects(device: &Device) -> impl Send + 'static {
    let k = Kernels::load(device);
    let stream = || device.stream().unwrap();
    let mut s = stream();
    let (x, mut y) = (filled(&mut s, 1.0), filled(&mut s, 2.0));
    let future = s.read_async(&x).unwrap();
    let (mut graph, ()) = s
        .record(|w| {
            let mut tmp = w.alloc::<f32>(LEN)?;
            w.launch(&k.add1, grid(), (&x, &mut tmp, Len, Len))?;
            w.launch(&k.mul2, grid(), (&tmp, &mut y, Len, Len))
        })
        .unwrap();
    let ticket = graph.replay(&mut s).unwrap();
    let prepared = stream().prepare().unwrap();
    // The window holds the last reference to the graph whose arena it shares.
    let (shared, ()) = s.record(|w| w.alloc::<f32>(LEN).and_then(|mut tmp| w.fill(&mut tmp, 1.0))).unwrap();
    let options = CaptureOptions::new().share_arena(&shared);
    let mut recording = stream().prepare_with(options).unwrap().begin().unwrap();
    let born = filled(&mut recording, 1.0);
    recording.host_call(|| {}).unwrap();
    drop(shared);
    let any = {
        let mut any = AnyStream::from(stream());
        any.prepare().unwrap();
        any.begin().unwrap();
        any
    };
    (x, y, future, graph, ticket, (s, prepared, recording, born, any, k), device.clone())
}

/// The same beside workers that are busy with those very objects.
#[test]
fn dropping_anything_inside_a_callback_on_a_worker_leaves_the_device_working() {
    let Some((device, _k)) = working(2) else { return };
    let mut s = device.stream().unwrap();
    let baseline = Baseline::take(&mut s);
    for _ in 0..20 {
        let owned = objects(&device);
        in_callback(&mut s, move || drop(owned));
    }
    assert!(!device.captures().any_active());
    let y = filled(&mut s, 1.0);
    assert!(all(&s.read(&y).unwrap(), 1.0));
    drop(y);
    assert!(baseline.returns(&mut s), "{:?}", device.memory_usage());
}

/// What is refused is let go of in the middle of its call. Under a lock of the library's, the drop of a graph waits for that
/// very lock, and with it everybody else does.
#[test]
fn a_callback_that_is_never_called_may_own_anything_whatever_refused_it() {
    let Some((device, k)) = working(2) else { return };
    let mut s = device.stream().unwrap();
    let owning = || {
        let owned = objects(&device);
        move || _ = &owned
    };
    let (mut tainted, mut out) = (filled(&mut s, 1.0), filled(&mut s, 1.0));
    refused(s.launch(&k.fill, beyond_limits(), (&mut tainted, 2.0, Len)));
    s.host_call_with(Touches::new().reads(&tainted).writes(&mut out), owning()).unwrap();
    assert!(s.read(&out).is_err(), "it was not called");

    let mut recording = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    let born = filled(&mut recording, 1.0);
    let error = refused(s.host_call_with(Touches::new().reads(&born), owning()));
    assert!(matches!(error, Error::StillRecording { .. }), "{error}");
    refused(recording.launch(&k.fill, beyond_limits(), (&mut out, 2.0, Len)));
    let error = refused(recording.host_call(owning()));
    assert!(matches!(error, Error::Doomed { .. }), "{error}");
    drop(recording);
    assert_usable(&mut s, &k);
}

/// The window's lock is the owner's and the evictor's: a callback that the recording does not take goes under neither.
#[test]
fn a_callback_that_is_not_recorded_may_evict_the_window_when_it_is_dropped() {
    struct Evicts(Device);
    impl Drop for Evicts {
        fn drop(&mut self) {
            self.0.captures().windows().into_iter().for_each(|(window, _)| drop(self.0.evict(window)));
        }
    }
    let Some((device, k)) = working(1) else { return };
    let mut x = filled(&mut device.stream().unwrap(), 1.0);
    let mut recording = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    refused(recording.launch(&k.fill, beyond_limits(), (&mut x, 2.0, Len)));
    let evicts = Evicts(device.clone());
    let error = refused(recording.host_call(move || _ = &evicts));
    assert!(matches!(error, Error::Doomed { .. }), "{error}");
    let (mut s, error) = recording.end().unwrap_err().into_parts();
    assert!(matches!(error, Error::Evicted { .. }), "{error}");
    assert_usable(&mut s, &k);
}

/// A window that stays on the records when the drop of a recorded value panics is open for ever: nobody can evict it, and who
/// waits until nothing records waits for it.
#[test]
fn a_window_closes_also_where_the_drop_of_what_it_recorded_panics() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("a value that panics when it is dropped");
        }
    }
    let Some((device, k)) = working(2) else { return };
    let record = |work: &mut dyn FnMut(Box<dyn FnMut() + Send>) -> dacapo::Result<()>| {
        let panics = Panics;
        work(Box::new(move || _ = &panics)).unwrap();
    };
    let ways: [fn(Stream<Recording>); 2] = [|recording| drop(recording), |recording| drop(recording.abort())];
    for end in ways {
        let mut recording = device.stream().unwrap().prepare().unwrap().begin().unwrap();
        record(&mut |call| recording.host_call(call));
        assert!(catch_unwind(AssertUnwindSafe(|| end(recording))).is_err());
        assert!(!device.captures().any_active(), "{:?}", device.captures().windows());
    }
    let mut s = device.stream().unwrap();
    let step = catch_unwind(AssertUnwindSafe(|| {
        s.record(|w| {
            record(&mut |call| w.host_call(call));
            Err::<(), _>(Error::step("the step fails"))
        })
    }));
    assert!(step.is_err());
    assert!(!device.captures().any_active(), "{:?}", device.captures().windows());
    assert_usable(&mut s, &k);
}

/// A graph that a callback of its own drops is gone in the middle of its replay.
#[test]
fn a_graph_may_be_dropped_by_its_own_callback() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<f32>(LEN).unwrap();
    let (give, take): (Sender<Graph>, Receiver<Graph>) = channel();
    let (mut graph, ()) = s
        .record(|w| {
            w.launch(&k.inc, grid(), (&mut x, Len))?;
            w.host_call(move || drop(take.recv().unwrap()))?;
            w.launch(&k.inc, grid(), (&mut x, Len))
        })
        .unwrap();
    let ticket = graph.replay(&mut s).unwrap();
    give.send(graph).unwrap();
    ticket.wait().unwrap();
    assert!(all(&s.read(&x).unwrap(), 2.0), "the replay in flight ends well");
}

/// The last handle of a device may go on its own worker, which must not then wait for itself to end.
#[test]
fn a_callback_may_own_the_last_device_and_the_last_stream() {
    let Some((device, _k)) = working(2) else { return };
    let (mut s, mut last) = (device.stream().unwrap(), device.stream().unwrap());
    let calls = subject::counter(&device);
    let (go, gate) = channel::<()>();
    let (tell, told) = channel();
    let mut owned = Some((device.clone(), device.stream().unwrap().prepare().unwrap()));
    s.host_call(move || {
        gate.recv().unwrap();
        let before = calls();
        drop(owned.take());
        tell.send(before == calls()).unwrap();
    })
    .unwrap();
    let (tell_after, after) = channel();
    s.host_call(move || tell_after.send(()).unwrap()).unwrap();
    let x = filled(&mut last, 1.0);
    let future = last.read_async(&x).unwrap();
    drop((device, s, last, x));
    go.send(()).unwrap();
    assert!(told.recv().unwrap(), "the driver was not called");
    after.recv().expect("what was queued behind it still runs");
    assert!(all(&block_on(future).unwrap(), 1.0), "on every slot");
}
