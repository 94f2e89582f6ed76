//! The host device's own threads, options and faults.

use std::future::Future;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use dacapo::host::{Faults, HostOptions, Severity};
use dacapo::prelude::*;
use dacapo::{Call, DeviceOptions, Error};
use rayon::iter::{IntoParallelIterator, ParallelIterator};

/// Far longer than anything here takes: only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs `body` on a thread of its own; a hang is a failure that says so.
fn never_hangs(body: impl FnOnce() + Send + 'static) {
    let (done, finished) = channel();
    let body = thread::spawn(move || {
        body();
        let _ = done.send(());
    });
    match finished.recv_timeout(PATIENCE) {
        Err(RecvTimeoutError::Timeout) => panic!("it hangs"),
        Ok(()) | Err(RecvTimeoutError::Disconnected) => {}
    }
    if let Err(panic) = body.join() {
        std::panic::resume_unwind(panic);
    }
}

fn device(slots: usize, host: HostOptions) -> Device {
    Device::open(DeviceOptions::new().max_streams(slots).backend(host)).unwrap()
}

fn rows(device: &Device) -> Kernel<(Out<u32>,)> {
    let rows = Program::<(Out<u32>,)>::new("rows");
    let rows = rows.host_chunks(|(out,), chunk| {
        out.iter_mut().zip(chunk.rows()).for_each(|(out, row)| *out = row as u32);
    });
    rows.load(device).unwrap()
}

/// Launches a kernel in chunks and waits for it, from as many tasks as keep every thread of a pool waiting.
fn chunks_from_every_thread_of_a_pool(device: &Device) {
    const LEN: usize = 100;
    let kernel = rows(device);
    (0..64).into_par_iter().for_each(|_| {
        let mut stream = device.stream().unwrap();
        let mut out = stream.alloc::<u32>(LEN).unwrap();
        stream.launch(&kernel, Grid::covering(LEN), (&mut out,)).unwrap();
        assert_eq!(stream.read(&out).unwrap(), (0..LEN as u32).collect::<Vec<_>>());
    });
}

/// Chunks that ran on rayon's global pool would wait there for the very tasks that wait for them.
#[test]
fn chunks_run_while_every_thread_of_the_global_pool_waits_for_them() {
    never_hangs(|| chunks_from_every_thread_of_a_pool(&device(8, HostOptions::new().threads(2))));
}

/// The one thread of the slot is enough.
#[test]
fn chunks_run_on_the_slot_of_a_device_with_one_thread() {
    never_hangs(|| chunks_from_every_thread_of_a_pool(&device(8, HostOptions::new().threads(1))));
}

/// A worker of a pool that waits for another pool takes on a task of its own in the meantime, which would find itself
/// inside the kernel, and be refused everything.
#[test]
fn chunks_of_a_stepped_device_run_on_the_thread_that_waits() {
    never_hangs(|| {
        let host = HostOptions::new().threads(2);
        let options = DeviceOptions::new().max_streams(1).backend(host);
        let (device, _stepper) = Device::<Host>::stepped(options).unwrap();
        chunks_from_every_thread_of_a_pool(&device);
    });
}

/// A slot that helped others out while it replays would be stuck in their callbacks.
#[test]
fn a_replay_is_not_held_up_by_a_blocked_callback_of_an_unrelated_graph() {
    never_hangs(|| {
        let device = device(2, HostOptions::new().threads(2));
        let mut streams = [device.stream().unwrap(), device.stream().unwrap()];
        let (open, gate) = channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let (enter, entered) = channel();
        let (mut blocked, ()) = streams[1]
            .record(|work| {
                (0..4).try_for_each(|_| {
                    let (gate, enter) = (gate.clone(), enter.clone());
                    work.host_call_with(Touches::new(), move || {
                        let _ = enter.send(());
                        // Until the gate opens, which is when its sender is dropped.
                        let _ = gate.lock().unwrap().recv();
                    })
                })
            })
            .unwrap();
        let (mut x, mut y) = (streams[0].alloc::<u32>(8).unwrap(), streams[0].alloc::<u32>(8).unwrap());
        let (mut fills, ()) = streams[0]
            .record(|work| {
                work.fill(&mut x, 1)?;
                work.fill(&mut y, 2)
            })
            .unwrap();
        let late = blocked.replay(&mut streams[1]).unwrap();
        // Both threads that may run them are inside: the other two callbacks are what is next in the queue.
        (0..2).for_each(|_| entered.recv_timeout(PATIENCE).unwrap());
        let ticket = fills.replay(&mut streams[0]).unwrap();
        let outcome = ticket.wait_timeout(PATIENCE / 3);
        drop(open);
        outcome.unwrap();
        late.wait().unwrap();
        assert_eq!(streams[0].read(&y).unwrap(), [2; 8]);
    });
}

