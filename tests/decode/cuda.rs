//! What every device must say, on CUDA.

use crate::devices;
use crate::support_cuda;

#[test]
fn host_and_cuda_say_the_same_tokens_from_the_same_logits() {
    let Some(device) = support_cuda::device() else { return };
    devices::the_hosts_tokens_come_from_the_same_logits(&device);
}

#[test]
fn models_of_other_shapes_agree_on_cuda_too() {
    let Some(device) = support_cuda::device() else { return };
    devices::models_of_other_shapes_agree(&device);
}
