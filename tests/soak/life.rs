//! The life, the same on every backend.

mod bundle;
mod checks;
mod kernels;
mod model;
mod plan;
mod random;
mod steps;
#[path = "../conformance/suite/support.rs"]
mod support;
mod tally;
mod watch;
mod worker;
#[path = "../conformance/suite/zoo.rs"]
mod zoo;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dacapo::MemoryUsage;

pub use super::subject;
use kernels::Kernels;
use random::fresh_bytes;
use steps::{Tools, Weight};
use support::{Device, DeviceOptions, Enqueue, Stream, eventually};
pub use tally::What;
use watch::{Crew, Held};
use worker::{Goods, Shared, Worker};

const STREAMS: usize = 8;
const THREADS: usize = 4;

/// Bytes of buffers that the threads keep alive between them.
const WORKING_SET: usize = 96 << 20;

fn duration() -> Duration {
    let seconds = match std::env::var("DACAPO_SOAK").as_deref() {
        Err(_) | Ok("") => subject::SECONDS,
        Ok("long") => 600,
        Ok(seconds) => seconds.parse().expect("DACAPO_SOAK is `long` or a number of seconds"),
    };
    Duration::from_secs(seconds)
}

fn seed() -> u64 {
    match std::env::var("DACAPO_SOAK_SEED") {
        Ok(seed) => seed.parse().expect("DACAPO_SOAK_SEED is a number"),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64),
    }
}

fn shared() -> Option<Shared> {
    let device = subject::open(DeviceOptions::new().max_streams(STREAMS))?;
    let mut streams: Vec<Stream> = (0..STREAMS).map(|_| device.stream().unwrap()).collect();
    let weight = |bytes: usize| {
        let bytes = fresh_bytes(bytes);
        let mut buffer = streams[0].alloc_scratch::<u8>(bytes.len()).unwrap();
        streams[0].write(&mut buffer, &bytes).unwrap();
        Weight { buffer, bytes }
    };
    let weights = [4 << 20, 300_000, 300_000, 4_097].map(weight).into();
    Some(Shared {
        tools: Tools { kernels: Kernels::load(&device).unwrap(), weights },
        device,
        streams: streams.into(),
        market: Default::default(),
        windows: Default::default(),
        stop: AtomicBool::new(false),
        share: WORKING_SET / THREADS,
    })
}

/// Held bytes that creep up for weeks, bytes that come back to the wrong owner once in a million times, a failure that
/// spreads to its neighbours or is forgotten, a page that a late replay writes after it was given away.
#[test]
fn a_long_random_life_loses_no_byte_and_holds_no_more_in_the_end_than_in_the_middle() {
    let seed = seed();
    let Some(shared) = shared() else { return };
    let shared = Arc::new(shared);
    let crew = Crew::start(&shared, (0..THREADS as u64).map(|thread| Worker::new(seed ^ (thread << 56))));
    let held = crew.watch(&shared.device, duration());
    crew.until(|| tally::missing(subject::NEVER).is_none(), 5 * duration());
    shared.stop.store(true, Ordering::Relaxed);
    let outcome = crew.join().and_then(|workers| {
        let shared = Arc::into_inner(shared).ok_or("a thread that has ended holds on to the device")?;
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| wind_up(shared, workers, &held)))
            .map_err(|_| "the end of it")
            .map_err(str::to_owned)
    });
    if let Err(problem) = outcome {
        panic!("{problem}; again with DACAPO_SOAK_SEED={seed}");
    }
}

fn wind_up(shared: Shared, workers: Vec<Worker>, held: &Held) {
    let Shared { device, tools, mut streams, market, .. } = shared;
    subject::stop_refusing(&device);
    let streams = streams.get_mut();
    for stream in streams.iter_mut() {
        let synced = stream.sync();
        assert!(synced.as_ref().err().is_none_or(checks::is_late), "the last sync: {synced:?}");
    }
    let stream = &mut streams[0];
    println!("{held}\n{}", tally::summary(subject::NEVER));
    assert_packed(&device, stream);
    workers.iter().for_each(|worker| worker.verify(stream));
    for goods in market.into_inner() {
        match goods {
            Goods::Buffer(buffer, model, _) => {
                checks::same_bytes("on the market", stream.read(&buffer), model.read(&(0..model.len())));
            }
            Goods::Bundle(bundle) => bundle.cells.verify(stream),
        }
    }
    held.assert_plateau(WORKING_SET);
    drop((workers, tools));
    device.check().unwrap();
    let stream = &mut streams[0];
    let returns = eventually(|| {
        stream.memory_cleanup().unwrap();
        let MemoryUsage { held, in_use, pending, pending_host, .. } = device.memory_usage();
        (held, in_use, pending, pending_host) == (0, 0, 0, 0) && device.memory_report().staging.in_use == 0
    });
    assert!(returns, "everything was dropped, and the device holds {:?}", device.memory_usage());
}

/// What is alive can be brought together, but for what graphs hold where it is.
fn assert_packed(device: &Device, stream: &mut Stream) {
    let before = device.memory_usage();
    let moved = stream.compact().unwrap();
    stream.sync().unwrap();
    stream.memory_cleanup().unwrap();
    assert!(
        eventually(|| device.memory_usage().pending == 0),
        "pages do not go back: {:?}",
        device.memory_usage()
    );
    let after = device.memory_usage();
    println!("held / in use with all alive: {:.3}, compacted {:.3} ({moved:?})", ratio(before), ratio(after));
    let most = 1.25;
    assert!(ratio(after) <= most, "after a compaction {after:?}\n{}", device.memory_report());
}

fn ratio(usage: MemoryUsage) -> f64 {
    usage.held as f64 / usage.in_use as f64
}
