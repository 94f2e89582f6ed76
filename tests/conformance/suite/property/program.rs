//! Programs: what a user may do, in any order, as data that shrinks.
//!
//! Operands are picks, not names: a pick is taken modulo what there is when the operation runs, so that every
//! program means something, also after the shrinker took lines out of it.

use dacapo::Order;
use proptest::prelude::*;
use proptest::sample::select;

/// A range of some live buffer.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub buffer: u8,
    /// Start and length, modulo what fits; `None` for all of it.
    pub cut: Option<(u8, u8)>,
}

/// The kernels, by what they do to which arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// `(In, Out, u8)`.
    Add,
    /// `(In, In, Out)`.
    Mix,
    /// `(InOut, u8)`, and the order of two of them shows.
    Bump,
    /// `(In, InOut, Out)`.
    Pair,
    /// `(InOut, u8)`, and leaves every other element as it was.
    Sparse,
    /// `(In, Out)`, in parallel over rows.
    Rows,
    /// `(In, Out, u32)`: writes a part and panics.
    Panics,
}

/// What a fresh buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fresh {
    Zeroed,
    /// Scratch, and filled at once.
    Filled(u8),
    /// Scratch, with whatever is there.
    Scratch,
    /// Zeroed, on a page to itself where the phase allows that.
    Dedicated,
}

/// Picks the graph that was made last.
pub const LATEST: u8 = u8::MAX;

/// How a host callback is ordered, and how it ends.
#[derive(Clone, Copy, Debug)]
pub enum Calls {
    Barrier,
    Reads(Part),
    Writes(Part),
    Panics(Part),
}

/// The transitions of a stream whose phase is known at run time.
#[derive(Clone, Copy, Debug)]
pub enum Transition {
    Prepare,
    Begin,
    Cancel,
    End,
    Abort,
}

/// How a window, or a stream, is given up.
#[derive(Clone, Copy, Debug)]
pub enum Leave {
    /// By `cancel` or `abort`.
    Call,
    /// By dropping the stream; a new one takes its place.
    Drop,
}

/// One operation. `on` picks a stream.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Alloc {
        on: u8,
        len: u8,
        fresh: Fresh,
    },
    Split {
        buffer: u8,
        at: u8,
    },
    DropBuffer {
        buffer: u8,
    },
    Write {
        on: u8,
        to: Part,
        seed: u8,
    },
    Fill {
        on: u8,
        to: Part,
        value: u8,
    },
    /// Of four bytes at a time.
    FillWords {
        on: u8,
        to: Part,
        value: u32,
    },
    /// Trimmed to the shorter of the two, unless `uneven`.
    Copy {
        on: u8,
        from: Part,
        to: Part,
        uneven: bool,
    },
    Launch {
        on: u8,
        code: Code,
        ins: [Part; 2],
        outs: [Part; 2],
        scalar: u8,
    },
    HostCall {
        on: u8,
        calls: Calls,
    },
    Read {
        on: u8,
        from: Part,
    },
    Sync {
        on: u8,
    },
    /// To the next phase. A new window may use the arena of the graph that `share` picks.
    Advance {
        on: u8,
        share: Option<u8>,
        order: Order,
    },
    Leave {
        on: u8,
        how: Leave,
    },
    Misorder {
        on: u8,
        transition: Transition,
    },
    Evict {
        on: u8,
    },
    /// From a typed stream to one whose phase is known at run time, or back.
    Retype {
        on: u8,
    },
    Replay {
        on: u8,
        graph: u8,
    },
    Embed {
        on: u8,
        graph: u8,
    },
    DropGraph {
        graph: u8,
    },
    /// Waits for the last ticket of a graph, which may be gone.
    Await {
        graph: u8,
    },
    Cleanup {
        on: u8,
    },
    /// Moves what lies on any page, with whatever is in flight on it.
    Compact {
        on: u8,
    },
    /// Holds a slot up, where the device decides what runs, until something may wait for it.
    Hold {
        on: u8,
    },
    /// Lets a stepped device run a few operations of one slot.
    Step {
        on: u8,
        times: u8,
    },
    /// The same for one operation, which the device itself fails.
    StepFailing {
        on: u8,
        node: Option<u8>,
    },
}

impl Op {
    /// Whether it enqueues something on what is there, at most. Anything else may wait for what the device has to do.
    pub fn waits_for_nothing(&self) -> bool {
        let enqueues = matches!(
            self,
            Op::Write { .. }
                | Op::Fill { .. }
                | Op::FillWords { .. }
                | Op::Copy { .. }
                | Op::Launch { .. }
                | Op::HostCall { .. }
                | Op::Replay { .. }
                | Op::Hold { .. }
        );
        enqueues || matches!(self, Op::Split { .. } | Op::DropBuffer { .. } | Op::Retype { .. })
    }
}

