//! A busy life of a program's device, which is destroyed under everybody in the end.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dacapo::prelude::*;
use dacapo::wgpu::Wgpu;
use dacapo::{Error, ErrorKind, Len, Result};

use crate::Resident;
use crate::support::{Add, Buf, add, eventually};

const LEN: usize = 3000;

/// How long the life lasts: as `tests/soak.rs` says, and shorter where nobody says.
fn span() -> Duration {
    let seconds = match std::env::var("DACAPO_SOAK").as_deref() {
        Ok("long") => 60,
        Ok(seconds) => seconds.parse().unwrap_or(5),
        Err(_) => 5,
    };
    Duration::from_secs(seconds)
}

/// One round: a capture, replays, drops, reads of which some are never awaited. The values are right, unless it fails.
fn round(device: &Device<Wgpu>, add: &Kernel<Add, Wgpu>, n: u32) -> Result<()> {
    let mut s = device.stream()?;
    let mut x: Buf<u32> = s.alloc(LEN)?;
    let mut y: Buf<u32> = s.alloc_scratch(LEN + n as usize % 7)?;
    s.write(&mut x, vec![n; LEN])?;
    let (mut graph, ()) = s.capture(|work| {
        let mut between = work.alloc::<u32>(LEN)?;
        work.copy(&x, &mut between)?;
        work.launch(add, Grid::covering(LEN), (&mut between, 1u32, Len))?;
        work.copy(&between, &mut x)
    })?;
    for _ in 0..n % 40 {
        graph.replay(&mut s)?;
    }
    drop(s.read_async(&x)?);
    s.fill(&mut y, n)?;
    s.launch(add, Grid::covering(LEN), (&mut y, 5u32, Len))?;
    if n.is_multiple_of(3) {
        // The warm-up ran, the recording did not.
        let expected = n + 1 + n % 40;
        assert!(s.read(&x)?.iter().all(|value| *value == expected));
        assert!(s.read(&y)?.iter().all(|value| *value == n + 5));
    }
    if n.is_multiple_of(5) {
        graph.replay(&mut s)?;
    }
    // The graph goes with a replay in flight, and so do the buffers.
    Ok(())
}

/// Whatever is in flight when a device goes: everybody is told, nobody waits for ever, and until then nothing grows.
#[test]
fn a_busy_device_that_is_destroyed_tells_everybody_and_has_not_grown() {
    let resident = Resident::alone();
    let theirs = crate::program!();
    let device = theirs.open();
    let add = add(&device);
    let (destroyed, lost, rounds) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let live = || {
        for n in 0.. {
            match round(&device, &add, n) {
                Ok(()) => {
                    rounds.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => {
                    assert!(destroyed.load(Ordering::SeqCst), "{error}");
                    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
                    lost.fetch_add(1, Ordering::SeqCst);
                    return;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(live);
        }
        // On a busy machine even the first round may take long.
        let has_lived = eventually(|| rounds.load(Ordering::SeqCst) > 0);
        let started = Instant::now();
        // Once everything was as busy as it will be.
        std::thread::sleep(span() / 3);
        let before = resident.bytes();
        std::thread::sleep(span().saturating_sub(started.elapsed()));
        let after = resident.bytes();
        destroyed.store(true, Ordering::SeqCst);
        theirs.device.destroy();
        assert!(after < before + (128 << 20), "{before} bytes, and {after} bytes later");
        assert!(has_lived);
    });
    assert_eq!(lost.load(Ordering::SeqCst), 3);
    assert!(matches!(device.check(), Err(Error::DeviceLost { .. })));
    assert_eq!(theirs.errors(), 0);
    drop((add, device));
    // wgpu tells of a loss when somebody asks, which now is the program alone.
    assert!(eventually(|| {
        let _ = theirs.device.poll(dacapo::wgpu::wgpu::PollType::Poll);
        theirs.losses.load(Ordering::SeqCst) == 1
    }));
}
