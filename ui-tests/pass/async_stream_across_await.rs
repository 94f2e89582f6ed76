//! A task may hold its stream, graph and buffers while it awaits, and move from thread to thread.

use dacapo::prelude::*;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};

async fn frames(device: Device) -> dacapo::Result<Vec<f32>> {
    let mut stream = device.stream()?;
    let mut x = stream.alloc::<f32>(4)?;
    let add = Program::<(InOut<f32>,)>::new("add")
        .host(|(x,), _| x.iter_mut().for_each(|x| *x += 1.0))
        .load(&device)?;
    let mut recording = stream.prepare()?.begin()?;
    std::future::ready(()).await;
    recording.launch(&add, Grid::covering(4), (&mut x,))?;
    let (mut graph, mut stream) = recording.end()?;
    for _ in 0..2 {
        graph.replay(&mut stream)?;
        stream.read_async(&x)?.await?;
    }
    stream.read_async(&x)?.await
}

/// As the executors of the ecosystem take a task: `Send`, and with nothing borrowed.
fn spawn<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    thread::spawn(move || {
        let mut task: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(task);
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        loop {
            match task.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(value) => return value,
                Poll::Pending => thread::park(),
            }
        }
    })
}

pub fn main() -> dacapo::Result<()> {
    let task = spawn(frames(Device::host()?));
    assert_eq!(task.join().unwrap()?, [2.0; 4]);
    Ok(())
}
