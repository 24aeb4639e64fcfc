//! The walk along saved frame pointers: two loads per frame.

use super::Regs;
use super::stack::{Stack, WORD, code_address};

/// Writes `regs.pc` and the return addresses of the frame-pointer chain into `out`; returns how many.
///
/// Both architectures lay a frame record out alike: the caller's frame pointer, and above it the return address.
#[inline]
pub(super) fn walk(regs: Regs, stack: Stack, out: &mut [usize]) -> usize {
    let Some((innermost, callers)) = out.split_first_mut() else { return 0 };
    *innermost = regs.pc;
    let (mut n, mut fp) = (1, regs.fp);
    stack.uses_fp();
    for caller in callers {
        let (Some(next), Some(ra)) = (stack.read_fp(fp), stack.read_return(fp.wrapping_add(WORD))) else { break };
        let Some(pc) = code_address(ra) else { break };
        *caller = pc;
        n += 1;
        stack.uses_fp();
        // U3: records lie the higher, the further out their frames are.
        if next <= fp {
            break;
        }
        fp = next;
    }
    n
}
