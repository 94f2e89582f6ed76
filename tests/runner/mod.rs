//! What a test binary without a harness owes to whoever runs it.

/// Whether it is asked for the names of its tests only, which are then printed as a harness prints them.
pub fn is_asked_for<'n>(names: impl IntoIterator<Item = &'n str>) -> bool {
    let is_told = |flag: &str| std::env::args().any(|argument| argument == flag);
    if !is_told("--list") {
        return false;
    }
    // None is ignored, which is what some runners ask for apart.
    if !is_told("--ignored") {
        names.into_iter().for_each(|name| println!("{name}: test"));
    }
    true
}
