//! The objects of this process (the program, its libraries, the vDSO): where their code is, and their unwind tables.
//!
//! # Invariants
//! M1  A published list MUST never change nor be freed: walkers hold it without a lock. A refresh publishes a new list.
//!     Lists are leaked, at most one per dlopen or dlclose that somebody noticed; tables are shared between lists.
//! M2  A list MUST never point into an object that can be unloaded. Otherwise a walker reads unmapped memory after a
//!     dlclose. So the tables of everything but the main program and the vDSO are copied.
//!
//! # Rejected
//! - Pinning libraries with RTLD_NODELETE instead of copying: a program that reloads a plug-in would get the old one.
//! - Asking the loader in the walk (`_dl_find_object`, dl_iterate_phdr): the first is not everywhere, the second locks.

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, EndianSlice, NativeEndian, ParsedEhFrameHdr};
use parking_lot::Mutex;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

pub(super) type Bytes = EndianSlice<'static, NativeEndian>;

/// One object.
pub(super) struct Module {
    /// The addresses of its code.
    pub(super) code: Range<usize>,
    /// What the loader added to the object's own addresses.
    pub(super) bias: usize,
    /// Its unwind tables, if it has any with a search table.
    pub(super) tables: Option<Tables>,
    /// Its path as the loader has it; `None` for the main program.
    path: Option<PathBuf>,
}

/// The unwind tables of an object. All addresses in them are the object's own.
#[derive(Clone)]
pub(super) struct Tables {
    /// The raw .eh_frame_hdr, by which an object is known again.
    raw_header: &'static [u8],
    #[cfg(test)]
    raw_frames: &'static [u8],
    pub(super) header: ParsedEhFrameHdr<Bytes>,
    pub(super) frames: EhFrame<Bytes>,
    pub(super) bases: BaseAddresses,
}

/// All objects, by address.
#[derive(Default)]
pub(super) struct Modules {
    list: Vec<Module>,
    /// The loader's counts of objects added and removed, when the list was made.
    version: (u64, u64),
}

impl Modules {
    /// The object whose code contains `pc`.
    pub(super) fn find(&self, pc: usize) -> Option<&Module> {
        let after = self.list.partition_point(|m| m.code.start <= pc);
        self.list[..after].last().filter(|m| m.code.contains(&pc))
    }
}

#[cfg(test)]
impl Modules {
    /// All objects.
    pub(super) fn all(&self) -> impl Iterator<Item = &Module> {
        self.list.iter()
    }
}

#[cfg(test)]
impl Tables {
    /// The raw .eh_frame and .eh_frame_hdr.
    pub(super) fn raw(&self) -> (&'static [u8], &'static [u8]) {
        (self.raw_frames, self.raw_header)
    }
}

static CURRENT: AtomicPtr<Modules> = AtomicPtr::new(std::ptr::null_mut());
static STALE: AtomicBool = AtomicBool::new(false);

/// The newest list. `None` until the first [`refresh_modules`].
#[inline]
pub(super) fn current() -> Option<&'static Modules> {
    // ORDER: Acquire; pairs with the Release in refresh_modules(); the list is complete.
    let list = CURRENT.load(Ordering::Acquire);
    // SAFETY: null, or a list that refresh_modules() leaked, never to be changed (M1).
    unsafe { list.as_ref() }
}

/// Where some code comes from.
pub(crate) struct Origin {
    /// The addresses of the object's code.
    pub(crate) code: Range<usize>,
    /// What the loader added to the object's own addresses.
    pub(crate) bias: usize,
    /// The object's file; `None` for the main program.
    pub(crate) path: Option<&'static Path>,
}

/// The object that `pc` lies in, by the newest list.
pub(crate) fn origin(pc: usize) -> Option<Origin> {
    let m = current()?.find(pc)?;
    Some(Origin { code: m.code.clone(), bias: m.bias, path: m.path.as_deref() })
}

/// Notes that a walk met code in no module.
pub(super) fn note_unknown_code() {
    // ORDER: Relaxed; a hint.
    STALE.store(true, Ordering::Relaxed);
}

/// Whether a walk met code in no known object since the last [`refresh_modules`]: it is time for another.
pub fn modules_stale() -> bool {
    // ORDER: Relaxed; a hint.
    STALE.load(Ordering::Relaxed)
}

