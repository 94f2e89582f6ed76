//! How large pages are.
//!
//! Few sizes, so that a page that one tenant left fits the next: five of shared pages, eight a doubling of whole ones.

#![forbid(unsafe_code)]

/// The sizes of shared pages, in bytes.
pub(crate) const SHARED: [usize; 5] = [2 << 20, 8 << 20, 32 << 20, 128 << 20, 512 << 20];

/// The size of the next shared page of a pool whose shared pages have `held` bytes.
///
/// Pages grow with the demand, so that their number stays small; one is never more than a quarter of what there is
/// already, which bounds what a page that is hardly used can waste. Whole pages do not count: a few large buffers would
/// else make large pages for small ones, each of which a graph may pin in its page.
pub(crate) fn next_shared(held: usize) -> usize {
    let [smallest, ..] = SHARED;
    SHARED.into_iter().rev().find(|size| *size <= held / 4).unwrap_or(smallest)
}

/// Whether a tenant of `bytes` may share a page of `page` bytes: larger ones would leave holes that fit nobody.
pub(crate) fn shares(bytes: usize, page: usize) -> bool {
    bytes <= page / 4
}

/// The size of a page for one tenant of `bytes`: at most an eighth more.
pub(crate) fn whole(bytes: usize, alignment: usize) -> usize {
    let step = bytes.checked_next_power_of_two().map_or(alignment, |power| (power / 16).max(alignment));
    bytes.checked_next_multiple_of(step).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubling_has_at_most_eight_sizes_of_whole_pages_and_none_wastes_more_than_an_eighth() {
        for power in 20..36usize {
            let (from, to) = ((1 << power) + 256, 1 << (power + 1));
            let sizes: Vec<usize> = (0..1000).map(|i| from + (to - from) / 1000 * i).collect();
            let mut wholes: Vec<usize> = sizes.iter().map(|bytes| whole(*bytes, 256)).collect();
            assert!(
                sizes.iter().zip(&wholes).all(|(bytes, page)| page >= bytes && page - bytes <= bytes / 8)
            );
            wholes.dedup();
            assert!(wholes.len() <= 8, "{wholes:?}");
        }
        assert_eq!(whole(usize::MAX - 1, 256), usize::MAX - 1);
    }

    #[test]
    fn shared_pages_grow_with_what_the_pool_holds_and_never_beyond_a_quarter_of_it() {
        assert_eq!(next_shared(0), 2 << 20);
        assert_eq!(next_shared(31 << 20), 2 << 20);
        assert_eq!(next_shared(32 << 20), 8 << 20);
        assert_eq!(next_shared(usize::MAX), 512 << 20);
    }
}
