//! Fresh memory of graphs: arenas and what shares bytes inside them, buffers that outlive their recording, arenas that
//! two graphs share.

use super::kernels;
use super::planted::{CANARY, Ground, SIZES, clean, plant_in_window};
use super::support::*;
use dacapo::{Error, Zeroing};

/// How new buffers are asked for.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Zeroed,
    Scratch,
}

impl Ask {
    fn alloc(self, w: &mut impl Enqueue<Subject>, size: usize) -> dacapo::Result<Buffer<u8>> {
        match self {
            Ask::Zeroed => w.alloc(size),
            Ask::Scratch => w.alloc_scratch(size),
        }
    }
}

/// What must read as zero on a device, and how it is asked for: what was asked to be zero, and everything where the
/// device always zeroes.
const CLEAN: [(Zeroing, Ask); 3] =
    [(Zeroing::OnRequest, Ask::Zeroed), (Zeroing::Always, Ask::Zeroed), (Zeroing::Always, Ask::Scratch)];

/// Planned into bytes that an earlier temporary of the same graph filled, and that the replay before left behind.
#[test]
fn a_temporary_reads_as_zero_in_bytes_that_others_used_before_it_on_every_replay() {
    for (zeroing, ask) in CLEAN {
        let Some(mut ground) = Ground::new(zeroing) else { return };
        for size in SIZES {
            let Ground { streams: [s, other], copy, .. } = &mut ground;
            let mut outs = [s.alloc_scratch::<u8>(size).unwrap(), s.alloc_scratch::<u8>(size).unwrap()];
            let step = |w: &mut Work<'_>| {
                for out in &mut outs {
                    let tmp = ask.alloc(w, size)?;
                    w.launch(copy, Grid::covering(size), (&tmp, &mut *out, Len, Len))?;
                    let mut dirty = w.alloc_scratch::<u8>(size)?;
                    w.fill(&mut dirty, CANARY)?;
                    // Ordered after everything before it, so that what follows may have these bytes.
                    w.host_call(|| {})?;
                }
                Ok(())
            };
            let (mut graph, ()) = s.record(step).unwrap();
            assert!(graph.arena_bytes() < 4 * size.next_multiple_of(256), "temporaries share bytes");
            for _ in 0..3 {
                graph.replay(s).unwrap();
                for out in &mut outs {
                    assert!(clean(&s.read(&*out).unwrap()), "{size} bytes, {zeroing:?}, {ask:?}");
                    other.fill(out, CANARY).unwrap();
                }
            }
        }
    }
}

/// Bytes of their own, from the pool that the canary was in.
#[test]
fn a_buffer_that_outlives_its_recording_reads_as_zero_and_before_the_first_replay_not_at_all() {
    for (zeroing, ask) in CLEAN {
        let Some(mut ground) = Ground::new(zeroing) else { return };
        for size in SIZES {
            let Ground { streams: [s, other], .. } = &mut ground;
            let (mut graph, mut born) = s.record(|w| ask.alloc(w, size)).unwrap();
            assert!(matches!(s.read(&born), Err(Error::NotReplayed)), "{size}");
            for _ in 0..2 {
                graph.replay(other).unwrap();
                assert!(clean(&s.read(&born).unwrap()), "{size} bytes, {zeroing:?}, {ask:?}");
                s.fill(&mut born, CANARY).unwrap();
            }
        }
    }
}

/// A zeroing may be left out where the whole buffer is written before it is read, and only there.
#[test]
fn a_recorded_buffer_that_is_written_in_part_shows_zeros_elsewhere() {
    for (zeroing, ask) in CLEAN {
        let Some(mut ground) = Ground::new(zeroing) else { return };
        for size in SIZES.into_iter().filter(|size| *size > 2) {
            let Ground { streams: [s, _], copy, .. } = &mut ground;
            let mut out = s.alloc_scratch::<u8>(size).unwrap();
            let mut record = |s: &mut Stream, parts: &[std::ops::Range<usize>]| {
                let step = |w: &mut Work<'_>| {
                    let mut dirty = w.alloc_scratch::<u8>(size)?;
                    w.fill(&mut dirty, CANARY)?;
                    w.host_call(|| {})?;
                    let mut tmp = ask.alloc(w, size)?;
                    for part in parts {
                        w.fill(tmp.slice_mut(part.clone())?, 7)?;
                    }
                    w.launch(copy, Grid::covering(size), (&tmp, &mut out, Len, Len))
                };
                let (mut graph, ()) = s.record(step).unwrap();
                (0..2).for_each(|_| drop(graph.replay(s).unwrap()));
                s.read(&out).unwrap()
            };
            for hole in [0, size / 2, size - 1] {
                let found = record(s, &[0..hole, hole + 1..size]);
                let mut expected = vec![7; size];
                expected[hole] = 0;
                assert!(found == expected, "{size} bytes but for {hole}, {zeroing:?}, {ask:?}");
            }
            assert!(record(s, &[0..size / 2, size / 2..size]) == vec![7; size]);
        }
    }
}

