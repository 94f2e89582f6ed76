//! Which nodes of a graph run one after the other, and which may run side by side.

#![forbid(unsafe_code)]

use std::ops::Range;

use crate::graph::flow::{Dag, Lists};

/// The nodes of a graph, cut into runs that one thread takes as a whole.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// Node numbers, run after run.
    pub(crate) order: Vec<u32>,
    pub(crate) runs: Vec<Run>,
    /// The runs that wait for nothing.
    pub(crate) first: Vec<u32>,
    successors: Vec<u32>,
}

/// Nodes that follow each other with nothing between: only the first waits for other runs, only the last is waited for.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) nodes: Range<usize>,
    /// How many runs it waits for.
    pub(crate) waits: u32,
    successors: Range<usize>,
}

impl Schedule {
    pub(crate) fn new(dag: &Dag) -> Self {
        let (nodes, succs) = (dag.len() as u32, dag.succs());
        let mut schedule = Schedule::default();
        let mut run_of = vec![0u32; dag.len()];
        let mut tails = Vec::new();
        for head in (0..nodes).filter(|n| !continues(dag, &succs, *n)) {
            let start = schedule.order.len();
            let mut at = head;
            loop {
                schedule.order.push(at);
                if let Some(run) = run_of.get_mut(at as usize) {
                    *run = schedule.runs.len() as u32;
                }
                match succs.list(at) {
                    [next] if continues(dag, &succs, *next) => at = *next,
                    _ => break,
                }
            }
            tails.push(at);
            let waits = dag.preds(head).len() as u32;
            if waits == 0 {
                schedule.first.push(schedule.runs.len() as u32);
            }
            schedule.runs.push(Run { nodes: start..schedule.order.len(), waits, successors: 0..0 });
        }
        for (run, tail) in schedule.runs.iter_mut().zip(tails) {
            let start = schedule.successors.len();
            let heads = succs.list(tail).iter().filter_map(|head| run_of.get(*head as usize).copied());
            schedule.successors.extend(heads);
            run.successors = start..schedule.successors.len();
        }
        schedule
    }

    /// The nodes of a run, in order.
    pub(crate) fn nodes(&self, run: &Run) -> &[u32] {
        self.order.get(run.nodes.clone()).unwrap_or(&[])
    }

    /// The runs that wait for this one.
    pub(crate) fn successors(&self, run: &Run) -> &[u32] {
        self.successors.get(run.successors.clone()).unwrap_or(&[])
    }
}

/// Whether `n` belongs to the run of its one predecessor, which has no other successor.
fn continues(dag: &Dag, succs: &Lists, n: u32) -> bool {
    matches!(dag.preds(n), [pred] if succs.list(*pred).len() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::graph::flow::{Footprint, Use, data_flow, sequential};

    fn schedule(nodes: &[&[(u32, Access)]]) -> Schedule {
        let uses: Vec<Vec<Use>> = nodes
            .iter()
            .map(|uses| {
                uses.iter()
                    .map(|(alloc, access)| Use { alloc: *alloc, start: 0, end: 4, access: *access })
                    .collect()
            })
            .collect();
        let footprints = uses.iter().map(|uses| Footprint { uses, barrier: false });
        Schedule::new(&data_flow(footprints, &uses.concat(), 4).finish())
    }

    #[test]
    fn a_chain_is_one_run() {
        let schedule = Schedule::new(&sequential(1000).finish());
        assert_eq!(schedule.runs.len(), 1);
        assert_eq!(schedule.order, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn a_fork_and_a_join_are_four_runs() {
        use Access::{Read, Write};
        let schedule = schedule(&[
            &[(0, Write)],
            &[(0, Read), (1, Write)],
            &[(0, Read), (2, Write)],
            &[(1, Read), (2, Read), (3, Write)],
        ]);
        let waits: Vec<u32> = schedule.runs.iter().map(|run| run.waits).collect();
        assert_eq!(waits, [0, 1, 1, 2]);
        assert_eq!(schedule.successors(&schedule.runs[0]), [1, 2]);
        assert_eq!(schedule.successors(&schedule.runs[2]), [3]);
        assert_eq!(schedule.first, [0]);
    }
}
