//! Orders in which a program may let go of what it holds.

/// Every order of five things.
pub fn permutations() -> Vec<[usize; 5]> {
    let mut all = Vec::new();
    let mut order = [0, 1, 2, 3, 4];
    permute(&mut order, 0, &mut all);
    assert_eq!(all.len(), 120);
    all
}

fn permute(order: &mut [usize; 5], fixed: usize, all: &mut Vec<[usize; 5]>) {
    if fixed == order.len() {
        all.push(*order);
        return;
    }
    for next in fixed..order.len() {
        order.swap(fixed, next);
        permute(order, fixed + 1, all);
        order.swap(fixed, next);
    }
}
