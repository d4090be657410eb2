import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, statSync } from "node:fs";
import { after, type TestContext, test } from "node:test";
import { interpret } from "../../../testkit/fakes/bpf/interpreter.ts";
import { BpfMachine, memoryBpf } from "../../../testkit/fakes/bpf/memory-bpf.ts";
import { namespacePath } from "../../../testkit/net/network-namespace.ts";
import fc from "../../../testkit/support/fast-check.ts";
import { inNetworkNamespace } from "../network-namespace.ts";
import { disassemble } from "./asm/disassemble.ts";
import { arithmeticProgram } from "./asm/testing/instruction-arbitrary.ts";
import { kernelBpf } from "./kernel-bpf.ts";
import { type BpfRig, bpfContract } from "./testing/bpf-contract.ts";
import { eventually } from "./testing/eventually.ts";
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
      cgroup: "/cgroup",
      cgroupId: 5n,
      folder: "/bpf/here",
      inNetwork: (work) => work(),
      addInterface() {
        machine.interfaces.add(7);
        return 7;
      },
      removeInterface: (index) => machine.interfaces.remove(index),
      setConntrack: async (isLoaded) => {
        machine.hasConntrack = isLoaded;
      },
    };
  },
});

/** One for all: each test has a folder of its own. */
const fileSystem =
  reasonToSkip() === false ? testBpffs({ after }).then(({ path }) => path) : Promise.resolve("no file system");
let folders = 0;

bpfContract({
  name: "of the kernel",
  skip: reasonToSkip(),
  open: async (t) => {
    const cgroup = testCgroup(t);
    const network = testNetwork(t);
    const folder = `${await fileSystem}/t${folders++}`;
    mkdirSync(folder);
    const cgroupId = statSync(cgroup, { bigint: true }).ino;
    return { bpf: kernelBpf(), cgroup, cgroupId, folder, ...network, setConntrack: conntrackOfMachine() };
  },
});

/** Only in a virtual machine of the test's own, and only where it is a module. */
function conntrackOfMachine(): BpfRig["setConntrack"] {
  if (process.env.KPTS_VM === undefined) return undefined;
  execFileSync("modprobe", ["nf_nat"]);
  if (!existsSync("/sys/module/nf_nat/initstate")) return undefined;
  // A namespace that was removed holds its rules, and these modules, for some moments.
  const takeAway = () => eventually(() => unload("nf_conntrack"));
  return async (isLoaded) => void (isLoaded ? execFileSync("modprobe", ["nf_nat"]) : await takeAway());
}

/** With all that need it. */
function unload(module: string): void {
  if (!existsSync(`/sys/module/${module}`)) return;
  for (const holder of readdirSync(`/sys/module/${module}/holders`)) unload(holder);
  execFileSync("rmmod", [module]);
}

/** A namespace that is made when an interface is asked for, and removed after the test. */
function testNetwork(t: TestContext): Pick<BpfRig, "inNetwork" | "addInterface" | "removeInterface"> {
  const name = `kpts-bpf-${process.pid}`;
  const inNetwork = <T>(work: () => T): T => inNetworkNamespace(namespacePath(name), work);
  const ip = (...argv: string[]) => execFileSync("ip", argv, { encoding: "utf8" });
  return {
    inNetwork,
    addInterface() {
      ip("netns", "add", name);
      t.after(() => ip("netns", "delete", name));
      ip("-n", name, "link", "add", "kpts0", "type", "veth", "peer", "name", "kpts1");
      return Number(ip("-n", name, "-o", "link", "show", "kpts0").split(":")[0]);
    },
    removeInterface: () => void ip("-n", name, "link", "delete", "kpts0"),
  };
}

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
