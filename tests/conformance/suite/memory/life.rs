//! Captured memory, captured code and host memory against replays: cases LIFE-01, 03, 04, 06 and HOST-02.

use super::support::*;
use super::zoo;
use dacapo::Error;

/// A pool that forgets what a graph recorded hands the intermediate's bytes out again, and every replay then
/// overwrites somebody's new tensor, while its own output stays right.
#[test]
fn life_01_an_intermediate_that_nobody_holds_is_handed_out_to_nobody() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let input = filled(&mut s, 3.0);
    let mut output = s.alloc::<f32>(LEN).unwrap();
    let baseline = Baseline::take(&mut s);

    let mut s = s.prepare().unwrap();
    let mut tmp = s.alloc::<f32>(LEN).unwrap();
    s.launch(&k.add1, grid(), (&input, &mut tmp, Len, Len)).unwrap();
    s.launch(&k.mul2, grid(), (&tmp, &mut output, Len, Len)).unwrap();
    let mut s = s.begin().unwrap();
    s.launch(&k.add1, grid(), (&input, &mut tmp, Len, Len)).unwrap();
    s.launch(&k.mul2, grid(), (&tmp, &mut output, Len, Len)).unwrap();
    drop(tmp);
    let (mut graph, mut s) = s.end().unwrap();

    let sentinels = Sentinels::post(&mut s);
    for _ in 0..2 {
        graph.replay(&mut s).unwrap();
        assert!(all(&s.read(&output).unwrap(), 8.0));
        assert!(sentinels.are_intact(&mut s));
    }
    drop((graph, sentinels));
    assert!(baseline.returns(&mut s), "{:?}", device.memory_usage());
}

/// The same for an intermediate that the recording itself made: it lies in the graph's arena, where no pool looks.
#[test]
fn life_01_an_intermediate_born_in_the_recording_is_handed_out_to_nobody() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let input = filled(&mut s, 3.0);
    let mut output = s.alloc::<f32>(LEN).unwrap();
    let baseline = Baseline::take(&mut s);

    let (mut graph, ()) = s
        .capture(|w| {
            let mut tmp = w.alloc::<f32>(LEN)?;
            w.launch(&k.add1, grid(), (&input, &mut tmp, Len, Len))?;
            w.launch(&k.mul2, grid(), (&tmp, &mut output, Len, Len))
        })
        .unwrap();
    let sentinels = Sentinels::post(&mut s);
    for _ in 0..2 {
        graph.replay(&mut s).unwrap();
        assert!(all(&s.read(&output).unwrap(), 8.0));
        assert!(sentinels.are_intact(&mut s));
    }
    drop((graph, sentinels));
    assert!(baseline.returns(&mut s), "{:?}", device.memory_usage());
}

/// A cleanup that ignores pins frees pages under a graph, and one that renumbers pages makes older handles point to
/// the wrong one.
#[test]
fn life_03_a_cleanup_or_a_compaction_between_replays_spoils_neither_a_pinned_page_nor_a_handle() {
    let Some((device, k)) = working(2) else { return };
    let (mut s, mut other) = (device.stream().unwrap(), device.stream().unwrap());
    let large = Grid::covering(LARGE);
    let mut output = s.alloc::<f32>(LARGE).unwrap();
    let baseline = Baseline::take(&mut s);
    let early = filled(&mut s, 4.0);
    let mut input = s.alloc::<f32>(LARGE).unwrap();
    s.fill(&mut input, 3.0).unwrap();
    let mut small = filled(&mut s, 5.0);
    let (mut graph, born) = s
        .record(|w| {
            let mut tmp = w.alloc::<f32>(LARGE)?;
            w.launch(&k.add1, large, (&input, &mut tmp, Len, Len))?;
            w.launch(&k.mul2, large, (&tmp, &mut output, Len, Len))?;
            w.launch(&k.inc, grid(), (&mut small, Len))?;
            let mut born = w.alloc::<f32>(LEN)?;
            w.copy(&small, &mut born)?;
            Ok(born)
        })
        .unwrap();
    drop((input, small));

    let mut moved = 0;
    for round in 0..200u16 {
        let held = filled(&mut s, f32::from(round));
        let spread: Vec<Buffer<u8>> = (8..21).map(|power| s.alloc((1 << power) + 3).unwrap()).collect();
        let elsewhere = filled(&mut other, 6.0);
        drop(spread);
        s.sync().unwrap();
        s.memory_cleanup().unwrap();
        // What no graph pins is moved together, under the handles.
        moved += if round % 2 == 0 { 0 } else { other.compact().unwrap().buffers };
        graph.replay(&mut s).unwrap();
        // All of the output once in a while, and its ends each time.
        let ends = [output.slice(..LEN).unwrap(), output.slice(LARGE - LEN..).unwrap()];
        let whole = output.slice(..).unwrap();
        for part in ends.into_iter().chain((round % 50 == 0).then_some(whole)) {
            assert!(all(&s.read(part).unwrap(), 8.0), "round {round}");
        }
        assert!(all(&s.read(&born).unwrap(), 6.0 + f32::from(round)), "round {round}");
        // Handles from before this cleanup, and from before all of them.
        assert!(all(&s.read(&held).unwrap(), f32::from(round)));
        assert!(all(&other.read(&early).unwrap(), 4.0) && all(&other.read(&elsewhere).unwrap(), 6.0));
    }
    assert!(moved > 0, "no compaction found anything to move");
    drop((early, born));
    s.memory_cleanup().unwrap();
    let with_graph = device.memory_usage().held;
    drop(graph);
    assert!(baseline.returns(&mut s), "{:?}", device.memory_usage());
    assert!(device.memory_usage().held < with_graph);
}

