//! Reflection, rule by rule.
