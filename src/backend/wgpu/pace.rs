//! How much is encoded before it is submitted.

#![forbid(unsafe_code)]

use std::time::Duration;

/// So many commands of wgpu's make the first submission to an idle device, and each next one has so many more, up to the most.
///
/// A submission costs as much as encoding a dozen or two, and nothing is left to overlap with the device's work on the last one. So
/// the sum is least where submissions grow with the root of what came before them; these grow so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    pub(crate) first: u32,
    pub(crate) more: u32,
    pub(crate) most: u32,
    /// How long a thread asks again and again for what should come soon, before it sleeps.
    pub(crate) patience: Duration,
}

impl Pace {
    /// So many commands are worth waking a thread up that submits them.
    pub(crate) const WORTH: u32 = 32;

    /// The pace for devices of this kind.
    pub(crate) fn of(kind: wgpu::DeviceType) -> Self {
        match kind {
            // Encoding takes the cores that the device would work on, so that nothing is won by submitting early.
            wgpu::DeviceType::Cpu => Pace { first: 1024, more: 1024, most: 4096, patience: Duration::ZERO },
            _ => Pace { first: 32, more: 8, most: 512, patience: Duration::from_micros(100) },
        }
    }

    /// Whether a submission of so many commands is near when there are `weight` of them.
    pub(crate) fn is_near(weight: u32, enough: u32) -> bool {
        weight == (enough / 2).max(enough.saturating_sub(Self::WORTH))
    }

    /// How many of its steps each submission of a replay has: equal parts, and few more of them where there are many more steps.
    ///
    /// What costs are the submissions, and the device's work on the last one, which nothing overlaps: the sum is least for the
    /// root of the steps times what a submission costs in steps, which is about sixteen.
    pub(crate) fn part(self, steps: usize) -> u32 {
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        let best = steps.saturating_mul(16).isqrt().clamp(self.first, self.most);
        let parts = steps.saturating_add(best / 2) / best;
        steps.div_ceil(parts.max(1)).clamp(self.first, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A last submission of a few steps costs as much as one of many.
    #[test]
    fn the_parts_of_a_replay_are_equal_and_within_bounds() {
        let pace = Pace::of(wgpu::DeviceType::DiscreteGpu);
        let parts = |steps: usize| (pace.part(steps), steps.div_ceil(pace.part(steps) as usize));
        assert_eq!([0, 1, 31].map(|steps| pace.part(steps)), [32; 3]);
        assert_eq!((parts(150), parts(1000), parts(5000)), ((50, 3), (125, 8), (278, 18)));
        assert_eq!(pace.part(usize::MAX), 512);
        assert_eq!(Pace::of(wgpu::DeviceType::Cpu).part(1000), 1024);
    }
}
