//! Captured memory and code against replays, where only the host can look: cases LIFE-04 and 06.

mod support;

use std::sync::Arc;

use dacapo::host::{HostOptions, UnwrittenReads};
use dacapo::prelude::*;
use dacapo::{DeviceOptions, Error};
use support::{LEN, all, filled, grid, stepped, stepped_with};

/// (c) What was never written reads as an error that says so, or as what is documented: never as what lay there.
#[test]
fn life_04_an_output_read_before_any_replay_is_what_it_was_or_an_error() {
    let strict = HostOptions::new().unwritten_reads(UnwrittenReads::Refuse);
    let (device, _stepper, k) = stepped_with(DeviceOptions::new().max_streams(1).backend(strict));
    let mut s = device.stream().unwrap();
    drop(filled(&mut s, -1.0));
    let input = filled(&mut s, 5.0);
    let (mut zeroed, mut scratch) = (s.alloc::<f32>(LEN).unwrap(), s.alloc_scratch::<f32>(LEN).unwrap());
    let (mut graph, born) = s
        .record(|w| {
            let mut born = w.alloc_scratch::<f32>(LEN)?;
            w.launch(&k.add1, grid(), (&input, &mut zeroed))?;
            w.launch(&k.add1, grid(), (&input, &mut scratch))?;
            w.launch(&k.add1, grid(), (&input, &mut born))?;
            Ok(born)
        })
        .unwrap();
    assert!(all(&s.read(&zeroed).unwrap(), 0.0));
    assert!(matches!(s.read(&scratch), Err(Error::ReadBeforeWrite)));
    assert!(matches!(s.read(&born), Err(Error::NotReplayed)));
    graph.replay(&mut s).unwrap();
    for output in [&zeroed, &scratch, &born] {
        assert!(all(&s.read(output).unwrap(), 6.0));
    }
}

/// A program whose code holds `token`, so that a test can see whether the code is still there.
fn holding(name: &str, token: Arc<()>) -> Program<(In<f32>, Out<f32>)> {
    Program::<(In<f32>, Out<f32>)>::new(name).host(move |(x, y), _| {
        let _held = &token;
        y.iter_mut().zip(x).for_each(|(y, x)| *y = x + 1.0);
    })
}

/// Code unloaded under a graph makes the replay jump to freed memory; code that a graph keeps for ever is a leak.
#[test]
fn life_06_a_graph_keeps_the_code_that_it_launches_until_its_last_replay_is_done() {
    let (device, stepper, _) = stepped(1);
    let mut s = device.stream().unwrap();
    let input = filled(&mut s, 1.0);
    let mut output = s.alloc::<f32>(LEN).unwrap();
    let token = Arc::new(());
    let code = Arc::downgrade(&token);
    let kernel = holding("k1", token).load(&device).unwrap();
    let (mut graph, ()) = s.record(|w| w.launch(&kernel, grid(), (&input, &mut output))).unwrap();
    drop(kernel);
    for n in 0..500 {
        drop(holding(&format!("other {n}"), Arc::new(())).load(&device).unwrap());
    }
    graph.replay(&mut s).unwrap();
    assert!(all(&s.read(&output).unwrap(), 2.0));

    graph.replay(&mut s).unwrap();
    drop(graph);
    assert!(code.upgrade().is_some(), "its replay is in flight");
    stepper.run_all();
    assert!(code.upgrade().is_none(), "nothing needs it any more");
}

/// Unloading is a driver call that some captures do not survive.
#[test]
fn life_06_the_last_handle_of_an_unrelated_kernel_may_go_inside_a_window() {
    let (device, _stepper, k) = stepped(1);
    let mut s = device.stream().unwrap();
    let input = filled(&mut s, 1.0);
    let mut output = s.alloc::<f32>(LEN).unwrap();
    let token = Arc::new(());
    let code = Arc::downgrade(&token);
    let unrelated = holding("unrelated", token).load(&device).unwrap();

    let mut s = s.prepare().unwrap().begin().unwrap();
    s.launch(&k.add1, grid(), (&input, &mut output)).unwrap();
    drop(unrelated);
    assert!(code.upgrade().is_none());
    s.launch(&k.inc, grid(), (&mut output,)).unwrap();
    let (mut graph, mut s) = s.end().unwrap();
    assert_eq!(graph.nodes(), 2);
    graph.replay(&mut s).unwrap();
    assert!(all(&s.read(&output).unwrap(), 3.0));
}
