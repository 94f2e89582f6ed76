//! The algorithms of a graph against models that look at every byte and every pair of nodes.

#![forbid(unsafe_code)]

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use super::flow::{Dag, Footprint, Use, data_flow, sequential};
use super::plan::{Plan, Request, plan};
use super::reach::{Bounds, Builder, Reach};
use super::zeroing::needed;
use crate::access::Access;

const ALLOCS: u32 = 4;
const BYTES: u64 = 12;

/// A node as data: its uses, and whether it is a barrier.
type Recorded = (Vec<Use>, bool);

fn access() -> impl Strategy<Value = Access> {
    prop_oneof![Just(Access::Read), Just(Access::Write), Just(Access::ReadWrite)]
}

fn a_use() -> impl Strategy<Value = Use> {
    let range = prop_oneof![Just((0, BYTES)), (0..=BYTES, 0..=BYTES)];
    (0..ALLOCS, range, access()).prop_map(|(alloc, (a, b), access)| Use {
        alloc,
        start: a.min(b),
        end: a.max(b),
        access,
    })
}

/// Mostly writes of a few bytes, so that fills are often covered piece by piece.
fn covering(nodes: usize) -> impl Strategy<Value = Vec<Recorded>> {
    let access =
        prop_oneof![12 => Just(Access::Write), 1 => Just(Access::Read), 1 => Just(Access::ReadWrite)];
    let some_use = (0..ALLOCS, 0..BYTES, 0_u64..7, access).prop_map(|(alloc, start, bytes, access)| Use {
        alloc,
        start,
        end: (start + bytes).min(BYTES),
        access,
    });
    vec((vec(some_use, 0..4), Just(false)), 0..nodes)
}

fn recording(nodes: usize) -> impl Strategy<Value = Vec<Recorded>> {
    vec((vec(a_use(), 0..4), prop::bool::weighted(0.04)), 0..nodes)
}

fn footprints(nodes: &[Recorded]) -> impl Iterator<Item = Footprint<'_>> + Clone {
    nodes.iter().map(|(uses, barrier)| Footprint { uses, barrier: *barrier })
}

/// The edges of a recording and their order.
fn flow(nodes: &[Recorded]) -> Builder {
    let uses: Vec<Use> = nodes.iter().flat_map(|(uses, _)| uses.iter().copied()).collect();
    let allocs = uses.iter().map(|used| used.alloc + 1).max().unwrap_or(0);
    data_flow(footprints(nodes), &uses, allocs as usize)
}

/// Every pair of nodes, by what must come first: `order[a][b]`.
type Order = Vec<Vec<bool>>;

fn closed(mut order: Order) -> Order {
    for mid in 0..order.len() {
        let after_mid = order[mid].clone();
        for row in order.iter_mut().filter(|row| row[mid]) {
            for (known, more) in row.iter_mut().zip(&after_mid) {
                *known |= more;
            }
        }
    }
    order
}

/// Two nodes keep their order if some byte is used by both and written by one.
fn hazards(nodes: &[Recorded]) -> Order {
    let meet = |a: &Use, b: &Use| {
        a.alloc == b.alloc
            && a.access.conflicts(b.access)
            && (a.start..a.end).any(|byte| (b.start..b.end).contains(&byte))
    };
    let pair = |a: usize, b: usize| {
        let ((first, wall), (second, other_wall)) = (&nodes[a], &nodes[b]);
        a < b && (*wall || *other_wall || first.iter().any(|x| second.iter().any(|y| meet(x, y))))
    };
    closed((0..nodes.len()).map(|a| (0..nodes.len()).map(|b| pair(a, b)).collect()).collect())
}

fn edges(dag: &Dag) -> Order {
    let mut order = vec![vec![false; dag.len()]; dag.len()];
    for n in 0..dag.len() as u32 {
        for p in dag.preds(n) {
            order[*p as usize][n as usize] = true;
        }
    }
    order
}

fn answers(reach: &Reach, nodes: usize) -> Order {
    let all = 0..nodes as u32;
    all.clone().map(|a| all.clone().map(|b| reach.happens_before(a, b)).collect()).collect()
}

/// A predecessor that comes before another predecessor.
fn redundant_edge(dag: &Dag, order: &Order) -> Option<(u32, u32)> {
    (0..dag.len() as u32).find_map(|n| {
        let preds = dag.preds(n);
        let implied = |p: &&u32| preds.iter().any(|q| order[**p as usize][*q as usize]);
        preds.iter().find(implied).map(|p| (*p, n))
    })
}