/// The driver's call that fails while an operation is enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The operation's own call.
    Own,
    /// The wait for another slot, if there is one to make.
    Wait,
    /// An allocation, if one is made.
    Allocate,
    /// The host's wait, if there is one.
    Synchronize,
}

/// One line of a program.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub op: Op,
    pub trouble: Option<Trouble>,
}

fn part() -> impl Strategy<Value = Part> {
    let cut = prop_oneof![2 => Just(None), 3 => any::<(u8, u8)>().prop_map(Some)];
    (any::<u8>(), cut).prop_map(|(buffer, cut)| Part { buffer, cut })
}

fn memory(on: BoxedStrategy<u8>) -> impl Strategy<Value = Op> {
    let fresh = prop_oneof![
        4 => Just(Fresh::Zeroed),
        2 => any::<u8>().prop_map(Fresh::Filled),
        1 => Just(Fresh::Scratch),
        1 => Just(Fresh::Dedicated),
    ];
    prop_oneof![
        9 => (on.clone(), 0u8..25, fresh).prop_map(|(on, len, fresh)| Op::Alloc { on, len, fresh }),
        2 => any::<(u8, u8)>().prop_map(|(buffer, at)| Op::Split { buffer, at }),
        5 => any::<u8>().prop_map(|buffer| Op::DropBuffer { buffer }),
        1 => on.clone().prop_map(|on| Op::Cleanup { on }),
        2 => on.prop_map(|on| Op::Compact { on }),
    ]
}

fn work(on: BoxedStrategy<u8>) -> impl Strategy<Value = Op> {
    prop_oneof![
        30 => enqueued(on.clone()),
        5 => (on.clone(), part()).prop_map(|(on, from)| Op::Read { on, from }),
        1 => on.prop_map(|on| Op::Sync { on }),
    ]
}

fn enqueued(on: BoxedStrategy<u8>) -> impl Strategy<Value = Op> {
    let codes = vec![
        Code::Add,
        Code::Add,
        Code::Mix,
        Code::Mix,
        Code::Bump,
        Code::Bump,
        Code::Pair,
        Code::Pair,
        Code::Sparse,
        Code::Rows,
        Code::Panics,
    ];
    let launch = (on.clone(), select(codes), [part(), part()], [part(), part()], any::<u8>());
    let calls = prop_oneof![
        2 => Just(Calls::Barrier),
        2 => part().prop_map(Calls::Reads),
        2 => part().prop_map(Calls::Writes),
        1 => part().prop_map(Calls::Panics),
    ];
    let copy = (on.clone(), part(), part(), prop::bool::weighted(0.1));
    prop_oneof![
        16 => launch.prop_map(|(on, code, ins, outs, scalar)| Op::Launch { on, code, ins, outs, scalar }),
        4 => (on.clone(), part(), any::<u8>()).prop_map(|(on, to, seed)| Op::Write { on, to, seed }),
        3 => (on.clone(), part(), any::<u8>()).prop_map(|(on, to, value)| Op::Fill { on, to, value }),
        1 => (on.clone(), part(), any::<u32>()).prop_map(|(on, to, value)| Op::FillWords { on, to, value }),
        4 => copy.prop_map(|(on, from, to, uneven)| Op::Copy { on, from, to, uneven }),
        2 => (on, calls).prop_map(|(on, calls)| Op::HostCall { on, calls }),
    ]
}

fn phases(on: BoxedStrategy<u8>) -> impl Strategy<Value = Op> {
    use Transition::{Abort, Begin, Cancel, End, Prepare};
    let transition = select(vec![Prepare, Begin, Cancel, End, Abort]);
    let order = prop_oneof![4 => Just(Order::DataFlow), 1 => Just(Order::Sequential)];
    let share = prop_oneof![3 => Just(None), 1 => any::<u8>().prop_map(Some)];
    prop_oneof![
        12 => (on.clone(), share, order).prop_map(|(on, share, order)| Op::Advance { on, share, order }),
        1 => (on.clone(), select(vec![Leave::Call, Leave::Drop])).prop_map(|(on, how)| Op::Leave { on, how }),
        1 => (on.clone(), transition).prop_map(|(on, transition)| Op::Misorder { on, transition }),
        1 => on.clone().prop_map(|on| Op::Evict { on }),
        1 => on.prop_map(|on| Op::Retype { on }),
    ]
}

fn graphs(on: BoxedStrategy<u8>) -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (on.clone(), any::<u8>()).prop_map(|(on, graph)| Op::Replay { on, graph }),
        4 => (on, any::<u8>()).prop_map(|(on, graph)| Op::Embed { on, graph }),
        2 => any::<u8>().prop_map(|graph| Op::DropGraph { graph }),
        1 => any::<u8>().prop_map(|graph| Op::Await { graph }),
    ]
}

fn steps(on: BoxedStrategy<u8>) -> impl Strategy<Value = Op> {
    let node = prop::option::of(any::<u8>());
    prop_oneof![
        5 => (on.clone(), 1u8..4).prop_map(|(on, times)| Op::Step { on, times }),
        1 => (on, node).prop_map(|(on, node)| Op::StepFailing { on, node }),
    ]
}