/// A cleanup that looks at handles and not at fences takes the pages from under a replay in flight.
#[test]
fn life_03_a_dropped_graphs_pages_stay_until_its_last_replay_is_done_whatever_is_cleaned_up() {
    let Some((device, k)) = working(2) else { return };
    let (mut s, mut other) = (device.stream().unwrap(), device.stream().unwrap());
    let large = Grid::covering(LARGE);
    let mut output = s.alloc::<f32>(LARGE).unwrap();
    let baseline = Baseline::take(&mut s);
    let mut input = s.alloc::<f32>(LARGE).unwrap();
    s.fill(&mut input, 3.0).unwrap();
    let (mut graph, ()) = s
        .record(|w| {
            let mut tmp = w.alloc::<f32>(LARGE)?;
            w.launch(&k.add1, large, (&input, &mut tmp, Len, Len))?;
            w.launch(&k.mul2, large, (&tmp, &mut output, Len, Len))
        })
        .unwrap();
    s.sync().unwrap();
    other.sync().unwrap();
    let held = device.memory_usage().held;
    let gate = Gate::close(&mut s);
    let ticket = graph.replay(&mut s).unwrap();
    drop((graph, input));
    for cleaning in [&mut s, &mut other] {
        cleaning.memory_cleanup().unwrap();
        assert_eq!(device.memory_usage().held, held, "the replay uses the arena and the input");
    }
    assert!(!ticket.is_done());
    gate.open();
    ticket.wait().unwrap();
    assert!(all(&other.read(&output).unwrap(), 8.0));
    assert!(baseline.returns(&mut s), "{:?}", device.memory_usage());
    device.check().unwrap();
}

/// (a) A graph of raw addresses dangles as soon as an input's handle is dropped.
#[test]
fn life_04_a_graph_keeps_the_inputs_whose_handles_are_gone() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let input = filled(&mut s, 5.0);
    let mut output = s.alloc::<f32>(LEN).unwrap();
    let (mut graph, ()) = s.record(|w| w.launch(&k.add1, grid(), (&input, &mut output, Len, Len))).unwrap();
    drop(input);
    let _sentinels = Sentinels::post(&mut s);
    graph.replay(&mut s).unwrap();
    assert!(all(&s.read(&output).unwrap(), 6.0));
}

/// (b) A safe write to an input must not race the replay that is reading it.
#[test]
fn life_04_a_write_to_an_input_waits_for_the_replay_in_flight() {
    let Some((device, k)) = working(2) else { return };
    let (mut s, mut other) = (device.stream().unwrap(), device.stream().unwrap());
    let mut input = filled(&mut s, 5.0);
    let mut output = s.alloc::<f32>(LEN).unwrap();
    let (mut graph, ()) = s.record(|w| w.launch(&k.add1, grid(), (&input, &mut output, Len, Len))).unwrap();
    s.sync().unwrap();

    let gate = Gate::close(&mut s);
    let ticket = graph.replay(&mut s).unwrap();
    other.write(&mut input, &[70.0; LEN]).unwrap();
    assert!(is_held_up(&mut other), "the write is behind the replay");
    assert!(!ticket.is_done());
    gate.open();
    assert!(all(&s.read(&output).unwrap(), 6.0));
    assert!(all(&s.read(&input).unwrap(), 70.0));
}

