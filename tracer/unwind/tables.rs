//! Unwind tables, decoded: from a program counter to a [`Rule`]. The slow half of a table walk, once per PC and cache.
//!
//! A row of .eh_frame gives a rule for the CFA and for each register. What we need of it (CFA, return address, frame
//! pointer) nearly always fits a [`Rule`]. DWARF expressions do not: assembly that saves the stack pointer in the frame
//! (the crypto libraries), procedure-linkage tables, signal frames. They are evaluated on the spot, without a cache.
//!
//! Nothing here allocates: the context is made in advance, and gimli keeps the rest on the stack (U4).

use super::Regs;
use super::modules::{Bytes, Module, Modules, Tables, note_unknown_code};
use super::rule::{Rule, leads_up};
use super::stack::{Stack, code_address};
use gimli::{
    CfaRule, Encoding, Evaluation, EvaluationResult, EvaluationStorage, Location, Piece, Register, RegisterRule,
    UnwindContextStorage, UnwindExpression, UnwindSection, UnwindTableRow, Value,
};

#[cfg(target_arch = "x86_64")]
mod register {
    use gimli::{Register, X86_64};
    pub(super) const SP: Register = X86_64::RSP;
    pub(super) const FP: Register = X86_64::RBP;
    pub(super) const RA: Register = X86_64::RA;
}
#[cfg(target_arch = "aarch64")]
mod register {
    use gimli::{AArch64, Register};
    pub(super) const SP: Register = AArch64::SP;
    pub(super) const FP: Register = AArch64::X29;
    pub(super) const RA: Register = AArch64::X30;
}
use register::{FP, RA, SP};

/// Room for decoding one row: fixed, made once per cache.
pub(super) type Context = gimli::UnwindContext<usize, Fixed>;

/// Fixed-size storage. The largest rows we know of, glibc's setcontext and signal frame, name 17 registers on x86-64 and 22
/// on aarch64, and rows are remembered one deep; a row that does not fit is treated as none.
pub(super) struct Fixed;

const ROW_REGISTERS_MAX: usize = if cfg!(target_arch = "aarch64") { 36 } else { 20 };

impl UnwindContextStorage<usize> for Fixed {
    type Rules = [(Register, RegisterRule<usize>); ROW_REGISTERS_MAX];
    type Stack = [UnwindTableRow<usize, Fixed>; 4];
}

impl EvaluationStorage<Bytes> for Fixed {
    type Stack = [Value; 16];
    type ExpressionStack = [(Bytes, Bytes); 2];
    type Result = [Piece<Bytes>; 1];
}

/// What a table says about a PC.
pub(super) enum Decoded {
    /// A rule that holds whenever this PC is met.
    Rule(Rule),
    /// A rule that holds for an innermost frame only: not to be remembered.
    RuleOnce(Rule),
    /// No rule: the caller's registers, this time.
    Caller(Option<Regs>),
}

/// What is known about the frame at `lookup` (a PC, or a return address less one).
pub(super) fn decode(
    modules: Option<&'static Modules>,
    context: &mut Context,
    lookup: usize,
    regs: Regs,
    innermost: bool,
    stack: Stack,
) -> Decoded {
    let Some(module) = modules.and_then(|m| m.find(lookup)) else {
        note_unknown_code();
        return Decoded::Rule(Rule::CHAIN);
    };
    let Some((tables, row, encoding)) = row(module, context, lookup) else {
        // Code that nobody described: an innermost frame may be anywhere in a function; its first instruction is as good
        // a guess as any, and right for the stubs of a procedure-linkage table.
        return if innermost { Decoded::RuleOnce(Rule::ENTRY) } else { Decoded::Rule(Rule::CHAIN) };
    };
    match as_rule(row) {
        Some(rule) => Decoded::Rule(rule),
        None => Decoded::Caller(evaluate(tables, row, encoding, regs, innermost, stack)),
    }
}

type Row = UnwindTableRow<usize, Fixed>;

/// The row for `lookup`.
#[inline(never)]
fn row<'c>(
    module: &'static Module,
    context: &'c mut Context,
    lookup: usize,
) -> Option<(&'static Tables, &'c Row, Encoding)> {
    let tables = module.tables.as_ref()?;
    let address = lookup.wrapping_sub(module.bias) as u64;
    let fde =
        tables.header.table()?.fde_for_address(&tables.frames, &tables.bases, address, gimli::EhFrame::cie_from_offset);
    let fde = fde.ok()?;
    let encoding = fde.cie().encoding();
    let row = fde.unwind_info_for_address(&tables.frames, &tables.bases, context, address).ok()?;
    Some((tables, row, encoding))
}

