//! The same model on a GPU: the same tokens, from the same logits to the last bit.

use dacapo::prelude::*;

use crate::model::{Shape, Weights};
use crate::samples::{PROMPT, SAYS, bits, tokens, weights};
use crate::session::Session;

/// A token that wins by a wide margin hides a sum that is added up in another order.
pub fn the_hosts_tokens_come_from_the_same_logits<B: Backend>(device: &Device<B>) {
    let weights = weights();
    let mut on_device = Session::new(device, &weights).unwrap();
    let mut on_host = Session::new(&Device::host().unwrap(), &weights).unwrap();
    assert_eq!(on_device.graph().nodes(), on_host.graph().nodes());
    for prompt in [PROMPT, b"Da capo", b"al fine, e poi"] {
        let expected = on_host.replay(&tokens(prompt)).unwrap();
        for said in [on_device.replay(&tokens(prompt)).unwrap(), on_device.launch(&tokens(prompt)).unwrap()] {
            assert_eq!(said.tokens, expected.tokens);
            assert_eq!(bits(&said), bits(&expected));
        }
    }
    assert_eq!(on_device.replay(&tokens(PROMPT)).unwrap().tokens[PROMPT.len()..], SAYS);
    assert!(!on_device.replay_timed().unwrap().is_zero());
}

/// Lengths that fill no block evenly, more positions than a block of scores has threads, and another seed.
pub fn models_of_other_shapes_agree<B: Backend>(device: &Device<B>) {
    for (vocabulary, width, heads, layers, hidden, context) in
        [(7, 1, 1, 1, 1, 2), (33, 12, 3, 2, 40, 9), (100, 96, 2, 1, 31, 70), (50, 64, 8, 2, 300, 300)]
    {
        let weights = Weights::random(Shape { vocabulary, width, heads, layers, hidden, context }, 3);
        let on_host = Session::new(&Device::host().unwrap(), &weights).unwrap().replay(&[3, 1]).unwrap();
        let mut on_device = Session::new(device, &weights).unwrap();
        for said in [on_device.replay(&[3, 1]).unwrap(), on_device.launch(&[3, 1]).unwrap()] {
            assert_eq!(said.tokens, on_host.tokens);
            assert_eq!(bits(&said), bits(&on_host));
        }
    }
}