/// Brings the list of loaded objects up to date, so that walks can pass through code loaded since.
///
/// Takes the dynamic loader's lock and allocates: not for signal handlers, nor for a trace event. Cheap (microseconds)
/// when nothing was loaded or unloaded. [`super::method`] does it once; afterwards it is for whoever finds
/// [`modules_stale`] true.
pub fn refresh_modules() {
    static REFRESHING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = REFRESHING.lock();
    // ORDER: Relaxed; cleared first, so that code met during the refresh asks for the next one.
    STALE.store(false, Ordering::Relaxed);
    let old = current();
    if let Some(new) = system::list(old) {
        // ORDER: Release; pairs with the Acquire in current().
        CURRENT.store(Box::into_raw(Box::new(new)), Ordering::Release);
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use super::*;
    use libc::{PF_X, PT_GNU_EH_FRAME, PT_LOAD, c_int, c_void, dl_phdr_info, size_t};
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    /// The objects as they are now; `None` if they are as in `old`.
    pub(super) fn list(old: Option<&'static Modules>) -> Option<Modules> {
        let mut scan = Scan { old, found: Modules::default(), first: true, unchanged: false };
        // SAFETY: `object` has the signature asked for, and `scan` outlives the call and is used by nobody else in it.
        unsafe { libc::dl_iterate_phdr(Some(object), (&raw mut scan).cast()) };
        if scan.unchanged {
            return None;
        }
        scan.found.list.sort_by_key(|m| m.code.start);
        Some(scan.found)
    }

    struct Scan {
        old: Option<&'static Modules>,
        found: Modules,
        first: bool,
        unchanged: bool,
    }

    /// # Safety
    /// As dl_iterate_phdr calls it, with a [`Scan`] for `data`.
    unsafe extern "C" fn object(info: *mut dl_phdr_info, size: size_t, data: *mut c_void) -> c_int {
        // SAFETY: list() passes a Scan, exclusively.
        let scan = unsafe { &mut *data.cast::<Scan>() };
        // SAFETY: the loader passes a valid description for the duration of the call.
        let info = unsafe { &*info };
        // Old loaders pass a shorter structure, without the counts.
        let counted = size >= std::mem::offset_of!(dl_phdr_info, dlpi_subs) + size_of_val(&info.dlpi_subs);
        // All loaders begin with the main program, but not all leave its name empty.
        let main = std::mem::take(&mut scan.first);
        if main && counted {
            scan.found.version = (info.dlpi_adds, info.dlpi_subs);
            if scan.old.is_some_and(|old| old.version == scan.found.version) {
                scan.unchanged = true;
                return 1;
            }
        }
        // SAFETY: the loader's description says where the object's program headers are; the object cannot be unloaded
        // during the call, which holds the loader's lock.
        if let Some(module) = unsafe { Object::new(info, main).module(scan) } {
            scan.found.list.push(module);
        }
        0
    }

    /// An object as the loader describes it.
    struct Object<'a> {
        bias: usize,
        headers: &'a [Header],
        /// Its path; empty for the main program.
        name: &'a [u8],
    }

    #[cfg(target_pointer_width = "64")]
    type Header = libc::Elf64_Phdr;

    impl<'a> Object<'a> {
        /// # Safety
        /// `info` describes an object that stays loaded as long as the result is used.
        unsafe fn new(info: &'a dl_phdr_info, main: bool) -> Object<'a> {
            let headers = if info.dlpi_phdr.is_null() {
                &[][..]
            } else {
                // SAFETY: the loader says that so many headers are there.
                unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) }
            };
            let name = if main || info.dlpi_name.is_null() {
                &[][..]
            } else {
                // SAFETY: a C string of the loader's.
                unsafe { std::ffi::CStr::from_ptr(info.dlpi_name) }.to_bytes()
            };
            Object { bias: info.dlpi_addr as usize, headers, name }
        }

        /// # Safety
        /// The object's segments are mapped as its headers say.
        unsafe fn module(&self, scan: &Scan) -> Option<Module> {
            let code = self.headers.iter().filter(|h| h.p_type == PT_LOAD && h.p_flags & PF_X != 0);
            let ranges = code.map(|h| (self.bias.wrapping_add(h.p_vaddr as usize), h.p_memsz as usize));
            let code = ranges
                .map(|(at, len)| at..at.saturating_add(len))
                .reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))?;
            // SAFETY: passed on.
            let tables = unsafe { self.tables(scan, &code) };
            let path = (!self.name.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(self.name)));
            Some(Module { code, bias: self.bias, tables, path })
        }

        /// # Safety
        /// As [`Object::module`].
        unsafe fn tables(&self, scan: &Scan, code: &Range<usize>) -> Option<Tables> {
            let hdr = self.headers.iter().find(|h| h.p_type == PT_GNU_EH_FRAME)?;
            // SAFETY: passed on; PT_GNU_EH_FRAME lies in a loaded segment.
            let raw_header = unsafe { self.bytes(hdr.p_vaddr, hdr.p_memsz as usize) };
            let known =
                scan.old.and_then(|old| old.find(code.start)).filter(|m| m.code == *code && m.bias == self.bias);
            if let Some(known) = known.and_then(|m| m.tables.as_ref()).filter(|t| t.raw_header == raw_header) {
                return Some(known.clone());
            }
            let bases = BaseAddresses::default().set_eh_frame_hdr(hdr.p_vaddr);
            let parsed = EhFrameHdr::new(raw_header, NativeEndian).parse(&bases, size_of::<usize>() as u8).ok()?;
            let start = parsed.eh_frame_ptr().direct().ok()?;
            parsed.table()?;
            let segment = self
                .headers
                .iter()
                .find(|h| h.p_type == PT_LOAD && (h.p_vaddr..h.p_vaddr.saturating_add(h.p_filesz)).contains(&start))?;
            // SAFETY: passed on; the range is the rest of a loaded segment.
            let frames = unsafe { self.bytes(start, (segment.p_vaddr + segment.p_filesz - start) as usize) };
            let frames = &frames[..section_len(frames)];
            let (raw_header, raw_frames) = (self.keep(raw_header), self.keep(frames));
            let header = EhFrameHdr::new(raw_header, NativeEndian).parse(&bases, size_of::<usize>() as u8).ok()?;
            let mut frames = EhFrame::new(raw_frames, NativeEndian);
            frames.set_address_size(size_of::<usize>() as u8);
            if cfg!(target_arch = "aarch64") {
                frames.set_vendor(gimli::Vendor::AArch64);
            }
            Some(Tables {
                raw_header,
                #[cfg(test)]
                raw_frames,
                header,
                frames,
                bases: bases.set_eh_frame(start),
            })
        }

        /// `len` bytes at the object's address `at`.
        ///
        /// # Safety
        /// They lie in one of the object's loaded segments.
        unsafe fn bytes(&self, at: u64, len: usize) -> &'a [u8] {
            let start = std::ptr::with_exposed_provenance(self.bias.wrapping_add(at as usize));
            // SAFETY: mapped and readable by the caller's promise; tables are constant.
            unsafe { std::slice::from_raw_parts(start, len) }
        }

        /// The same bytes, for ever (M2).
        fn keep(&self, bytes: &'a [u8]) -> &'static [u8] {
            if self.name.is_empty() || self.name.starts_with(b"linux-vdso") {
                // SAFETY: the main program and the vDSO are never unloaded.
                unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) }
            } else {
                Box::leak(bytes.into())
            }
        }
    }

    /// The length of the .eh_frame section at the start of `bytes`: up to its terminator, or to where it makes no sense.
    pub(super) fn section_len(bytes: &[u8]) -> usize {
        let mut at = 0;
        while let Some(len) = bytes.get(at..at + 4) {
            let len = u32::from_ne_bytes(len.try_into().expect("four bytes")) as usize;
            // 0 is the terminator; the 64-bit form (all ones) is written by nobody.
            if len == 0 || len == u32::MAX as usize || len > bytes.len() - at - 4 {
                break;
            }
            at += 4 + len;
        }
        at
    }
}

/// Elsewhere there is no list: the probe then offers frame pointers or nothing.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    use super::*;

    pub(super) fn list(_old: Option<&'static Modules>) -> Option<Modules> {
        None
    }
}
