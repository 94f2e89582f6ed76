//! A server addresses streams by id, and learns at run time when a request is out of order.

use dacapo::prelude::*;
use dacapo::{AnyStream, Error, PhaseName, Result, StreamId};
use std::collections::HashMap;

enum Request {
    Prepare,
    Begin,
    Add(f32),
    End,
    Replay,
    Read,
}

enum Reply {
    Done,
    Elements(Vec<f32>),
}

struct Session {
    stream: AnyStream,
    x: Buffer<f32>,
    graph: Option<Graph>,
}

struct Server {
    add: Kernel<(InOut<f32>, f32)>,
    sessions: HashMap<StreamId, Session>,
}

impl Server {
    fn new(device: &Device) -> Result<Self> {
        let add = Program::<(InOut<f32>, f32)>::new("add")
            .host(|(x, a), _| x.iter_mut().for_each(|x| *x += a))
            .load(device)?;
        Ok(Server { add, sessions: HashMap::new() })
    }

    fn open(&mut self, device: &Device) -> Result<StreamId> {
        let mut stream = device.stream()?;
        let (id, x) = (stream.id(), stream.alloc(2)?);
        self.sessions.insert(id, Session { stream: stream.into(), x, graph: None });
        Ok(id)
    }

    fn serve(&mut self, id: StreamId, request: Request) -> Result<Reply> {
        let Some(Session { stream, x, graph }) = self.sessions.get_mut(&id) else {
            return Err(Error::step("no such session"));
        };
        match request {
            Request::Prepare => stream.prepare()?,
            Request::Begin => stream.begin()?,
            Request::Add(a) => stream.launch(&self.add, Grid::covering(x.len()), (x, a))?,
            Request::End => *graph = Some(stream.end()?),
            Request::Replay => {
                if let Some(graph) = graph {
                    graph.replay(stream)?;
                }
            }
            Request::Read => return stream.read(&*x).map(Reply::Elements),
        }
        Ok(Reply::Done)
    }
}

pub fn main() -> Result<()> {
    let device = Device::host()?;
    let mut server = Server::new(&device)?;
    let id = server.open(&device)?;
    let refused = server.serve(id, Request::Begin);
    assert!(matches!(refused, Err(Error::WrongPhase { is: PhaseName::NoCapture, .. })));
    for request in [Request::Prepare, Request::Begin, Request::Add(1.5)] {
        server.serve(id, request)?;
    }
    let refused = server.serve(id, Request::Read);
    assert!(matches!(refused, Err(Error::WrongPhase { is: PhaseName::Recording, .. })));
    for request in [Request::End, Request::Replay, Request::Replay] {
        server.serve(id, request)?;
    }
    assert!(matches!(server.serve(id, Request::Read)?, Reply::Elements(x) if x == [3.0; 2]));
    Ok(())
}