/// What every node was told to follow; `None` is a barrier.
fn predecessors() -> impl Strategy<Value = Vec<Option<Vec<u32>>>> {
    let node = prop_oneof![
        8 => vec(1_u32..8, 0..4),
        2 => vec(1_u32..80, 0..6),
    ];
    vec(prop::option::weighted(0.98, node), 0..90).prop_map(|nodes| {
        let near = |(n, back): (usize, Option<Vec<u32>>)| {
            let mut preds: Vec<u32> =
                back?.into_iter().filter_map(|steps| (n as u32).checked_sub(steps)).collect();
            preds.sort_unstable();
            preds.dedup();
            Some(preds)
        };
        nodes.into_iter().enumerate().map(near).collect()
    })
}

/// Builds an order within `bounds`; gives it with the edges that it kept, and the true order.
fn built(nodes: &[Option<Vec<u32>>], bounds: Bounds) -> (Builder, Order, Order) {
    let mut told = vec![vec![false; nodes.len()]; nodes.len()];
    let mut kept = told.clone();
    let mut builder = Builder::bounded(0, bounds);
    let mut barrier = 0;
    for (n, preds) in nodes.iter().enumerate() {
        // A barrier asks only for what came after the one before it, so everything else must follow that one.
        let mut list = match preds {
            Some(preds) if preds.is_empty() && barrier > 0 => vec![barrier],
            Some(preds) => preds.iter().map(|p| (*p).max(barrier)).collect(),
            None => (0..n as u32).collect(),
        };
        list.dedup();
        for p in &list {
            told[*p as usize][n] = true;
        }
        if preds.is_some() {
            builder.push(&mut list);
        } else {
            builder.push_barrier(barrier);
            list = builder.order().1.preds(n as u32).to_vec();
            barrier = n as u32;
        }
        for p in list {
            kept[p as usize][n] = true;
        }
    }
    (builder, kept, closed(told))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// A missing edge is a race on the device; an extra one loses parallelism.
    #[test]
    fn the_graph_orders_exactly_the_nodes_that_meet_in_a_byte(nodes in recording(50)) {
        let mut flow = flow(&nodes);
        let (reach, dag) = flow.order();
        let order = hazards(&nodes);
        prop_assert_eq!(dag.len(), nodes.len());
        prop_assert_eq!(&closed(edges(dag)), &order);
        prop_assert_eq!(redundant_edge(dag, &order), None);
        prop_assert_eq!(&answers(reach, nodes.len()), &order);
    }

    #[test]
    fn successors_mirror_predecessors(nodes in recording(40)) {
        let dag = flow(&nodes).finish();
        let (succs, mut count) = (dag.succs(), 0);
        for n in 0..dag.len() as u32 {
            prop_assert!(dag.preds(n).is_sorted() && succs.list(n).is_sorted());
            prop_assert!(succs.list(n).iter().all(|s| *s > n && dag.preds(*s).contains(&n)));
            count += succs.list(n).len();
        }
        prop_assert_eq!(count, dag.edge_count());
    }

    #[test]
    fn with_room_for_clocks_every_answer_is_exact(nodes in predecessors()) {
        let (mut built, kept, order) = built(&nodes, Bounds { stored: usize::MAX, merged: usize::MAX, cut: 0 });
        prop_assert_eq!(&answers(built.order().0, nodes.len()), &order);
        let implied = |p: usize, n: usize| (0..n).any(|q| kept[q][n] && order[p][q]);
        let redundant = (0..nodes.len()).flat_map(|n| (0..n).map(move |p| (p, n)));
        prop_assert!(redundant.into_iter().all(|(p, n)| !kept[p][n] || !implied(p, n)));
        prop_assert_eq!(closed(kept), order);
    }

    /// Memory that is shared on a wrong answer is overwritten while in use.
    #[test]
    fn without_room_for_clocks_no_order_is_invented_and_none_is_lost(
        nodes in predecessors(), stored in 0_usize..40, merged in 0_usize..200, cut in 0_usize..5,
    ) {
        let (mut built, kept, order) = built(&nodes, Bounds { stored, merged, cut });
        let claimed = answers(built.order().0, nodes.len());
        for (claims, truth) in claimed.iter().flatten().zip(order.iter().flatten()) {
            prop_assert!(!claims || *truth);
        }
        prop_assert_eq!(closed(kept), order);
    }

    #[test]
    fn no_two_requests_share_bytes_unless_all_uses_of_one_come_first(
        nodes in recording(50),
        wanted in vec((0_u64..200, btree_set(0_u32..50, 0..4)), 0..60),
        align in prop_oneof![Just(1_u64), Just(16), Just(48)],
    ) {
        let mut flow = flow(&nodes);
        let (reach, dag) = flow.order();
        let order = hazards(&nodes);
        let requests: Vec<Request> = wanted
            .into_iter()
            .map(|(bytes, uses)| Request {
                bytes,
                uses: uses.into_iter().filter(|n| (*n as usize) < nodes.len()).collect(),
            })
            .collect();
        let plan = plan(&requests, reach, dag, align);
        check(&requests, &plan, &order, align)?;
    }

    #[test]
    fn the_temporaries_of_a_recording_share_only_in_order(
        steps in vec((0_u32..6, 0_u32..6, 1_u64..100), 1..60),
    ) {
        // Each step reads the newest temporary of one lane and makes a new one in another.
        let mut newest: [Option<u32>; 6] = [None; 6];
        let mut nodes: Vec<Recorded> = Vec::new();
        let mut requests: Vec<Request> = Vec::new();
        for (n, (from, to, bytes)) in (0_u32..).zip(steps) {
            let mut uses = Vec::new();
            if let Some(alloc) = newest[from as usize] {
                uses.push(Use { alloc, start: 0, end: 1, access: Access::Read });
                requests[alloc as usize].uses.push(n);
            }
            uses.push(Use { alloc: n, start: 0, end: 1, access: Access::Write });
            requests.push(Request { bytes, uses: vec![n] });
            newest[to as usize] = Some(n);
            nodes.push((uses, false));
        }
        let mut flow = flow(&nodes);
        let (reach, dag) = flow.order();
        let plan = plan(&requests, reach, dag, 8);
        check(&requests, &plan, &hazards(&nodes), 8)?;
        prop_assert!(plan.bytes <= plan.unshared);
    }

    #[test]
    fn a_fill_goes_only_where_no_zero_can_be_seen(
        nodes in prop_oneof![recording(30), covering(50)],
        fills in btree_set((0_usize..9, 0..ALLOCS), 0..6),
        kept in vec(any::<bool>(), ALLOCS as usize),
        size in 0..=BYTES,
    ) {
        let mut steps: Vec<(Recorded, Option<u32>)> = nodes.into_iter().map(|node| (node, None)).collect();
        for (at, alloc) in fills {
            let fill = Use { alloc, start: 0, end: size, access: Access::Write };
            steps.insert(at.min(steps.len()), ((vec![fill], false), Some(alloc)));
        }
        let uses = steps.iter().map(|((uses, barrier), _)| Footprint { uses, barrier: *barrier });
        let fill_of = |n: u32| steps[n as usize].1;
        let needed = needed(uses, fill_of, |alloc| kept[alloc as usize], |_| size, 0);
        prop_assert_eq!(needed, needed_by_bytes(&steps, &kept, size));
    }
}