/// (c) What was never written reads as an error that says so, or as what is documented: never as what lay there.
#[test]
fn life_04_an_output_read_before_any_replay_is_what_it_was_or_an_error() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    drop(filled(&mut s, -1.0));
    let input = filled(&mut s, 5.0);
    let mut zeroed = s.alloc::<f32>(LEN).unwrap();
    let (mut graph, born) = s
        .record(|w| {
            let mut born = w.alloc_scratch::<f32>(LEN)?;
            w.launch(&k.add1, grid(), (&input, &mut zeroed, Len, Len))?;
            w.launch(&k.add1, grid(), (&input, &mut born, Len, Len))?;
            Ok(born)
        })
        .unwrap();
    assert!(all(&s.read(&zeroed).unwrap(), 0.0));
    assert!(matches!(s.read(&born), Err(Error::NotReplayed)));
    graph.replay(&mut s).unwrap();
    for output in [&zeroed, &born] {
        assert!(all(&s.read(output).unwrap(), 6.0));
    }
}

/// Code unloaded under a graph makes the replay jump to freed memory.
#[test]
fn life_06_a_graph_keeps_the_code_that_it_launches_whatever_else_is_loaded_and_unloaded() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let input = filled(&mut s, 1.0);
    let mut output = s.alloc::<f32>(LEN).unwrap();
    let (mut graph, ()) = s.record(|w| w.launch(&k.add1, grid(), (&input, &mut output, Len, Len))).unwrap();
    drop(k);
    for _ in 0..subject::MANY_LOADS {
        drop(zoo::add1::<f32>().load(&device).unwrap());
    }
    graph.replay(&mut s).unwrap();
    assert!(all(&s.read(&output).unwrap(), 2.0));

    let mut last = filled(&mut s, 0.0);
    let gate = Gate::close(&mut s);
    graph.replay(&mut s).unwrap();
    s.copy(&output, &mut last).unwrap();
    drop((graph, output));
    gate.open();
    assert!(all(&s.read(&last).unwrap(), 2.0), "its replay was in flight");
    for _ in 0..subject::MANY_LOADS / 10 {
        drop(zoo::mul2::<f32>().load(&device).unwrap());
    }
    device.check().unwrap();
}

/// Unloading is a driver call that some captures do not survive.
#[test]
fn life_06_the_last_handle_of_an_unrelated_kernel_may_go_inside_a_window() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let input = filled(&mut s, 1.0);
    let mut output = s.alloc::<f32>(LEN).unwrap();
    let unrelated = zoo::sum::<u32>().load(&device).unwrap();

    let mut s = s.prepare().unwrap().begin().unwrap();
    s.launch(&k.add1, grid(), (&input, &mut output, Len, Len)).unwrap();
    drop(unrelated);
    s.launch(&k.inc, grid(), (&mut output, Len)).unwrap();
    let (mut graph, mut s) = s.end().unwrap();
    assert_eq!(graph.nodes(), 2);
    graph.replay(&mut s).unwrap();
    assert!(all(&s.read(&output).unwrap(), 3.0));
}

/// An upload that reads the caller's memory when the device gets to it uploads whatever lies there by then.
#[test]
fn host_02_a_write_holds_the_bytes_as_they_were_at_its_call() {
    let Some(device) = device(1) else { return };
    let mut s = device.stream().unwrap();
    let (mut b, mut b2) = (s.alloc::<f32>(LEN).unwrap(), s.alloc::<f32>(LEN).unwrap());
    s.sync().unwrap();

    let gate = Gate::close(&mut s);
    let mut source = vec![1.0f32; LEN];
    s.write(&mut b, &source).unwrap();
    source.fill(-1.0);
    drop(source);
    let second = vec![2.0f32; LEN];
    s.write(&mut b2, &second).unwrap();
    drop(second);
    let (mut first, second) = (s.read_async(&b).unwrap(), s.read_async(&b2).unwrap());
    assert!(poll(&mut first).is_none(), "the gate is closed");
    gate.open();
    assert!(all(&block_on(first).unwrap(), 1.0));
    assert!(all(&block_on(second).unwrap(), 2.0));
}
