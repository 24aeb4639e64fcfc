//! Names for program counters: function, file, line, with inlined calls; and what to leave out of a stack.
//!
//! Runs where it may allocate and take its time: on the trace reader's thread, and in the reports of a dying program. A
//! PC costs some 15 microseconds the first time and a hash look-up afterwards; opening the program's debug information
//! costs a few milliseconds once.
//!
//! # Where a name comes from
//! A PC has one *physical* function and any number of calls inlined there. Their names come from the debug information,
//! which gives either a mangled name (the whole path) or, in programs built with `debug = "line-tables-only"`, a bare one
//! (`recv<u64>`). For the physical function the symbol table knows the path even then. For inlined ones nothing does;
//! their path is guessed from that of their source file where it shows the crate (names.rs). Programs built with
//! `debug = 1` have all names in full, in a file that is a seventh larger.
//!
//! # Invariants
//! S1  A PC from a stack is looked up one byte earlier, in the call (unwind's U5). Otherwise the last call of a function
//!     that never returns belongs to its neighbour.
//! S2  An answer MUST have at least one frame: an unknown PC has its address for a name and its object for a file.
//!     Otherwise stacks silently lose frames.
//! S3  What was learned about a PC is kept until another object is loaded over it. Unknown PCs are not kept: torn stacks
//!     may bring any number of them.
//!
//! # Rejected
//! - Resolving in the program's threads, at the event: a thousand times the cost of the event.
//! - `std::backtrace`: its cache holds four objects, it locks, and it does not take PCs.
//! - blazesym: as fast, ten times the dependencies.

mod names;
mod trim;

pub use names::{is_runtime, without_trait};
pub use trim::{StackFrame, trim, trimmed};

use crate::unwind::{self, Origin};
use addr2line::{Loader, gimli::Reader};
use std::collections::HashSet;
use std::collections::hash_map::{Entry, HashMap};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// A place in a function, as people write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The function with its path, demangled, without the hash; `0x…` if it is unknown.
    pub func: Arc<str>,
    /// The source file; the object's file if that is all that is known; empty if nothing is.
    pub file: Arc<str>,
    /// The line, from 1; 0 if unknown.
    pub line: u32,
}

/// The PC that stands for an inlined call in the trace format, where no two frames may share one: the depth goes to the
/// top byte, which user addresses leave alone.
///
/// The physical function has depth 0, the first call inlined into it depth 1, and so on; past 253 they do share one.
pub fn frame_pc(pc: usize, inline_depth: usize) -> u64 {
    pc as u64 & (u64::MAX >> 8) | (inline_depth.min(0xfd) as u64) << 56
}

/// Finds names for PCs, and remembers them. See the module's header.
pub struct Symbolizer {
    known: HashMap<usize, Box<[Frame]>>,
    unknown: Box<[Frame]>,
    objects: Vec<Object>,
    texts: HashSet<Arc<str>>,
}

impl Default for Symbolizer {
    fn default() -> Self {
        Symbolizer::new()
    }
}

impl Symbolizer {
    /// A symbolizer that knows nothing yet; it opens objects when it first meets their code.
    pub fn new() -> Symbolizer {
        Symbolizer { known: HashMap::new(), unknown: Box::default(), objects: Vec::new(), texts: HashSet::new() }
    }

    /// The frames at `pc`, innermost first; the last is the physical function. Never empty.
    ///
    /// `is_return_address`: `pc` comes from a stack (all PCs of [`unwind::walk`], except a first one from a signal
    /// context), so that the place is just before it.
    pub fn frames(&mut self, pc: usize, is_return_address: bool) -> &[Frame] {
        // S1
        let place = pc.wrapping_sub(usize::from(is_return_address));
        let object = self.object(place);
        match self.known.entry(place) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let found = object.map(|i| self.objects[i].resolve(place, &mut self.texts));
                match found.filter(|frames| !frames.is_empty()) {
                    Some(frames) => new.insert(frames.into()),
                    None => {
                        // S2, S3
                        let file = object.map_or("", |i| &self.objects[i].name);
                        let file = intern(&mut self.texts, file);
                        self.unknown = Box::new([Frame { func: format!("{place:#x}").into(), file, line: 0 }]);
                        &self.unknown
                    }
                }
            }
        }
    }

    /// The index of the object that contains `place`, known already or new.
    fn object(&mut self, place: usize) -> Option<usize> {
        // The newest first: it may lie where an older one was.
        if let Some(i) = self.objects.iter().rposition(|o| o.code.contains(&place)) {
            return Some(i);
        }
        let origin = unwind::origin(place).or_else(|| {
            unwind::refresh_modules();
            unwind::origin(place)
        })?;
        // S3: whatever was there before is gone.
        self.objects.retain(|o| o.code.end <= origin.code.start || origin.code.end <= o.code.start);
        self.known.retain(|pc, _| !origin.code.contains(pc));
        self.objects.push(Object::open(&origin));
        Some(self.objects.len() - 1)
    }
}

/// One shared copy of `text`.
fn intern(texts: &mut HashSet<Arc<str>>, text: &str) -> Arc<str> {
    if let Some(known) = texts.get(text) {
        return known.clone();
    }
    let new: Arc<str> = text.into();
    texts.insert(new.clone());
    new
}

/// A loaded object and its debug information.
struct Object {
    code: Range<usize>,
    bias: usize,
    name: String,
    /// `None`: the file cannot be read, or is none that we understand.
    loader: Option<Loader>,
}

impl Object {
    fn open(origin: &Origin) -> Object {
        let path = origin.path.map_or_else(program, PathBuf::from);
        // Deleted programs can still be opened by this name.
        let file =
            if origin.path.is_none() && cfg!(target_os = "linux") { "/proc/self/exe".into() } else { path.clone() };
        let loader = Loader::new(&file).or_else(|_| Loader::new(&path)).ok();
        Object { code: origin.code.clone(), bias: origin.bias, name: path.to_string_lossy().into(), loader }
    }

    /// The frames at `place`; none if nothing is known.
    fn resolve(&self, place: usize, texts: &mut HashSet<Arc<str>>) -> Vec<Frame> {
        let Some(loader) = &self.loader else { return Vec::new() };
        let address = (place.wrapping_sub(self.bias) as u64).wrapping_add(loader.relative_address_base());
        let symbol = loader.find_symbol(address);
        let mut frames = Vec::new();
        if let Ok(mut found) = loader.find_frames(address) {
            while let Ok(Some(frame)) = found.next() {
                let location = frame.location.as_ref();
                let file = location.and_then(|l| l.file).unwrap_or("");
                let name = frame.function.as_ref().and_then(|f| f.name.to_string_lossy().ok());
                let func = name.map(|name| names::readable(&name, file));
                frames.push((func, intern(texts, file), location.and_then(|l| l.line).unwrap_or(0)));
            }
        }
        // The last is the physical function, for which the symbol table has the path; a mangled name has it as well.
        let symbol = symbol.map(|s| names::readable(s, ""));
        match frames.last_mut() {
            Some((func, ..)) if func.as_ref().is_none_or(|f| !f.full) => *func = symbol.or(func.take()),
            Some(_) => {}
            None => frames.extend(symbol.map(|s| (Some(s), intern(texts, &self.name), 0))),
        }
        let finish = |(func, file, line): (Option<names::Name>, _, _)| {
            let func = func.map_or_else(|| format!("{place:#x}"), |name| name.text);
            Frame { func: intern(texts, &func), file, line }
        };
        frames.into_iter().map(finish).collect()
    }
}

/// The main program's path, for people.
fn program() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "the program".into())
}

#[cfg(test)]
mod tests;