/// An arena that another graph's replays fill is nobody's fresh memory by itself.
#[test]
fn temporaries_in_a_shared_arena_read_as_zero_after_every_replay_of_the_other_graph() {
    for (zeroing, ask) in CLEAN {
        let Some(mut ground) = Ground::new(zeroing) else { return };
        let Ground { streams: [s, other], copy, .. } = &mut ground;
        let (mut dirty, _) = s.record(|w| plant_in_window(w, copy)).unwrap();
        for size in SIZES {
            let mut out = s.alloc_scratch::<u8>(size).unwrap();
            let sharing = CaptureOptions::new().share_arena(&dirty);
            let step = |w: &mut Work<'_>| {
                let tmp = ask.alloc(w, size)?;
                w.launch(copy, Grid::covering(size), (&tmp, &mut out, Len, Len))
            };
            let held = other.device().memory_usage().in_use;
            let (mut graph, ()) = s.record_with(sharing, step).unwrap();
            assert_eq!(other.device().memory_usage().in_use, held, "the arena is the other graph's");
            for _ in 0..2 {
                dirty.replay(other).unwrap();
                graph.replay(s).unwrap();
                assert!(clean(&s.read(&out).unwrap()), "{size} bytes, {zeroing:?}, {ask:?}");
            }
        }
    }
}

/// A child's temporaries lie in the child's arena, which the child's own replays use as well.
#[test]
fn an_embedded_graphs_temporaries_read_as_zero() {
    for (zeroing, ask) in CLEAN {
        let Some(mut ground) = Ground::new(zeroing) else { return };
        for size in SIZES {
            let Ground { streams: [s, _], copy, .. } = &mut ground;
            let mut out = s.alloc_scratch::<u8>(size).unwrap();
            let step = |w: &mut Work<'_>| {
                let mut tmp = ask.alloc(w, size)?;
                w.launch(copy, Grid::covering(size), (&tmp, &mut out, Len, Len))?;
                w.fill(&mut tmp, CANARY)
            };
            let (mut child, ()) = s.record(step).unwrap();
            let embed = |w: &mut Work<'_>| {
                w.embed(&mut child)?;
                w.embed(&mut child)
            };
            let (mut parent, ()) = s.record(embed).unwrap();
            for _ in 0..2 {
                parent.replay(s).unwrap();
                assert!(clean(&s.read(&out).unwrap()), "{size} bytes, {zeroing:?}, {ask:?}");
                child.replay(s).unwrap();
                assert!(clean(&s.read(&out).unwrap()), "{size} bytes, {zeroing:?}, {ask:?}");
            }
        }
    }
}

/// A kernel that breaks its promise to write all of its output shows old bytes, unless the device always zeroes.
#[test]
fn under_always_not_even_a_kernel_that_leaves_its_output_unwritten_shows_old_bytes() {
    for ask in [Ask::Zeroed, Ask::Scratch] {
        let Some(mut ground) = Ground::new(Zeroing::Always) else { return };
        let lazy = kernels::lazy().load(&ground.device).unwrap();
        for size in SIZES {
            let Ground { streams: [s, _], copy, .. } = &mut ground;
            let mut out = s.alloc_scratch::<u8>(size).unwrap();
            let step = |w: &mut Work<'_>| {
                let mut dirty = w.alloc_scratch::<u8>(size)?;
                w.fill(&mut dirty, CANARY)?;
                w.host_call(|| {})?;
                let mut tmp = ask.alloc(w, size)?;
                w.launch(&lazy, Grid::covering(size), (&mut tmp, Len))?;
                w.launch(copy, Grid::covering(size), (&tmp, &mut out, Len, Len))?;
                let mut born = ask.alloc(w, size)?;
                w.launch(&lazy, Grid::covering(size), (&mut born, Len))?;
                Ok(born)
            };
            let (mut graph, born) = s.record(step).unwrap();
            (0..2).for_each(|_| drop(graph.replay(s).unwrap()));
            for buffer in [&out, &born] {
                let found = s.read(buffer).unwrap();
                assert!(found[0] == 1 && clean(&found[1..]), "{size} bytes, {ask:?}");
            }
        }
    }
}

/// Its zeroing is a node of the graph, and so a kernel outside that ran before any replay found old bytes.
#[test]
fn under_always_a_kernel_that_leaves_its_output_unwritten_shows_no_old_bytes_before_the_first_replay() {
    for ask in [Ask::Zeroed, Ask::Scratch] {
        let Some(mut ground) = Ground::new(Zeroing::Always) else { return };
        let lazy = kernels::lazy().load(&ground.device).unwrap();
        for size in SIZES {
            let [s, other] = &mut ground.streams;
            let (mut graph, mut born) = s.record(|w| ask.alloc(w, size)).unwrap();
            assert!(matches!(s.read(&born), Err(Error::NotReplayed)), "{size} bytes, {ask:?}");
            other.launch(&lazy, Grid::covering(size), (&mut born, Len)).unwrap();
            let found = other.read(&born).unwrap();
            assert!(found[0] == 1 && clean(&found[1..]), "{size} bytes, {ask:?}");
            graph.replay(s).unwrap();
            assert!(clean(&s.read(&born).unwrap()), "{size} bytes, {ask:?}");
        }
    }
}

/// What a recording that never became a graph was to hold is an error, whatever the bytes would have been.
#[test]
fn a_buffer_of_a_recording_that_was_given_up_shows_nothing() {
    let Some(mut ground) = Ground::new(Zeroing::OnRequest) else { return };
    let Ground { streams: [s, other], .. } = &mut ground;
    let mut born = Vec::new();
    let gave_up = s.record(|w| {
        born = SIZES.map(|size| w.alloc::<u8>(size)).into_iter().collect::<Result<Vec<_>, _>>()?;
        Err::<(), _>(Error::step("given up"))
    });
    assert!(gave_up.is_err());
    for buffer in &born {
        assert!(matches!(other.read(buffer), Err(Error::NeverSealed { .. })));
    }
    assert_eq!(born.len(), SIZES.len());
}
