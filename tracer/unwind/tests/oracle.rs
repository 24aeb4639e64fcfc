//! Every row of every loaded object's tables, against framehop: the same step from the same registers on the same stack.

use super::*;
use crate::unwind::{cache, modules, rule::Rule, stack::Stack, tables};
#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{CacheAarch64 as TheirCache, UnwindRegsAarch64 as TheirRegs, UnwinderAarch64 as Theirs};
#[cfg(target_arch = "x86_64")]
use framehop::x86_64::{CacheX86_64 as TheirCache, UnwindRegsX86_64 as TheirRegs, UnwinderX86_64 as Theirs};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder};
use gimli::{CieOrFde, EhFrame, UnwindSection};

#[cfg(target_arch = "x86_64")]
fn theirs(regs: Regs) -> TheirRegs {
    TheirRegs::new(regs.pc as u64, regs.sp as u64, regs.fp as u64)
}
#[cfg(target_arch = "x86_64")]
fn ours(regs: &TheirRegs, pc: u64) -> Regs {
    Regs { pc: pc as usize, sp: regs.sp() as usize, fp: regs.bp() as usize, lr: 0 }
}
#[cfg(target_arch = "aarch64")]
fn theirs(regs: Regs) -> TheirRegs {
    TheirRegs::new(regs.lr as u64, regs.sp as u64, regs.fp as u64)
}
#[cfg(target_arch = "aarch64")]
fn ours(regs: &TheirRegs, pc: u64) -> Regs {
    Regs { pc: pc as usize, sp: regs.sp() as usize, fp: regs.fp() as usize, lr: 0 }
}

#[derive(Debug, Default)]
struct Tally {
    functions: usize,
    rows: usize,
    same: usize,
    expressions: usize,
    ends: usize,
}

#[test]
fn every_row() {
    method();
    // A stack of 8 MiB, so that any row's slots lie inside. Each word tells where it is, may be code, and may be a frame
    // pointer further out, on which framehop insists for aarch64.
    let mut words = vec![0usize; 1 << 20];
    let top = words.as_ptr_range().end.addr();
    words.iter_mut().enumerate().for_each(|(i, w)| *w = top + i * 16);
    let base = words.as_mut_ptr().expose_provenance();
    // SAFETY: the vector outlives the value.
    let stack = unsafe { Stack::new(base, top) };
    let read = |address: u64| stack.read(address as usize).map(|w| w as u64).ok_or(());

    let mut tally = Tally::default();
    for module in modules::current().unwrap().all() {
        let Some(tables) = &module.tables else { continue };
        let (section, header) = tables.raw();
        let svma = |bytes: &[u8], at: u64| Some(at..at + bytes.len() as u64);
        let info = ExplicitModuleSectionInfo {
            base_svma: 0,
            eh_frame_svma: svma(section, tables.bases.eh_frame.section.unwrap()),
            eh_frame_hdr_svma: svma(header, tables.bases.eh_frame_hdr.section.unwrap()),
            eh_frame: Some(section),
            eh_frame_hdr: Some(header),
            ..Default::default()
        };
        let code = module.code.start as u64..module.code.end as u64;
        let mut their = Theirs::<&[u8]>::new();
        their.add_module(Module::new("m".into(), code, module.bias as u64, info));
        let mut their_cache = TheirCache::new();
        let mut context = Box::new(tables::Context::new_in());

        let mut entries = tables.frames.entries(&tables.bases);
        while let Some(entry) = entries.next().unwrap() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let fde = partial.parse(EhFrame::cie_from_offset).unwrap();
            tally.functions += 1;
            let mut row_starts = Vec::new();
            let mut rows = fde.rows(&tables.frames, &tables.bases, &mut context).unwrap();
            while let Some(row) = rows.next_row().expect("no row is too large for our storage") {
                row_starts.push(row.start_address());
                row_starts.push(row.end_address().saturating_sub(1).max(row.start_address()));
            }
            for start in row_starts {
                let pc = (start as usize).wrapping_add(module.bias);
                if !module.code.contains(&pc) {
                    continue;
                }
                tally.rows += 1;
                let sp = base + (1 << 19) * 8;
                let mut regs = Regs { pc: pc + 1, sp, fp: sp + 0x1000, lr: top + 8 };
                let decoded = tables::decode(modules::current(), &mut context, pc, regs, false, stack);
                let rule = match decoded {
                    tables::Decoded::Rule(rule) if rule == Rule::END_OF_STACK => {
                        tally.ends += 1;
                        rule
                    }
                    tables::Decoded::Rule(rule) if !rule.is_guess() => rule,
                    tables::Decoded::Caller(_) => {
                        tally.expressions += 1;
                        continue;
                    }
                    _ => panic!("{pc:#x} has a row but is taken for unknown"),
                };
                // Rows that need the link register are for innermost frames.
                let innermost = rule.in_place(false) != rule;
                let address = if innermost {
                    regs.pc = pc;
                    FrameAddress::from_instruction_pointer(pc as u64)
                } else {
                    FrameAddress::from_return_address(regs.pc as u64).unwrap()
                };
                let next = rule.apply(regs, innermost, stack);
                let mut their_regs = theirs(regs);
                let found = their.unwind_frame(address, &mut their_regs, &mut their_cache, &mut { read });
                let expected = found.ok().flatten().map(|pc| ours(&their_regs, pc));
                assert_eq!(next, expected, "pc {pc:#x} (object's {start:#x}) {rule:?}");
                tally.same += 1;
            }
        }
    }
    println!("{tally:?}");
    assert!(tally.functions > 1_000 && tally.rows > 5_000, "{tally:?}");
    // What we leave to expressions is rare.
    assert!(tally.expressions * 100 < tally.rows, "{tally:?}");
    assert!(tally.ends > 0, "_start and clone3 end their stacks: {tally:?}");
}