/// Two parts of a test may hold the device without knowing of each other.
#[test]
fn a_device_is_held_until_the_last_hold_ends() {
    never_hangs(|| {
        let (device, stepper) = Device::<Host>::stepped(DeviceOptions::new()).unwrap();
        let mut stream = device.stream().unwrap();
        let mut x = stream.alloc::<u32>(8).unwrap();
        let (mut graph, ()) = stream.record(|work| work.fill(&mut x, 1)).unwrap();
        let ticket = graph.replay(&mut stream).unwrap();
        let (first, second) = (stepper.hold(), stepper.hold());
        for hold in [first, second] {
            let error = ticket.wait_timeout(Duration::ZERO).unwrap_err();
            assert!(matches!(error, Error::Timeout { .. }), "{error}");
            drop(hold);
        }
        ticket.wait().unwrap();
    });
}

/// A device that half its queues were made for is given up whole.
#[test]
fn an_opening_that_fails_says_so_and_leaves_no_thread() {
    never_hangs(|| {
        let faults = Faults::default();
        faults.fail_nth(Call::Open, 60, Severity::Call);
        let host = HostOptions::new().faults(faults.clone());
        let options = || DeviceOptions::new().max_streams(64).backend(host.clone());
        let error = Device::open(options()).unwrap_err();
        assert!(matches!(error, Error::Driver { call: Call::Open, .. }), "{error}");
        assert_eq!(faults.count(Call::Open), 60);
        // No other test here opens a device with so many slots.
        while is_running("dacapo-slot-58") {
            thread::yield_now();
        }
        // The fault is over, and the next device finds the same counts.
        let device = Device::open(options()).unwrap();
        assert_eq!(device.faults().count(Call::Open), 60 + 64);
        // A thread takes its name once it runs.
        while cfg!(target_os = "linux") && !is_running("dacapo-slot-58") {
            thread::yield_now();
        }
    });
}

/// Whether a thread of this process has that name, as far as the system tells.
fn is_running(name: &str) -> bool {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return false };
    let names =
        threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    names.into_iter().any(|found| found.trim_end() == name)
}

/// A reader who outlives a lost device is told what became of it, not that somebody dropped it.
#[test]
fn a_pending_read_of_a_lost_stepped_device_is_told_of_the_loss() {
    let reason = |lost: bool| {
        let (device, stepper) = Device::<Host>::stepped(DeviceOptions::new()).unwrap();
        let mut stream = device.stream().unwrap();
        let mut x = stream.alloc::<u32>(8).unwrap();
        stepper.run_all();
        let read = stream.read_async(&x).unwrap();
        if lost {
            device.faults().fail_nth(Call::Fill, 1, Severity::Sticky);
            stream.fill(&mut x, 1).unwrap_err();
        }
        drop((x, stream, device));
        outcome(read)
    };
    never_hangs(move || {
        let error = reason(true).unwrap_err();
        assert!(matches!(error, Error::DeviceLost { .. }), "{error}");
        let error = reason(false).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    });
}

/// Waits for a read without running anything.
fn outcome(read: dacapo::ReadFuture<u32>) -> dacapo::Result<Vec<u32>> {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut read, mut context) = (std::pin::pin!(read), Context::from_waker(&waker));
    loop {
        match read.as_mut().poll(&mut context) {
            Poll::Ready(outcome) => return outcome,
            Poll::Pending => thread::park(),
        }
    }
}
