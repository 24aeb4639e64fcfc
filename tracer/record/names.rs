//! Names that the program gives to tasks and regions: strings with the same id in every generation.
//!
//! - U1: the end of a region repeats the name of its begin, perhaps generations later, and Go's reader refuses the file if they differ.
//!   So a name has one id for good, and is in the table of every generation that could refer to it. (Entries of a
//!   generation's own table can be lost, when it is full.)
//! - U2: a name is registered before an event refers to it, and generations are put together after their last event. So what is
//!   registered by then is enough.
//!
//! There is room for [`NAMES_MAX`] names; those that come later share one. Names are meant to be few: what changes from
//! call to call belongs into a log.

use std::collections::HashMap;
use std::sync::LazyLock;

use parking_lot::RwLock;

use crate::wire::cut_string;

/// How many names are kept.
pub const NAMES_MAX: usize = 10_000;

/// Above all ids of the generations' own tables.
const FIRST: u64 = 1 << 33;

/// What names are called that there is no room for.
const TOO_MANY: &str = "(too many names)";

/// A registered name. Its value is its string id, in every generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name(u64);

static NAMES: LazyLock<RwLock<HashMap<Box<str>, u64>>> = LazyLock::new(|| RwLock::new(HashMap::new()));

impl Name {
    /// Registers a name, which is cut to what the format allows. The empty string is fine.
    pub fn register(name: &str) -> Name {
        let name = cut_string(name);
        if let Some(&id) = NAMES.read().get(name) {
            return Name(id);
        }
        let mut names = NAMES.write();
        let next = FIRST + names.len() as u64;
        if names.len() < NAMES_MAX {
            return Name(*names.entry(name.into()).or_insert(next));
        }
        // One more than the rest.
        Name(*names.get(name).unwrap_or(&(FIRST + NAMES_MAX as u64)))
    }

    /// Its string id.
    #[inline]
    pub fn id(self) -> u64 {
        self.0
    }
}

/// Calls `f` with the id and the text of each name that was registered.
pub(crate) fn for_each(mut f: impl FnMut(u64, &str)) {
    let names = NAMES.read();
    if names.is_empty() {
        return;
    }
    names.iter().for_each(|(name, &id)| f(id, name));
    if names.len() == NAMES_MAX {
        f(FIRST + NAMES_MAX as u64, TOO_MANY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_id_for_good() {
        let a = Name::register("names test a");
        assert_ne!(a, Name::register("names test b"));
        assert_eq!(a, Name::register("names test a"));
        let mut seen = None;
        for_each(|id, name| {
            if id == a.id() {
                seen = Some(name.to_string());
            }
        });
        assert_eq!(seen.as_deref(), Some("names test a"));
        let long = "x".repeat(1 << 20);
        assert_eq!(Name::register(&long), Name::register(cut_string(&long)));
    }
}
