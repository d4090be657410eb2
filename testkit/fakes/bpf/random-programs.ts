/** Random programs whose result does not depend on the machine. */
import fc from "../../support/fast-check.ts";
import type { Instruction, Register } from "./instruction.ts";
import { ALU_CODES, JUMP_CODES } from "./opcodes.ts";

const names = <Name extends string>(table: Readonly<Record<Name, unknown>>): Name[] => Object.keys(table) as Name[];

const immediate = fc.oneof(
  fc.integer({ min: -0x8000_0000, max: 0x7fff_ffff }),
  fc.constantFrom(0, 1, -1, 31, 32, 63, 64, 255, 0x7fff_ffff, -0x8000_0000),
);
const bits = fc.constantFrom(32 as const, 64 as const);

const SCALARS: readonly Register[] = ["r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9"];

/**
 * Programs that the verifier accepts and that return a number: all registers set, then arithmetic and forward jumps,
 * then `exit` with the registers mixed into r0.
 */
export const arithmeticProgram: fc.Arbitrary<readonly Instruction[]> = fc
  .integer({ min: 1, max: 40 })
  .chain((count) => {
    const register = fc.constantFrom(...SCALARS);
    const steps = Array.from({ length: count }, (_, index) => arithmeticStep(register, SCALARS.length + index, count));
    const start = fc.array(fc.bigInt({ min: 0n, max: (1n << 64n) - 1n }), {
      minLength: SCALARS.length,
      maxLength: SCALARS.length,
    });
    return fc.tuple(start, fc.tuple(...steps));
  })
  .map(([start, steps]) => [
    ...start.map(
      (value, index): Instruction => ({
        kind: "load-wide",
        destination: SCALARS[index] ?? "r0",
        value,
      }),
    ),
    ...steps,
    ...SCALARS.slice(1).flatMap((source): Instruction[] => [
      { kind: "alu", operation: "mul", bits: 64, destination: "r0", source: 31 },
      { kind: "alu", operation: "xor", bits: 64, destination: "r0", source },
    ]),
    // A program returns 32 bits: fold the upper half in.
    { kind: "alu", operation: "mov", bits: 64, destination: "r1", source: "r0" },
    { kind: "alu", operation: "rsh", bits: 64, destination: "r1", source: 32 },
    { kind: "alu", operation: "xor", bits: 64, destination: "r0", source: "r1" },
    { kind: "exit" },
  ]);

function arithmeticStep(register: fc.Arbitrary<Register>, index: number, count: number): fc.Arbitrary<Instruction> {
  const end = SCALARS.length + count;
  const alu = fc
    .record({
      kind: fc.constant("alu" as const),
      operation: fc.constantFrom(...names(ALU_CODES)),
      bits,
      destination: register,
      source: fc.oneof(register, immediate),
    })
    .map((step) => acceptable(step));
  return fc.oneof(
    { weight: 6, arbitrary: alu },
    fc.record({
      kind: fc.constant("byte-order" as const),
      order: fc.constantFrom("le" as const, "be" as const),
      bits: fc.constantFrom(16 as const, 32 as const, 64 as const),
      destination: register,
    }),
    {
      weight: 3,
      arbitrary: fc.record({
        kind: fc.constant("jump-if" as const),
        comparison: fc.constantFrom(...names(JUMP_CODES)),
        bits,
        left: register,
        right: fc.oneof(register, immediate),
        target: fc.integer({ min: index + 1, max: Math.min(end, index + 6) }),
      }),
    },
  );
}

/** The verifier rejects a division by an immediate 0 and a shift by an immediate beyond the width. */
function acceptable(step: Extract<Instruction, { kind: "alu" }>): Instruction {
  if (typeof step.source !== "number") return step;
  if (["lsh", "rsh", "arsh"].includes(step.operation)) return { ...step, source: Math.abs(step.source) % step.bits };
  if (["div", "mod"].includes(step.operation) && step.source === 0) return { ...step, source: 7 };
  return step;
}
