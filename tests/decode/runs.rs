//! Whole sequences, launched and replayed.

use std::time::Duration;

use dacapo::prelude::*;
use dacapo::{Error, ErrorKind};

use crate::model::{Shape, Weights};
use crate::reference::{self, TOLERANCE};
use crate::report::Report;
use crate::samples::{PROMPT, SAYS, bits, tokens, weights};
use crate::session::Session;

fn session() -> Session {
    Session::new(&Device::host().unwrap(), &weights()).unwrap()
}

fn expected() -> Vec<u32> {
    [tokens(PROMPT), SAYS.to_vec()].concat()
}

/// A replay that kept the position, the token or the cache of the recording would say one token for ever.
#[test]
fn one_recording_says_what_was_written_down_as_do_launches() {
    let mut session = session();
    let (replayed, launched) =
        (session.replay(&tokens(PROMPT)).unwrap(), session.launch(&tokens(PROMPT)).unwrap());
    assert_eq!(replayed.tokens, expected());
    assert_eq!(launched.tokens, expected());
    assert_eq!(bits(&replayed), bits(&launched));
}

/// Golden tokens that only this machine's rounding makes would break on the next one.
#[test]
fn the_plain_version_would_have_said_the_same_with_room_to_spare() {
    let (weights, said) = (weights(), session().replay(&tokens(PROMPT)).unwrap());
    let verdict = reference::judge(&weights, &said.tokens, PROMPT.len()).unwrap();
    assert!(verdict.closest > 10.0 * TOLERANCE, "{}", verdict.closest);
    let furthest = verdict.logits.iter().zip(&said.logits).map(|(a, b)| (a - f64::from(*b)).abs());
    let furthest = furthest.fold(0.0, f64::max);
    assert!(furthest < TOLERANCE / 10.0, "{furthest}");
}

/// A check that cannot fail verifies nothing.
#[test]
fn a_single_wrong_token_is_found() {
    let weights = weights();
    for wrong in [PROMPT.len(), PROMPT.len() + SAYS.len() - 1] {
        let mut said = expected();
        said[wrong] ^= 1;
        let found = reference::judge(&weights, &said, PROMPT.len()).unwrap_err();
        assert_eq!((found.position, found.chosen, found.likeliest), (wrong, said[wrong], said[wrong] ^ 1));
    }
}

/// What lies further back is only in the cache.
#[test]
fn what_came_first_is_remembered() {
    let mut session = session();
    let said = session.replay(&tokens(b"Da capo")).unwrap();
    assert_ne!(said.tokens[PROMPT.len()..], SAYS);
    assert!(reference::judge(&weights(), &said.tokens, PROMPT.len()).is_ok());
}

/// Nothing may be left of a sequence in the next one, be it longer or shorter.
#[test]
fn one_graph_serves_every_prompt_one_after_the_other() {
    let mut session = session();
    let first = session.replay(&tokens(PROMPT)).unwrap();
    for prompt in [&b"al fine, e poi"[..], b"d"] {
        let (replayed, launched) =
            (session.replay(&tokens(prompt)).unwrap(), session.launch(&tokens(prompt)).unwrap());
        assert_eq!(replayed.tokens, launched.tokens);
        assert_eq!(replayed.tokens[..prompt.len()], tokens(prompt), "what is given is not chosen");
        assert!(reference::judge(&weights(), &replayed.tokens, prompt.len()).is_ok());
    }
    let again = session.replay(&tokens(PROMPT)).unwrap();
    assert_eq!((&again.tokens, bits(&again)), (&first.tokens, bits(&first)));
}

/// One more replay than the context has room for must not write behind its end, or over what was said.
#[test]
fn a_replay_at_the_end_of_the_context_changes_nothing() {
    let mut session = session();
    session.replay(&tokens(PROMPT)).unwrap();
    for _ in 0..3 {
        session.replay_timed().unwrap();
    }
    let again = session.replay(&tokens(PROMPT)).unwrap();
    assert_eq!(again.tokens, expected());
}

#[test]
fn a_prompt_that_is_empty_or_longer_than_the_context_is_refused() {
    let mut session = session();
    assert_eq!(session.replay(&[]).unwrap_err().kind(), ErrorKind::Step);
    let long = vec![1; PROMPT.len() + SAYS.len() + 1];
    assert!(matches!(session.launch(&long), Err(Error::OutOfRange { end: 24, len: 23, .. })));
    assert_eq!(session.replay(&tokens(PROMPT)).unwrap().tokens, expected());
}

/// A token that does not exist must not be read as some other one.
#[test]
fn a_token_beyond_the_vocabulary_is_an_error_on_the_host() {
    let error = session().replay(&[1, 256, 2]).unwrap_err();
    assert!(matches!(error, Error::KernelPanicked { .. }), "{error}");
}

/// Query, key and value, and gate and up, are each other's neighbours and not each other's predecessors.
#[test]
fn the_graph_has_a_node_a_launch_and_the_edges_of_the_data() {
    let session = session();
    let graph = session.graph();
    let names: Vec<String> = (0..graph.nodes()).map(|index| graph.node(index).unwrap().name).collect();
    let attention =
        ["normalize", "multiply", "multiply", "multiply", "remember", "score", "soften", "mix", "accumulate"];
    let mlp = ["normalize", "multiply", "multiply", "swish", "accumulate"];
    let layer = [&attention[..], &mlp[..]].concat();
    let (first, last) = (["embed"], ["normalize", "multiply", "choose"]);
    assert_eq!(names, [&first[..], &layer.repeat(4), &last[..]].concat());
    // Into a layer, to three products that meet again, along the cache, to two products that meet again, and out.
    assert_eq!(graph.edges(), 4 * (1 + 3 + 4 + 3 + 1 + 2 + 2 + 1) + 3);
}

#[test]
fn models_of_other_shapes_are_decoded_too() {
    for (vocabulary, width, heads, layers, hidden, context) in
        [(7, 1, 1, 1, 1, 2), (33, 12, 3, 2, 40, 9), (100, 96, 2, 1, 31, 70)]
    {
        let weights = Weights::random(Shape { vocabulary, width, heads, layers, hidden, context }, 1);
        let mut session = Session::new(&Device::host().unwrap(), &weights).unwrap();
        let said = session.replay(&[3]).unwrap();
        assert_eq!(said.tokens.len(), context);
        assert_eq!(said.tokens, session.launch(&[3]).unwrap().tokens);
        reference::judge(&weights, &said.tokens, 1).unwrap();
    }
}

#[test]
fn the_table_shows_the_mean_of_all_steps() {
    let mut session = session();
    let mut said = session.replay(&tokens(PROMPT)).unwrap();
    said.took = Duration::from_micros(220);
    let mut launched = said.clone();
    launched.took = Duration::from_micros(880);
    let report = Report::new(&session, PROMPT.len(), &launched, &said, Duration::from_micros(9));
    let table = report.to_string();
    let spoken = SAYS.map(|token| token.to_string()).join(" ");
    for row in [
        &*format!("tokens     {spoken}"),
        "eager           40.0  us/token",
        "replay          10.0  us/token, 4.00 times as fast",
        "device           9.0  us, one replay by its own clock",
        "nodes             60",
        "edges             71",
    ] {
        assert!(table.lines().any(|line| line == row), "{row:?} is not in\n{table}");
    }
}
