//! CUDA C++ with what its compilation depends on.

#![forbid(unsafe_code)]

use std::fmt::Display;
use std::sync::Arc;

use crate::backend::cuda::cache::Key;

/// CUDA C++, and the options that it is compiled with: what [`Program::cuda`](crate::Program::cuda) takes, where text alone
/// says too little.
///
/// ```
/// use dacapo::cuda::SourceText;
///
/// let text = r#"extern "C" __global__ void f(float* x, unsigned long long n) { if (n > SIZE) x[SIZE] = __expf(x[0]); }"#;
/// let source = SourceText::new(text).define("SIZE", 16).option("--use_fast_math");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceText {
    text: Arc<str>,
    options: Vec<String>,
}

impl SourceText {
    /// The text alone.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        SourceText { text: text.into(), options: Vec::new() }
    }

    /// Adds an option of NVRTC's, such as `--use_fast_math` or `--std=c++20`. The architecture is the device's.
    pub fn option(mut self, option: impl Into<String>) -> Self {
        self.options.push(option.into());
        self
    }

    /// Defines a macro, as `#define name value` would.
    pub fn define(self, name: &str, value: impl Display) -> Self {
        self.option(format!("--define-macro={name}={value}"))
    }
}

impl From<&str> for SourceText {
    fn from(text: &str) -> Self {
        SourceText::new(text)
    }
}

impl From<&String> for SourceText {
    fn from(text: &String) -> Self {
        SourceText::new(text.as_str())
    }
}

impl From<String> for SourceText {
    fn from(text: String) -> Self {
        SourceText::new(text)
    }
}

/// One compilation: all that its outcome depends on, but for files that the text may include. The program's name is no part
/// of it, so that several functions of one text are compiled once.
pub(crate) struct Unit<'a> {
    pub(crate) text: &'a str,
    /// The device's architecture first.
    pub(crate) options: Vec<String>,
    /// The compiler's version.
    pub(crate) compiler: (i32, i32),
}

impl<'a> Unit<'a> {
    /// `source` for compute capability `architecture` (`90` is 9.0).
    pub(crate) fn new(source: &'a SourceText, architecture: u64, compiler: (i32, i32)) -> Self {
        let mut options = vec![format!("--gpu-architecture=sm_{architecture}")];
        options.extend_from_slice(&source.options);
        Unit { text: &source.text, options, compiler }
    }

    /// What tells this compilation from every other one; `None` if files or the time may have a part in it, which can change.
    ///
    /// The words are looked for in comments, strings and names too, which costs no more than a compilation.
    pub(crate) fn key(&self) -> Option<Key> {
        let reads = |words: &[&str], text: &str| words.iter().any(|word| text.contains(word));
        let by_text = reads(&["include", "import", "embed", "??/", "__DATE__", "__TIME"], &joined(self.text));
        let by_option = |option: &String| {
            reads(&["include", "pch", "file", "optf", "time", "__DATE__", "__TIME"], option)
        };
        if by_text || self.options.iter().any(by_option) {
            return None;
        }
        let compiler = format!("{}.{}", self.compiler.0, self.compiler.1);
        let mut key = Key::default();
        key.add(&compiler);
        key.add(self.text);
        self.options.iter().for_each(|option| key.add(option));
        Some(key)
    }
}

/// The text without backslashes and the white space behind them, which may split a word over two lines.
fn joined(text: &str) -> String {
    let mut parts = text.split('\\');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |joined, part| joined + part.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(source: &SourceText, architecture: u64, compiler: (i32, i32)) -> Option<Key> {
        Unit::new(source, architecture, compiler).key()
    }

    /// Code for another machine, or with another meaning, would be launched in place of what was asked for.
    #[test]
    fn whatever_changes_the_code_changes_the_key() {
        let plain = SourceText::new("void f() {}");
        let sources = [
            plain.clone(),
            SourceText::new("void f() { }"),
            plain.clone().option("--use_fast_math"),
            plain.clone().define("N", 1),
            plain.clone().define("N", 2),
            plain.clone().define("N", 1).define("M", 1),
            plain.clone().define("M", 1).define("N", 1),
        ];
        let mut keys: Vec<_> = sources.iter().map(|source| key(source, 90, (12, 8)).unwrap()).collect();
        keys.push(key(&plain, 80, (12, 8)).unwrap());
        keys.push(key(&plain, 90, (12, 9)).unwrap());
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count);
        assert_eq!(key(&plain, 90, (12, 8)), key(&SourceText::from("void f() {}"), 90, (12, 8)));
    }

    /// Code that is stamped with the time of its compilation would say that of another one.
    #[test]
    fn what_may_hold_the_time_has_no_key() {
        for text in ["f(__DATE__)", "f(__TIME__)", "f(__TIMESTAMP__)", "f(__DA\\\nTE__)"] {
            assert_eq!(key(&SourceText::new(text), 90, (12, 8)), None, "{text}");
        }
        assert_eq!(key(&SourceText::new("f(BUILT)").define("BUILT", "__TIME__"), 90, (12, 8)), None);
    }

    /// What a header holds is no part of the key: code of yesterday's header would be launched today.
    #[test]
    fn what_may_read_files_has_no_key() {
        for text in
            ["#include <x.h>", "# /**/ inc\\\nlude \"x.h\"", "inc\\ \r\nlude", "#embed \"x\"", "inc??/\nlude"]
        {
            assert_eq!(key(&SourceText::new(text), 90, (12, 8)), None, "{text}");
        }
        for option in ["--pre-include=x.h", "-include=x.h", "--use-pch=x", "--options-file=x"] {
            assert_eq!(key(&SourceText::new("").option(option), 90, (12, 8)), None, "{option}");
        }
    }
}
