//! Faults that a host device is told to meet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::backend::fault::Severity;
use crate::backend::{Call, Fault};

/// The faults that calls of a host device's driver meet, and how often each kind was called.
///
/// ```
/// use dacapo::host::Severity;
/// use dacapo::prelude::*;
/// use dacapo::Call;
///
/// # fn main() -> dacapo::Result<()> {
/// let device = Device::host()?;
/// let mut stream = device.stream()?;
/// device.faults().fail_nth(Call::Fill, 1, Severity::Call);
/// assert!(stream.alloc::<f32>(8).is_err());
/// assert!(stream.alloc::<f32>(8).is_ok());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<State>);

#[derive(Debug, Default)]
struct State {
    counts: [AtomicU64; Call::ALL.len()],
    /// Whether there is any rule, so that a device without faults takes no lock.
    armed: AtomicBool,
    rules: Mutex<Vec<Rule>>,
}

#[derive(Debug)]
struct Rule {
    /// `None` counts calls of every kind.
    call: Option<Call>,
    /// How many matching calls still pass first.
    after: u64,
    times: Times,
    severity: Severity,
}

#[derive(Debug, PartialEq, Eq)]
enum Times {
    Once,
    Always,
}

impl Faults {
    /// The `n`-th call of this kind from now fails (1 is the next one).
    pub fn fail_nth(&self, call: Call, n: u64, severity: Severity) {
        self.add(Rule { call: Some(call), after: n.saturating_sub(1), times: Times::Once, severity });
    }

    /// The `n`-th call of any kind from now fails.
    pub fn fail_nth_of_all(&self, n: u64, severity: Severity) {
        self.add(Rule { call: None, after: n.saturating_sub(1), times: Times::Once, severity });
    }

    /// Every call of this kind fails from now on.
    pub fn fail_all(&self, call: Call, severity: Severity) {
        self.add(Rule { call: Some(call), after: 0, times: Times::Always, severity });
    }

    /// No call fails any more. A device that is lost stays lost.
    pub fn clear(&self) {
        let mut rules = self.0.rules.lock();
        rules.clear();
        self.0.armed.store(false, Ordering::Relaxed);
    }

    /// How often the driver was called in this way.
    pub fn count(&self, call: Call) -> u64 {
        self.0.counts.get(call as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// How often the driver was called in any way.
    pub fn total(&self) -> u64 {
        self.0.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    fn add(&self, rule: Rule) {
        self.0.rules.lock().push(rule);
        // Relaxed: a test that arms a fault and then calls does both on one thread, or synchronises itself.
        self.0.armed.store(true, Ordering::Relaxed);
    }

    /// Counts a call, and refuses it if a rule says so.
    pub(crate) fn meet(&self, call: Call) -> Result<(), Fault> {
        if let Some(count) = self.0.counts.get(call as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if !self.0.armed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut hit = None;
        self.0.rules.lock().retain_mut(|rule| {
            if rule.call.is_some_and(|kind| kind != call) {
                return true;
            }
            if rule.after > 0 {
                rule.after -= 1;
                return true;
            }
            hit.get_or_insert(rule.severity);
            rule.times == Times::Always
        });
        match hit {
            Some(severity) => Err(Fault::new(call, severity, "injected fault")),
            None => Ok(()),
        }
    }
}

/// Faults are equal if they are the same: rules and counts that are added to one are found in the other.
impl PartialEq for Faults {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Faults {}
