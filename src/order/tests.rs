use super::*;

fn mark(slot: u32, seq: u64) -> Mark {
    Mark { slot, seq }
}

fn waits(uses: &Uses, range: Range<usize>, access: Access) -> Vec<Mark> {
    let mut marks = Marks::default();
    uses.collect(&range, access, &mut marks);
    let mut found: Vec<_> = marks.iter().collect();
    found.sort_by_key(|mark| (mark.slot, mark.seq));
    found
}

#[test]
fn readers_wait_for_the_last_write_and_not_for_readers() {
    let mut uses = Uses::default();
    uses.record(0..8, Access::Write, mark(0, 1));
    uses.record(0..8, Access::Read, mark(1, 5));
    assert_eq!(waits(&uses, 0..8, Access::Read), [mark(0, 1)]);
    assert_eq!(waits(&uses, 0..8, Access::Write), [mark(0, 1), mark(1, 5)]);
}

#[test]
fn halves_count_by_range() {
    let mut uses = Uses::default();
    uses.record(0..8, Access::Write, mark(0, 1));
    uses.record(0..4, Access::Write, mark(1, 1));
    uses.record(2..6, Access::Read, mark(2, 1));
    assert_eq!(waits(&uses, 4..8, Access::Read), [mark(0, 1)]);
    assert_eq!(waits(&uses, 0..2, Access::Write), [mark(1, 1)]);
    assert_eq!(waits(&uses, 3..5, Access::Write), [mark(0, 1), mark(1, 1), mark(2, 1)]);
}

/// A buffer that was written in a thousand parts looked at a thousand records for the next one.
#[test]
fn parts_whose_uses_have_passed_are_forgotten_and_no_others() {
    let mut uses = Uses::default();
    for n in 0..1000 {
        uses.record(n * 8..n * 8 + 8, Access::Write, mark(0, n as u64));
        uses.tidy(|mark| mark.seq + 10 < n as u64);
        assert!(uses.pieces() <= 65, "{}", uses.pieces());
    }
    assert_eq!(waits(&uses, 7992..8000, Access::Read), [mark(0, 999)]);
    let mut kept = Uses::default();
    for n in 0..1000 {
        kept.record(n * 8..n * 8 + 8, Access::Write, mark(0, n as u64));
        kept.tidy(|_| false);
    }
    assert_eq!(waits(&kept, 0..8, Access::Read), [mark(0, 0)]);
}

#[test]
fn a_coarse_history_holds_every_use_there_was() {
    let mut uses = Uses::default();
    uses.record(0..2, Access::Write, mark(0, 1));
    uses.record(4..6, Access::Read, mark(1, 3));
    uses.coarsen();
    assert_eq!(uses.pieces(), 1);
    assert_eq!(waits(&uses, 2..3, Access::Read), [mark(0, 1), mark(1, 3)]);
    assert_eq!(waits(&uses, 6..8, Access::Read), []);
}

#[test]
fn gaps_are_filled_and_equal_neighbours_join() {
    let mut uses = Uses::default();
    uses.record(2..4, Access::Write, mark(0, 1));
    uses.record(6..8, Access::Write, mark(0, 1));
    uses.record(0..10, Access::Write, mark(1, 2));
    assert_eq!(uses.segments.len(), 1);
    assert_eq!(waits(&uses, 0..1, Access::Read), [mark(1, 2)]);
    assert_eq!(waits(&uses, 9..10, Access::Read), [mark(1, 2)]);
}
