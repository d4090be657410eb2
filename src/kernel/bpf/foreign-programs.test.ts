import assert from "node:assert/strict";
import { test } from "node:test";
import { BpfError } from "./bpf-error.ts";
import { foreignPrograms as placedPrograms } from "./foreign-programs.ts";
import { HOOKS } from "./hooks.ts";
import { idsAt, kernelBpf, nameOfProgram } from "./kernel-bpf.ts";
import { reasonToSkip, testCgroup } from "./testing/test-cgroup.ts";

const foreignPrograms = (...given: Parameters<typeof placedPrograms>) =>
  placedPrograms(...given).map(({ what }) => what);
const DEVICES = new Map([[2, "eth0"]]);
const NONE = { idsAt: () => [], netfilterPrograms: () => [], nameOfProgram: () => undefined };

test("programs are named by id, name and place, and this program's own are no strangers", () => {
  const names = new Map([
    [17, "cil_from_netdev"],
    [18, "kpts_connect4"],
  ]);
  const found = foreignPrograms(DEVICES, undefined, "/", {
    idsAt: (_, type) => ({ 46: [17], [HOOKS.connect4.attachType]: [18], 1: [19] })[type] ?? [],
    // The program 21 is gone meanwhile.
    netfilterPrograms: () => [20, 21],
    nameOfProgram: (id) => names.get(id) ?? (id === 21 ? undefined : ""),
  });
  assert.deepEqual(found, [
    "program 17 (cil_from_netdev) at eth0 ingress (tcx): its content is not read",
    "program 19 at the node's cgroup (egress): its content is not read",
    "program 20 at a netfilter hook of this or another namespace: its content is not read",
  ]);
});

test("what may not be asked is said, and what the kernel does not have is not there", () => {
  const failing = (code: "EPERM" | "EINVAL") => () => {
    throw new BpfError(code, code);
  };
  const refused = failing("EPERM");
  const refusing = { idsAt: refused, netfilterPrograms: refused, nameOfProgram: refused };
  assert.deepEqual(foreignPrograms(DEVICES, undefined, "/", refusing), [
    "not read: tcx programs (needs NET_ADMIN): EPERM",
    "not read: programs of cgroups (needs NET_ADMIN): EPERM",
    "not read: netfilter's BPF links (needs SYS_ADMIN): EPERM",
  ]);
  assert.deepEqual(foreignPrograms(DEVICES, undefined, "/", { ...refusing, idsAt: failing("EINVAL") }), [
    "not read: netfilter's BPF links (needs SYS_ADMIN): EPERM",
  ]);
  const found = foreignPrograms(DEVICES, undefined, "/", {
    ...NONE,
    idsAt: () => [17],
    nameOfProgram: failing("EPERM"),
  });
  assert.equal(found[0], "program 17 at eth0 ingress (tcx): its content is not read", "a name needs SYS_ADMIN");
});

test("where the kernel lists its hooks, nothing else is asked about netfilter's links", () => {
  const entry = { family: "ip", hook: "forward", priority: -5 } as const;
  const more = { device: undefined, function: "nf_hook_run_bpf", module: undefined, chain: undefined };
  const entries = [7, undefined].map((program) => ({ ...entry, ...more, program }));
  const netfilterPrograms = () => assert.fail("asked");
  assert.deepEqual(foreignPrograms(DEVICES, entries, "/", { ...NONE, netfilterPrograms, nameOfProgram: () => "" }), [
    "program 7 at the hook ip forward, priority -5: its content is not read",
  ]);
});

test("the kernel names what is attached to a cgroup", { skip: reasonToSkip() }, (t) => {
  const [cgroup, bpf] = [testCgroup(t), kernelBpf()];
  const found = () => foreignPrograms(new Map(), undefined, cgroup, { ...NONE, idsAt, nameOfProgram });
  assert.deepEqual(found(), []);
  for (const name of ["stranger", "kpts_connect4"]) {
    // r0 = 1; exit
    const code = Buffer.from("b7000000010000009500000000000000", "hex");
    const program = bpf.loadProgram({ name, code, references: [] }, name === "stranger" ? "sendmsg4" : "connect4");
    const link = bpf.attach(program, name === "stranger" ? "sendmsg4" : "connect4", cgroup);
    t.after(() => {
      link.close();
      program.close();
    });
  }
  assert.equal(found().length, 1);
  assert.match(
    found()[0] ?? "",
    /^program \d+ \(stranger\) at the node's cgroup \(sendmsg4\): its content is not read$/,
  );
});