fn check(requests: &[Request], plan: &Plan, order: &Order, align: u64) -> Result<(), TestCaseError> {
    let all_before = |x: &Request, y: &Request| {
        x.uses.iter().all(|a| y.uses.iter().all(|b| order[*a as usize][*b as usize]))
    };
    for (at, (x, start)) in requests.iter().zip(&plan.offsets).enumerate() {
        prop_assert_eq!(start.is_none(), x.bytes == 0 || x.uses.is_empty());
        let Some(start) = *start else { continue };
        prop_assert!(start % align == 0 && start + x.bytes <= plan.bytes);
        for (y, other) in requests.iter().zip(&plan.offsets).skip(at + 1) {
            let Some(other) = *other else { continue };
            let apart = start + x.bytes <= other || other + y.bytes <= start;
            prop_assert!(apart || all_before(x, y) || all_before(y, x), "{x:?} and {y:?}");
        }
    }
    Ok(())
}

/// Runs the recording on bytes that know which fill wrote them.
fn needed_by_bytes(steps: &[(Recorded, Option<u32>)], kept: &[bool], size: u64) -> Vec<bool> {
    let mut needed: Vec<bool> = steps.iter().map(|(_, fill)| fill.is_none()).collect();
    let mut bytes = vec![vec![None; BYTES as usize]; ALLOCS as usize];
    let mut touched = [false; ALLOCS as usize];
    for (n, ((uses, _), fill)) in steps.iter().enumerate() {
        let real = || uses.iter().filter(|used| used.start < used.end);
        if let Some(alloc) = fill {
            let alloc = *alloc as usize;
            needed[n] = touched[alloc];
            touched[alloc] = true;
            bytes[alloc][..size as usize].fill((!needed[n]).then_some(n));
            continue;
        }
        for used in real().filter(|used| used.access != Access::Write) {
            for fill in &bytes[used.alloc as usize][used.start as usize..used.end as usize] {
                fill.iter().for_each(|fill: &usize| needed[*fill] = true);
            }
        }
        for used in real() {
            touched[used.alloc as usize] = true;
            if used.access == Access::Write {
                bytes[used.alloc as usize][used.start as usize..used.end as usize].fill(None);
            }
        }
    }
    for (alloc, _) in kept.iter().enumerate().filter(|(_, kept)| **kept) {
        bytes[alloc].iter().flatten().for_each(|fill| needed[*fill] = true);
    }
    needed
}