/// Both unwinders on the stack of this test, to its very end.
#[test]
fn a_whole_stack() {
    method();
    let seen = std::thread::spawn(|| {
        stacks::recurse(5, &mut |regs| {
            let mut theirs = Vec::new();
            let mut their_regs = self::theirs(regs);
            let mut unwinder = Theirs::<&[u8]>::new();
            for m in modules::current().unwrap().all() {
                let Some(tables) = &m.tables else { continue };
                let (section, header) = tables.raw();
                let at = |bytes: &[u8], at: u64| Some(at..at + bytes.len() as u64);
                let info = ExplicitModuleSectionInfo {
                    eh_frame_svma: at(section, tables.bases.eh_frame.section.unwrap()),
                    eh_frame_hdr_svma: at(header, tables.bases.eh_frame_hdr.section.unwrap()),
                    eh_frame: Some(section),
                    eh_frame_hdr: Some(header),
                    ..Default::default()
                };
                unwinder.add_module(Module::new(
                    "m".into(),
                    m.code.start as u64..m.code.end as u64,
                    m.bias as u64,
                    info,
                ));
            }
            let (low, high) = thread_stack();
            assert!((low..high).contains(&regs.sp));
            // SAFETY: the system says that this is the thread's stack.
            let stack = unsafe { Stack::new(regs.sp, high) };
            let mut cache = TheirCache::new();
            let mut address = FrameAddress::from_instruction_pointer(regs.pc as u64);
            let mut read = |a: u64| stack.read(a as usize).map(|w| w as u64).ok_or(());
            theirs.push(regs.pc);
            while let Ok(Some(pc)) = unwinder.unwind_frame(address, &mut their_regs, &mut cache, &mut read) {
                theirs.push(pc as usize);
                address = FrameAddress::from_return_address(pc).unwrap();
            }
            let mut ours = [0; 128];
            let n = cache::walk(regs, stack, &mut Cache::new(), &mut ours);
            // (On aarch64 theirs takes a frame pointer of 0 for the end, one function before it.)
            let further = if cfg!(target_arch = "aarch64") { 1 } else { 0 };
            assert!(ours[..n].starts_with(&theirs) && n <= theirs.len() + further, "{:x?} {theirs:x?}", &ours[..n]);
            assert!(n > 10);
        })
    });
    seen.join().unwrap();
}

/// The stack of this thread: its lowest address and its end.
fn thread_stack() -> (usize, usize) {
    let mut attr = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut low, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: the calls initialise, read and destroy one attribute object of our own.
    unsafe {
        assert_eq!(libc::pthread_getattr_np(libc::pthread_self(), attr.as_mut_ptr()), 0);
        assert_eq!(libc::pthread_attr_getstack(attr.as_ptr(), &mut low, &mut size), 0);
        libc::pthread_attr_destroy(attr.as_mut_ptr());
    }
    (low as usize, low as usize + size)
}