/// The row as a rule, if it is one of the usual kind.
fn as_rule(row: &Row) -> Option<Rule> {
    let CfaRule::RegisterAndOffset { register, offset: cfa } = *row.cfa() else { return None };
    let from_fp = match register {
        SP => false,
        FP => true,
        _ => return None,
    };
    let fp = match row.register(FP) {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => None,
        Some(RegisterRule::Offset(offset)) => Some(offset),
        Some(_) => return None,
    };
    let ra = match row.register(RA) {
        Some(RegisterRule::Offset(offset)) => Some(offset),
        // On x86-64 the CIE always says where the return address is; a function without one (_start) ends the stack. On
        // aarch64 compilers leave the rule out as long as the address is in the register.
        None | Some(RegisterRule::SameValue) if cfg!(target_arch = "aarch64") => None,
        None | Some(RegisterRule::Undefined) => return Some(Rule::END_OF_STACK),
        Some(_) => return None,
    };
    Rule::new(from_fp, cfa, fp, ra)
}

/// The caller's registers by a row that is no [`Rule`].
#[inline(never)]
fn evaluate(tables: &Tables, row: &Row, encoding: Encoding, regs: Regs, innermost: bool, stack: Stack) -> Option<Regs> {
    // Perhaps; and what is read below is noted as it is.
    stack.uses_fp();
    stack.computes();
    let expression = |e: &UnwindExpression<usize>, initial: Option<usize>| {
        evaluate_expression(tables, e, encoding, regs, initial, stack)
    };
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            value_of(*register, regs)?.wrapping_add_signed(*offset as isize)
        }
        CfaRule::Expression(e) => expression(e, None)?,
    };
    let register = |rule: Option<RegisterRule<usize>>, same: usize| match rule {
        None | Some(RegisterRule::SameValue) => Some(same),
        Some(RegisterRule::Offset(o)) => stack.read(cfa.wrapping_add_signed(o as isize)),
        Some(RegisterRule::ValOffset(o)) => Some(cfa.wrapping_add_signed(o as isize)),
        Some(RegisterRule::Register(r)) => value_of(r, regs),
        Some(RegisterRule::Expression(e)) => stack.read(expression(&e, Some(cfa))?),
        Some(RegisterRule::ValExpression(e)) => expression(&e, Some(cfa)),
        Some(_) => None,
    };
    let pc = code_address(register(row.register(RA), regs.lr)?)?;
    let fp = register(row.register(FP), regs.fp).unwrap_or(regs.fp);
    let caller = Regs { pc, sp: cfa, fp, lr: 0 };
    leads_up(regs, innermost, caller, stack).then_some(caller)
}

/// What a frame's registers are known to hold.
fn value_of(register: Register, regs: Regs) -> Option<usize> {
    match register {
        SP => Some(regs.sp),
        FP => Some(regs.fp),
        // x86-64 has a register number for the PC; aarch64's is the link register.
        RA => Some(if cfg!(target_arch = "aarch64") { regs.lr } else { regs.pc }),
        _ => None,
    }
}

/// An address that a DWARF expression computes. `initial` is what it starts with on its stack.
fn evaluate_expression(
    tables: &Tables,
    expression: &UnwindExpression<usize>,
    encoding: Encoding,
    regs: Regs,
    initial: Option<usize>,
    stack: Stack,
) -> Option<usize> {
    let mut machine = Evaluation::<Bytes, Fixed>::new_in(expression.get(&tables.frames).ok()?.0, encoding);
    machine.set_max_iterations(1000);
    if let Some(initial) = initial {
        machine.set_initial_value(initial as u64);
    }
    let mut result = machine.evaluate().ok()?;
    loop {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                machine.resume_with_register(Value::Generic(value_of(register, regs)? as u64)).ok()?
            }
            EvaluationResult::RequiresMemory { address, size: 8, space: None, .. } => {
                machine.resume_with_memory(Value::Generic(stack.read(address as usize)? as u64)).ok()?
            }
            _ => return None,
        };
    }
    match machine.as_result().last()?.location {
        Location::Address { address } => Some(address as usize),
        _ => None,
    }
}
