//! Labels: what a program says about its goroutines, in pairs of key and value, as Go's profiler labels do.
//!
//! - B-1: a set never changes. A goroutine has a reference to one or to none, and hands it to those it makes: one count up
//!   where there are labels, one read where there are none.
//! - B-2: a running goroutine's reference is changed by itself, inside the border (N2).

use std::fmt::Write;
use std::sync::Arc;

/// A set of labels, keys in order, each once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LabelSet {
    pairs: Box<[(Box<str>, Box<str>)]>,
    /// The set as the trace and dumps show it: `{"key": "value", ...}`.
    text: Box<str>,
}

impl LabelSet {
    /// `base` with `more` in it: of two values of a key the last one counts. `None` for an empty set.
    pub(crate) fn with(base: Option<&LabelSet>, more: &[(&str, &str)]) -> Option<Arc<LabelSet>> {
        let mut pairs: Vec<(Box<str>, Box<str>)> = base.map_or(Vec::new(), |b| b.pairs.to_vec());
        for &(key, value) in more {
            match pairs.binary_search_by(|(k, _)| (**k).cmp(key)) {
                Ok(i) => pairs[i].1 = value.into(),
                Err(i) => pairs.insert(i, (key.into(), value.into())),
            }
        }
        if pairs.is_empty() {
            return None;
        }
        let mut text = String::from("{");
        for (i, (key, value)) in pairs.iter().enumerate() {
            let _ = write!(text, "{}{key:?}: {value:?}", if i == 0 { "" } else { ", " });
        }
        text.push('}');
        Some(Arc::new(LabelSet { pairs: pairs.into(), text: text.into() }))
    }

    pub(crate) fn pairs(&self) -> &[(Box<str>, Box<str>)] {
        &self.pairs
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        let i = self.pairs.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.pairs[i].1)
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_counts() {
        assert_eq!(LabelSet::with(None, &[]), None);
        let a = LabelSet::with(None, &[("b", "1"), ("a", "2"), ("b", "3")]).unwrap();
        assert_eq!((a.get("a"), a.get("b"), a.get("c")), (Some("2"), Some("3"), None));
        assert_eq!(a.text(), r#"{"a": "2", "b": "3"}"#);
        let b = LabelSet::with(Some(&a), &[("aa", "\"q\""), ("a", "")]).unwrap();
        assert_eq!(b.text(), r#"{"a": "", "aa": "\"q\"", "b": "3"}"#);
        assert_eq!(a.text(), r#"{"a": "2", "b": "3"}"#);
    }
}