fn line() -> impl Strategy<Value = Line> {
    let on = (0u8..4).boxed();
    let op = prop_oneof![
        5 => memory(on.clone()),
        11 => work(on.clone()),
        5 => phases(on.clone()),
        4 => graphs(on.clone()),
        3 => steps(on),
    ];
    let trouble = prop_oneof![
        40 => Just(None),
        3 => Just(Some(Trouble::Own)),
        2 => Just(Some(Trouble::Wait)),
        1 => Just(Some(Trouble::Allocate)),
        1 => Just(Some(Trouble::Synchronize)),
    ];
    (op, trouble).prop_map(|(op, trouble)| Line { op, trouble })
}

/// The youngest live buffer, the one before it, and the one before that, of three or more.
const YOUNGEST: [u8; 3] = [128, 130, 129];

fn all_of(buffer: u8) -> Part {
    Part { buffer, cut: None }
}

/// A recording with a temporary, and what single lines would hardly ever come to: it may embed the very graph whose
/// arena it may use, while its temporary holds something; and what it makes of scratch memory can be told by its taint.
/// Any line may be missing.
fn nest() -> impl Strategy<Value = Vec<Line>> {
    let fresh = prop_oneof![3 => Just(Fresh::Scratch), 1 => Just(Fresh::Zeroed)];
    let graphs = (prop::option::weighted(0.8, any::<u8>()), prop::option::weighted(0.7, any::<u8>()));
    let orders = prop_oneof![4 => Just(Order::DataFlow), 1 => Just(Order::Sequential)];
    let trouble = prop::option::weighted(0.5, Just(Trouble::Own));
    let code = select(vec![Code::Bump, Code::Sparse]);
    let same = prop::bool::weighted(0.8);
    let kept = prop::collection::vec(prop::bool::weighted(0.97), 14);
    ((0u8..4, 1u8..25, fresh), graphs, same, orders, code, trouble, kept).prop_map(
        |((on, len, fresh), (share, child), same, order, code, trouble, kept)| {
            let child = if same { child.and(share) } else { child };
            let advance = |share| Op::Advance { on, share, order };
            let launch = |code, from, to| {
                let (ins, outs) = ([all_of(from); 2], [all_of(to); 2]);
                Op::Launch { on, code, ins, outs, scalar: len }
            };
            let plain = |op| Some(Line { op, trouble: None });
            let lines = [
                plain(Op::Alloc { on, len, fresh: Fresh::Zeroed }),
                plain(Op::Leave { on, how: Leave::Call }),
                plain(advance(share)),
                plain(advance(None)),
                plain(Op::Alloc { on, len, fresh }),
                plain(launch(code, YOUNGEST[1], YOUNGEST[0])),
                child.and_then(|graph| plain(Op::Embed { on, graph })),
                plain(launch(Code::Add, YOUNGEST[0], YOUNGEST[1])),
                plain(Op::DropBuffer { buffer: YOUNGEST[0] }),
                plain(advance(None)),
                Some(Line { op: Op::Replay { on, graph: LATEST }, trouble }),
                plain(Op::Replay { on, graph: LATEST }),
                plain(Op::Read { on, from: all_of(YOUNGEST[0]) }),
                trouble.and_then(|_| plain(Op::StepFailing { on, node: Some(0) })),
            ];
            lines.into_iter().zip(kept).filter(|(_, kept)| *kept).filter_map(|(line, _)| line).collect()
        },
    )
}

/// Failures that the device meets long after what depends on them was enqueued, and some that it meets before them.
fn late() -> impl Strategy<Value = Vec<Line>> {
    let on = || (0u8..4).boxed();
    let fails = (on(), part()).prop_map(|(on, part)| Op::HostCall { on, calls: Calls::Panics(part) }).boxed();
    let replays = (on(), any::<u8>()).prop_map(|(on, graph)| Op::Replay { on, graph });
    let behind = prop_oneof![2 => fails.clone(), 8 => enqueued(on()), 3 => replays];
    let reads = (on(), part()).prop_map(|(on, from)| Op::Read { on, from });
    let holds = on().prop_map(|on| vec![Op::Hold { on }]);
    let (behind, reads) = (prop::collection::vec(behind, 2..8), prop::collection::vec(reads, 1..4));
    (holds, fails, behind, reads).prop_map(|(holds, fails, behind, reads)| {
        let ops = [holds, vec![fails], behind, reads].concat();
        ops.into_iter().map(|op| Line { op, trouble: None }).collect()
    })
}

/// Programs of up to `parts` lines, or of what takes several.
pub fn program(parts: usize) -> impl Strategy<Value = Vec<Line>> {
    let part = prop_oneof![120 => line().prop_map(|line| vec![line]), 2 => nest(), 3 => late()];
    prop::collection::vec(part, 1..=parts).prop_map(|parts| parts.concat())
}
