//! Misuse does not compile, and the compiler says what to do instead.
//!
//! Each `ui-tests/<rule>.rs` breaks one rule. What the compiler says to it is checked in beside it, and
//! `ui-tests/pass/<rule>.rs` is the program that its author should have written.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Prevents a transition, a bound or a lifetime from being loosened, and a message from being lost: either shows as a
/// difference here.
#[test]
fn every_rule_is_kept_by_the_compiler_and_explained_in_our_words() {
    // Without a program that passes, `trybuild` checks all of them in one go; with one, it builds one after the other.
    trybuild::TestCases::new().compile_fail("ui-tests/*.rs");
}

/// Prevents a rule from growing so strict that the right way does not compile, or does not run.
#[test]
fn every_twin_compiles_and_runs() {
    trybuild::TestCases::new().pass("ui-tests/pass/*.rs");
}

/// Prevents a message from outliving its test, which then proves nothing.
#[test]
fn every_message_has_a_test() {
    let (rules, messages) = (names("ui-tests", "rs"), names("ui-tests", "stderr"));
    assert_eq!(missing(&messages, &rules), NOTHING, "`.stderr` files without a test");
}

/// Prevents a test without a message, which `trybuild` would only warn of.
#[test]
fn every_rule_has_a_message() {
    let (rules, messages) = (names("ui-tests", "rs"), names("ui-tests", "stderr"));
    assert_eq!(missing(&rules, &messages), NOTHING, "rules without a `.stderr` file");
}

/// Prevents a rule that fails to compile for a reason of its own, such as a typing error or a call that was renamed.
#[test]
fn every_rule_has_a_passing_twin() {
    let (rules, twins) = (names("ui-tests", "rs"), names("ui-tests/pass", "rs"));
    assert_eq!(missing(&rules, &twins), NOTHING, "rules without a twin in `ui-tests/pass`");
    assert_eq!(names("ui-tests/pass", "stderr").len(), 0, "a program that passes has no messages");
}

/// Prevents a rule that nobody can judge: the header says why it must not compile, and what to do instead.
#[test]
fn every_program_starts_by_saying_what_it_is_for() {
    for folder in ["ui-tests", "ui-tests/pass"] {
        for name in names(folder, "rs") {
            let text = fs::read_to_string(root().join(folder).join(&name).with_extension("rs")).unwrap();
            assert!(text.starts_with("//! "), "{folder}/{name}.rs has no header");
        }
    }
}

/// Prevents the folder from being emptied, or a pattern from matching nothing, in silence.
#[test]
fn there_are_at_least_forty_rules() {
    assert!(names("ui-tests", "rs").len() >= 40);
}

const NOTHING: [&str; 0] = [];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files of `folder` that end in `.extension`, without it.
fn names(folder: &str, extension: &str) -> BTreeSet<String> {
    let paths = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let wanted = paths.filter(|path| path.extension().is_some_and(|found| found == extension));
    wanted.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect()
}

fn missing(of: &BTreeSet<String>, from: &BTreeSet<String>) -> Vec<String> {
    of.difference(from).cloned().collect()
}
