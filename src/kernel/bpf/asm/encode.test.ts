import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../../../testkit/support/fast-check.ts";
import { disassemble } from "./disassemble.ts";
import { encodeProgram } from "./encode.ts";
import type { Instruction } from "./instruction.ts";
import { decodeProgram } from "./testing/decode.ts";
import { anyInstructions } from "./testing/instruction-arbitrary.ts";
import { parseDisassembly } from "./testing/parse-disassembly.ts";

const descriptorOf = (map: string): number => Number(map.slice(2));

/** Bytes from reference ebpf-programs.md §4.1 and their text in the kernel's notation. */
const KNOWN: readonly (readonly [Instruction, string, string])[] = [
  [{ kind: "alu", operation: "mov", bits: 64, destination: "r6", source: "r1" }, "bf16000000000000", "0: (bf) r6 = r1"],
  [{ kind: "alu", operation: "mov", bits: 64, destination: "r0", source: 1 }, "b700000001000000", "0: (b7) r0 = 1"],
  [{ kind: "alu", operation: "add", bits: 64, destination: "r2", source: -8 }, "07020000f8ffffff", "0: (07) r2 += -8"],
  [{ kind: "alu", operation: "mov", bits: 32, destination: "r1", source: "r2" }, "bc21000000000000", "0: (bc) w1 = w2"],
  [
    { kind: "load", width: 4, destination: "r1", base: "r6", offset: 24 },
    "6161180000000000",
    "0: (61) r1 = *(u32 *)(r6 +24)",
  ],
  [{ kind: "store", width: 8, base: "r10", offset: -8, source: 0 }, "7a0af8ff00000000", "0: (7a) *(u64 *)(r10 -8) = 0"],
  [
    { kind: "store", width: 2, base: "r10", offset: -4, source: "r1" },
    "6b1afcff00000000",
    "0: (6b) *(u16 *)(r10 -4) = r1",
  ],
  [{ kind: "byte-order", order: "be", bits: 16, destination: "r1" }, "dc01000010000000", "0: (dc) r1 = be16 r1"],
  [{ kind: "load-map", destination: "r1", map: "fd5" }, "18110000050000000000000000000000", "0: (18) r1 = map[fd5]"],
  [{ kind: "call", helper: "map_lookup_elem" }, "8500000001000000", "0: (85) call bpf_map_lookup_elem#1"],
  [{ kind: "exit" }, "9500000000000000", "0: (95) exit"],
];

test("instructions have the bytes and the text that the kernel gives them", () => {
  for (const [instruction, hex, line] of KNOWN) {
    assert.equal(Buffer.from(encodeProgram([instruction], descriptorOf)).toString("hex"), hex);
    assert.deepEqual(disassemble([instruction]), [line]);
  }
});

test("jumps count slots, of which a wide immediate has two", () => {
  const program: readonly Instruction[] = [
    { kind: "jump-if", comparison: "==", bits: 64, left: "r1", right: -1, target: 2 },
    { kind: "load-wide", destination: "r0", value: 0x1122334455667788n },
    { kind: "exit" },
  ];
  assert.equal(
    Buffer.from(encodeProgram(program)).toString("hex"),
    "15010200ffffffff" + "18000000887766550000000044332211" + "9500000000000000",
  );
  assert.deepEqual(disassemble(program), [
    "0: (15) if r1 == 0xffffffff goto pc+2",
    "1: (18) r0 = 0x1122334455667788",
    "3: (95) exit",
  ]);
});

test("decoding is the inverse of encoding, and parsing that of disassembling", () => {
  fc.assert(
    fc.property(anyInstructions, (program) => {
      assert.deepEqual(decodeProgram(encodeProgram(program, descriptorOf)), program);
      assert.deepEqual(parseDisassembly(disassemble(program)), program);
    }),
    { numRuns: 500 },
  );
});

test("numbers without room in their field are refused", () => {
  const load = (offset: number): Instruction => ({ kind: "load", width: 1, destination: "r1", base: "r2", offset });
  assert.throws(() => encodeProgram([load(0x8000)]), /an offset has 16 bits/);
  const jump: Instruction = { kind: "jump", target: 1 };
  assert.throws(() => encodeProgram([jump]), /leaves the program/);
  const mov: Instruction = { kind: "alu", operation: "mov", bits: 64, destination: "r1", source: 2 ** 31 };
  assert.throws(() => encodeProgram([mov]), /an immediate has 32 bits/);
});

test("what the assembler does not make is named with its slot", () => {
  assert.throws(
    () => decodeProgram(Uint8Array.of(0x95, 0, 0, 0, 0, 0, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0)),
    /slot 1: opcode 0xff/,
  );
  assert.throws(() => decodeProgram(new Uint8Array(9)), /8 bytes/);
});
