import assert from "node:assert/strict";
import { mkdirSync, statSync } from "node:fs";
import { after, test } from "node:test";
import { assemble } from "../../../testkit/fakes/bpf/encode.ts";
import { interpret } from "../../../testkit/fakes/bpf/interpreter.ts";
import { BpfMachine, memoryBpf, memoryRunnable } from "../../../testkit/fakes/bpf/memory-bpf.ts";
import { arithmeticProgram } from "../../../testkit/fakes/bpf/random-programs.ts";
import fc from "../../../testkit/support/fast-check.ts";
import { kernelBpf } from "./kernel-bpf.ts";
import { bpfContract } from "./testing/bpf-contract.ts";
import { runnable } from "./testing/run-program.ts";
import { testBpffs } from "./testing/test-bpffs.ts";
import { reasonToSkip, testCgroup } from "./testing/test-cgroup.ts";

bpfContract({
  name: "in memory",
  skip: false,
  open: () => {
    const machine = new BpfMachine(new Map([["/cgroup", 5n]]));
    const bpf = memoryBpf(machine);
    bpf.pins.makeFolder("/bpf/here");
    return {
      bpf,
      runnable: memoryRunnable,
      cgroup: "/cgroup",
      cgroupId: 5n,
      folder: "/bpf/here",
    };
  },
});

/** One file system for all tests: each has a folder of its own. */
const fileSystem =
  reasonToSkip() === false ? testBpffs({ after }).then(({ path }) => path) : Promise.resolve("no file system");
let folders = 0;

bpfContract({
  name: "of the kernel",
  skip: reasonToSkip(),
  open: async (t) => {
    const cgroup = testCgroup(t);
    const folder = `${await fileSystem}/t${folders++}`;
    mkdirSync(folder);
    const cgroupId = statSync(cgroup, { bigint: true }).ino;
    return { bpf: kernelBpf(), runnable, cgroup, cgroupId, folder };
  },
});

test("the interpreter and the kernel agree about arithmetic and jumps", { skip: reasonToSkip() }, () => {
  fc.assert(
    fc.property(arithmeticProgram, (instructions) => {
      const program = assemble("random", instructions);
      const loaded = runnable(program);
      try {
        const expected = Number(BigInt.asUintN(32, interpret(program, new Uint8Array(8)).result));
        assert.equal(loaded.run(new Uint8Array(8)), expected);
      } finally {
        loaded.close();
      }
    }),
    { numRuns: 300 },
  );
});