/// Temporary k is made by one node and read by the next one of its lane; lanes take turns.
fn ping_pong(lanes: u32, steps: u32, bytes: impl Fn(u32) -> u64) -> Plan {
    let whole = |alloc, access| Use { alloc, start: 0, end: 8, access };
    let node = |n: u32| {
        let before = n.checked_sub(lanes).map(|made| whole(made, Access::Read));
        (before.into_iter().chain([whole(n, Access::Write)]).collect(), false)
    };
    let total = lanes * steps;
    let nodes: Vec<Recorded> = (0..total).map(node).collect();
    let uses = |n: u32| [n, n + lanes].into_iter().filter(|n| *n < total).collect();
    let requests: Vec<Request> = (0..total).map(|n| Request { bytes: bytes(n), uses: uses(n) }).collect();
    let mut flow = flow(&nodes);
    let (reach, dag) = flow.order();
    plan(&requests, reach, dag, 256)
}

#[test]
fn a_chain_of_temporaries_lives_in_two_of_them() {
    let plan = ping_pong(1, 500, |_| 1000);
    assert_eq!((plan.bytes, plan.unshared), (2 * 1024, 500 * 1024));
}

#[test]
fn parallel_chains_share_within_each_chain_only() {
    for lanes in [8, 200] {
        assert_eq!(ping_pong(lanes, 30, |_| 1024).bytes, 2 * 1024 * u64::from(lanes));
    }
}

#[test]
fn a_larger_temporary_takes_neighbours_or_the_end_of_the_arena() {
    let plan = ping_pong(1, 40, |n| 256 * u64::from(n + 1));
    assert!(plan.bytes <= 256 * 40 * 3, "{} bytes", plan.bytes);
}

#[test]
fn a_sequential_graph_is_one_chain() {
    let mut flow = sequential(300);
    let (reach, dag) = flow.order();
    assert_eq!((dag.len(), dag.edge_count()), (300, 299));
    let order: Order = (0..300).map(|a| (0..300).map(|b| a < b).collect()).collect();
    assert_eq!(answers(reach, 300), order);
    assert_eq!((dag.preds(300), dag.succs().list(299)), (&[][..], &[][..]));
}

#[test]
fn an_arena_too_large_to_exist_is_not_a_panic() {
    let mut flow = sequential(3);
    let (reach, dag) = flow.order();
    let uses = [vec![0], vec![0, 1], vec![1, 2], vec![2]];
    let requests: Vec<Request> = uses.map(|uses| Request { bytes: u64::MAX - 5, uses }).into();
    assert_eq!(plan(&requests, reach, dag, 256).bytes, u64::MAX);
}

#[test]
fn writes_that_touch_or_overlap_cover_together() {
    for pieces in [[(0, 4), (4, 8)], [(4, 8), (0, 4)], [(0, 4), (3, 8)], [(3, 8), (0, 4)]] {
        let fill = [Use { alloc: 0, start: 0, end: 8, access: Access::Write }];
        let writes = pieces.map(|(start, end)| [Use { alloc: 0, start, end, access: Access::Write }]);
        let nodes = || std::iter::once(&fill).chain(&writes).map(|uses| Footprint { uses, barrier: false });
        let fill_of = |n| (n == 0).then_some(0);
        assert_eq!(needed(nodes(), fill_of, |_| true, |_| 8, 1), [false, true, true]);
        assert_eq!(needed(nodes(), fill_of, |_| true, |_| 9, 1), [true, true, true]);
    }
}
