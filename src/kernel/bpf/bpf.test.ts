import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { test } from "node:test";
import { interpret } from "../../../testkit/fakes/bpf/interpreter.ts";
import { memoryBpf } from "../../../testkit/fakes/bpf/memory-bpf.ts";
import fc from "../../../testkit/support/fast-check.ts";
import { disassemble } from "./asm/disassemble.ts";
import { arithmeticProgram } from "./asm/testing/instruction-arbitrary.ts";
import { kernelBpf } from "./kernel-bpf.ts";
import { bpfContract } from "./testing/bpf-contract.ts";
import { reasonToSkip, testCgroup } from "./testing/test-cgroup.ts";

bpfContract({
  name: "in memory",
  skip: false,
  open: () => ({ bpf: memoryBpf(new Map([["/cgroup", 5n]])), cgroup: "/cgroup", cgroupId: 5n }),
});

bpfContract({
  name: "of the kernel",
  skip: reasonToSkip(),
  open: (t) => {
    const cgroup = testCgroup(t);
    return { bpf: kernelBpf(), cgroup, cgroupId: statSync(cgroup, { bigint: true }).ino };
  },
});

test("the interpreter and the kernel agree about arithmetic and jumps", { skip: reasonToSkip() }, () => {
  const bpf = kernelBpf();
  fc.assert(
    fc.property(arithmeticProgram, (instructions) => {
      const loaded = bpf.loadProgram({ name: "random", instructions, notes: [], maps: [] }, "test");
      try {
        const expected = Number(BigInt.asUintN(32, interpret(instructions, new Uint8Array(8)).result));
        assert.equal(loaded.run(new Uint8Array(8)), expected, disassemble(instructions).join("\n"));
      } finally {
        loaded.close();
      }
    }),
    { numRuns: 300 },
  );
});
