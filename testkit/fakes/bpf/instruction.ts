/** Instructions as values: a register is a word and an immediate a number, so that they cannot be confused. */
import type { Width } from "../../../src/kernel/bpf/layout.ts";

/** The kernel's helper functions by number, without `bpf_` (reference ebpf-programs.md §4.3). */
export const HELPERS = {
  map_lookup_elem: 1,
  map_update_elem: 2,
  map_delete_elem: 3,
  ktime_get_ns: 5,
  get_prandom_u32: 7,
  get_socket_cookie: 46,
  get_current_cgroup_id: 80,
  get_netns_cookie: 122,
  set_retval: 187,
} as const;

export type HelperName = keyof typeof HELPERS;

/** `r0` result, `r1`–`r5` arguments (clobbered by every call), `r6`–`r9` preserved, `r10` frame pointer. */
export type Register = "r0" | "r1" | "r2" | "r3" | "r4" | "r5" | "r6" | "r7" | "r8" | "r9" | "r10";
export type Operand = Register | number;

export const REGISTERS: readonly Register[] = ["r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10"];

export type AluOperation =
  | ("add" | "sub" | "mul" | "div" | "or" | "and" | "lsh" | "rsh" | "mod" | "xor" | "mov")
  /** Shifts in copies of the sign. */
  | "arsh";
export type Comparison = "==" | ">" | ">=" | "&" | "!=" | "s>" | "s>=" | "<" | "<=" | "s<" | "s<=";
/** Operation width: 32 bits clear the upper half of the result. */
export type Bits = 32 | 64;

export type Instruction =
  | {
      readonly kind: "alu";
      readonly operation: AluOperation;
      readonly bits: Bits;
      readonly destination: Register;
      readonly source: Operand;
    }
  /** Converts the low `bits` between the host's order and the named one, and clears the rest. */
  | {
      readonly kind: "byte-order";
      readonly order: "le" | "be";
      readonly bits: 16 | 32 | 64;
      readonly destination: Register;
    }
  | {
      readonly kind: "load";
      readonly width: Width;
      readonly destination: Register;
      readonly base: Register;
      readonly offset: number;
    }
  | {
      readonly kind: "store";
      readonly width: Width;
      readonly base: Register;
      readonly offset: number;
      readonly source: Operand;
    }
  /** Adds to a word in memory; returns nothing. */
  | { readonly kind: "atomic-add"; readonly base: Register; readonly offset: number; readonly source: Register }
  | { readonly kind: "load-wide"; readonly destination: Register; readonly value: bigint }
  /** The map itself, for helpers. `map` is its name; loading the program fills in the descriptor. */
  | { readonly kind: "load-map"; readonly destination: Register; readonly map: string }
  /** `target` is an index into the list of instructions. */
  | { readonly kind: "jump"; readonly target: number }
  | {
      readonly kind: "jump-if";
      readonly comparison: Comparison;
      readonly bits: Bits;
      readonly left: Register;
      readonly right: Operand;
      readonly target: number;
    }
  | { readonly kind: "call"; readonly helper: HelperName }
  | { readonly kind: "exit" };

/** Number of 8-byte slots of an instruction: jumps count slots. */
function slotsOf(instruction: Instruction): 1 | 2 {
  return instruction.kind === "load-wide" || instruction.kind === "load-map" ? 2 : 1;
}

/** The slot in which each instruction begins, and a last entry for the end. */
export function slotNumbers(instructions: readonly Instruction[]): readonly number[] {
  const numbers = [0];
  for (const instruction of instructions) numbers.push((numbers.at(-1) ?? 0) + slotsOf(instruction));
  return numbers;
}
