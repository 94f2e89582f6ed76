//! Misuse does not compile, and the compiler says what to do instead.
//!
//! Each `ui-tests/<rule>.rs` breaks one rule. What the compiler says to it is checked in beside it, and
//! `ui-tests/pass/<rule>.rs` is the program that its author should have written. Those programs are modules of this test:
//! one build for all of them, where `trybuild` would build and link one after the other.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Prevents a transition, a bound or a lifetime from being loosened, and a message from being lost: either shows as a
/// difference here.
///
/// With the usual features only: the compiler lists the types that implement a trait, and the backends' features add to
/// them.
#[cfg(not(feature = "cuda"))]
#[test]
fn every_rule_is_kept_by_the_compiler_and_explained_in_our_words() {
    trybuild::TestCases::new().compile_fail("ui-tests/*.rs");
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

/// Prevents a program from lying in the folder without being compiled and run.
#[test]
fn every_program_that_passes_is_run() {
    let run = PROGRAMS.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(
        missing(&names("ui-tests/pass", "rs"), &run),
        NOTHING,
        "programs that `programs!` does not name"
    );
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

/// Makes a module and a test of each program, which prevents a rule from growing so strict that the right way does not
/// compile, or does not run.
macro_rules! programs {
    ($($name:ident)*) => {
        #[path = "../ui-tests/pass"]
        #[allow(dead_code, reason = "some programs only show that their types fit")]
        mod programs {
            $(pub mod $name;)*
        }

        const PROGRAMS: &[&str] = &[$(stringify!($name)),*];

        mod every_program_compiles_and_runs {
            use std::process::{ExitCode, Termination};

            $(
                #[test]
                fn $name() {
                    assert_eq!(super::programs::$name::main().report(), ExitCode::SUCCESS);
                }
            )*
        }
    };
}

programs! {
    any_stream_server
    async_shared_stream
    async_stream_across_await
    buffer_of_references
    build_graph
    build_phase
    build_stream
    build_work
    callback_borrows_locals
    callback_consumes_capture
    callback_not_send
    check_arity
    check_reads_buffer
    clone_buffer
    clone_graph
    clone_stream
    copy_element_types
    copy_from_host_memory
    copy_onto_itself
    copy_to_shared
    element_not_plain_data
    enqueue_on_anything
    fill_not_plain_data
    fill_shared
    generic_step
    generic_step_read
    idle_abort
    idle_begin
    idle_cancel
    idle_end
    ignored_end
    ignored_graph
    ignored_refused
    ignored_result
    ignored_stream
    implement_arg
    implement_backend
    implement_can_wait
    implement_enqueue
    implement_host_data
    implement_phase
    kernel_arity
    kernel_borrows_locals
    kernel_changes_capture
    kernel_foreign_backend
    kernel_leaks_view
    kernel_not_send
    kernel_not_sync
    kernel_untupled
    kernel_writes_input
    launch_aliases_input
    launch_aliases_outputs
    launch_arity
    launch_buffer_for_table
    launch_element_type
    launch_exclusive_input
    launch_foreign_backend
    launch_grid_type
    launch_not_a_tuple
    launch_owned_buffer
    launch_scalar_for_buffer
    launch_scalar_type
    launch_shared_output
    launch_shared_slice_output
    launch_unchecked_kernel
    launch_unchecked_safe
    launch_writes_its_counts
    leak_work_as_value
    leak_work_from_profile
    leak_work_into_thread
    leak_work_into_variable
    load_unchecked_as_checked
    moved_by_abort
    moved_by_begin
    moved_by_cancel
    moved_by_end
    moved_by_prepare
    not_a_phase
    prepared_abort
    prepared_allocating
    prepared_capture
    prepared_end
    prepared_compact
    prepared_memory_cleanup
    prepared_prepare
    prepared_record
    raw_on_host
    raw_owned_buffer
    read_element_type
    record_beside_borrowed_siblings
    record_returns_own_error
    recording_allocating
    recording_begin
    recording_cancel
    recording_compact
    recording_memory_cleanup
    recording_prepare
    recording_profile
    recording_read
    recording_read_async
    recording_record
    recording_replay
    recording_sync
    refused_into_anyhow
    refused_into_boxed_error
    refused_into_our_error
    refused_into_users_error
    replay_from_two_threads
    share_graph
    share_stream
    signature_element_not_plain_data
    signature_not_a_tuple
    signature_not_plain_data
    slice_outlives_buffer
    swap_works
    whole_while_split
    work_begin
    work_read
    work_replay
    work_sync
    write_element_type
    write_from_buffer
    write_to_shared
}
