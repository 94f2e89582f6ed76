//! What a driver that refuses to seal or to replay leaves behind.

use dacapo::host::Severity;
use dacapo::prelude::*;
use dacapo::{Call, Error};

/// What fails after the survivors' bytes were reserved must give them back.
#[test]
fn a_seal_that_the_driver_refuses_holds_on_to_no_bytes() {
    let device = Device::host().unwrap();
    let mut s = device.stream().unwrap();
    let before = device.memory_usage().in_use;
    device.faults().fail_nth(Call::Seal, 1, Severity::Call);
    let mut kept = Vec::new();
    let outcome = s.record(|work| {
        kept.push(work.alloc::<u8>(5000)?);
        let mut t = work.alloc_scratch::<u8>(3000)?;
        work.fill(&mut t, 1)
    });
    assert!(matches!(outcome, Err(Error::Driver { call: Call::Seal, .. })), "{outcome:?}");
    assert_eq!(device.memory_usage().in_use, before);
    assert!(matches!(s.read(&kept[0]), Err(Error::NeverSealed { .. })));
}

/// Nobody outside a graph can write its temporaries, so a taint that stayed on one would end the graph for good.
#[test]
fn a_refused_or_failed_replay_leaves_no_taint_on_temporaries() {
    let device = Device::host().unwrap();
    let mut s = device.stream().unwrap();
    let touch = Program::<(InOut<u32>,)>::new("touch").host(|(t,), _| t.fill(7)).load(&device).unwrap();
    let mut y = s.alloc::<u32>(4).unwrap();
    let mut record = |s: &mut Stream| {
        s.record(|work| {
            let mut t = work.alloc_scratch::<u32>(4)?;
            work.launch(&touch, Grid::covering(4), (&mut t,))?;
            work.copy(&t, &mut y)
        })
        .unwrap()
        .0
    };
    let mut graph = record(&mut s);
    let (mut parent, ()) = s.record(|work| work.embed(&mut graph)).unwrap();
    for (call, graph) in [(Call::Replay, &mut graph), (Call::Execute, &mut parent)] {
        s.sync().unwrap();
        device.faults().fail_nth(call, 1, Severity::Call);
        let failed = graph.replay(&mut s).and_then(|ticket| ticket.wait());
        assert!(matches!(failed, Err(Error::Driver { .. })), "{call}: {failed:?}");
        let _ = s.sync();
        graph.replay(&mut s).unwrap().wait().unwrap();
    }
    drop((graph, parent));
    assert_eq!(s.read(&y).unwrap(), [7; 4]);
}
