import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { netnsFor, netnsSkip } from "../../../testkit/support/netns.ts";
import { silentLogger } from "../../logging/logger.ts";
import type { IpFamily } from "../../net/ip.ts";
import { signalChild } from "../child-process.ts";
import { type Exec, ExecError, type ExecResult } from "../process.ts";
import { createIptables, type ExecIptablesOptions, findIptables } from "./exec-iptables.ts";
import type { Iptables } from "./iptables.ts";
import { binariesOf } from "./testing/binaries.ts";

/** Fakes the host's tools: answers by command line and records the commands. */
class FakeTools {
  readonly commands: string[] = [];
  readonly #answers = new Map<string, Partial<ExecResult>>();
  onRun: (command: string) => Promise<void> = async () => {};

  constructor(version: string) {
    this.answer("iptables --version", { stdout: `iptables v${version} (legacy)\n` });
    this.answer("ip6tables --version", { stdout: `ip6tables v${version}\n` });
  }

  answer(command: string, result: Partial<ExecResult>): void {
    this.#answers.set(command, result);
  }

  readonly exec: Exec = async (file, args, options) => {
    const command = [file, ...args].join(" ");
    this.commands.push(command);
    for (const _ of options?.stdin ?? []);
    await this.onRun(command);
    return { status: 0, stdout: "", stderr: "", ...this.#answers.get(command) };
  };

  /** The commands since the last call. */
  taken(): string[] {
    return this.commands.splice(0);
  }

  iptables(family: IpFamily = "IPv4"): Promise<Iptables> {
    return createIptables({ family, exec: this.exec, log: silentLogger });
  }
}

test("command lines are those of the reference (iptables-operation.md §10.2)", async () => {
  const tools = new FakeTools("1.8.9");
  const iptables = await tools.iptables();
  assert.deepEqual(tools.taken(), ["iptables --version"]);
  const rule = ["-m", "comment", "--comment", "a b", "-j", "KUBE-A"];
  const check = "iptables -w 5 -C OUTPUT -t nat -m comment --comment a b -j KUBE-A";
  await iptables.ensureChain("nat", "KUBE-A");
  await iptables.chainPresence("nat", "KUBE-A");
  await iptables.deleteChain("nat", "KUBE-A");
  await iptables.save("filter");
  await iptables.restore(["*nat\nCOMMIT\n"]);
  await iptables.restore(["*nat\nCOMMIT\n"], { table: "nat" });
  await iptables.ensureRule("nat", "OUTPUT", rule);
  await iptables.deleteRule("nat", "OUTPUT", rule);
  assert.deepEqual(tools.taken(), [
    "iptables -w 5 -N KUBE-A -t nat",
    "iptables -w 5 -S KUBE-A -t nat",
    "iptables -w 5 -X KUBE-A -t nat",
    "iptables-save -t filter",
    "iptables-restore -w 5 --noflush --counters",
    "iptables-restore -w 5 -T nat --noflush --counters",
    check,
    check,
    "iptables -w 5 -D OUTPUT -t nat -m comment --comment a b -j KUBE-A",
  ]);
  tools.answer(check, { status: 1 });
  await iptables.ensureRule("nat", "OUTPUT", rule);
  await iptables.deleteRule("nat", "OUTPUT", rule);
  assert.deepEqual(tools.taken(), [check, check.replace("-C", "-I"), check]);
});

test("the IPv6 instance runs the IPv6 tools", async () => {
  const tools = new FakeTools("1.8.9");
  const iptables = await tools.iptables("IPv6");
  await iptables.ensureChain("nat", "KUBE-A");
  await iptables.save("nat");
  await iptables.restore([]);
  assert.deepEqual(tools.taken(), [
    "ip6tables --version",
    "ip6tables -w 5 -N KUBE-A -t nat",
    "ip6tables-save -t nat",
    "ip6tables-restore -w 5 --noflush --counters",
  ]);
});

test("status 1 of -N means that the chain exists; other statuses are errors", async () => {
  const tools = new FakeTools("1.8.9");
  const iptables = await tools.iptables();
  tools.answer("iptables -w 5 -N KUBE-A -t nat", { status: 1, stderr: "iptables: Chain already exists.\n" });
  await iptables.ensureChain("nat", "KUBE-A");
  tools.answer("iptables -w 5 -N KUBE-A -t nat", { status: 3, stderr: "can't initialize iptables table `nat'\n" });
  await assert.rejects(iptables.ensureChain("nat", "KUBE-A"), {
    code: "failed",
    status: 3,
    message: "iptables -w 5 -N KUBE-A -t nat: exit status 3: can't initialize iptables table `nat'",
  });
});

test("only a clear answer is an absence: locks, time-outs, foreign tables and broken hosts are unknown", async () => {
  const tools = new FakeTools("1.8.9");
  const iptables = await tools.iptables();
  const cases: readonly (readonly [Partial<ExecResult>, string])[] = [
    [{ status: 0 }, "present"],
    [{ status: 1, stderr: "iptables: No chain/target/match by that name.\n" }, "absent"],
    [{ status: 1, stderr: "chain `KUBE-A' in table `nat' is incompatible, use 'nft' tool.\n" }, "absent"],
    [{ status: 1, stderr: "iptables v1.8.9 (nf_tables): table `nat' is incompatible, use 'nft' tool.\n" }, "unknown"],
    [{ status: 2, stderr: "Chain 'KUBE-B' does not exist\n" }, "absent"],
    [{ status: 3, stderr: "can't initialize iptables table `nat': Permission denied\n" }, "unknown"],
    [{ status: 4, stderr: "Another app is currently holding the xtables lock.\n" }, "unknown"],
    [{ status: -1, stderr: "killed after 300000 ms\n" }, "unknown"],
  ];
  for (const [result, presence] of cases) {
    tools.answer("iptables -w 5 -S KUBE-A -t nat", result);
    tools.answer("iptables -w 5 -C KUBE-A -t nat -j KUBE-B", result);
    assert.equal(await iptables.chainPresence("nat", "KUBE-A"), presence, result.stderr);
    assert.equal(await iptables.rulePresence("nat", "KUBE-A", ["-j", "KUBE-B"]), presence, result.stderr);
  }
});

test("commands of one family run one at a time, and a check and its change are not parted", async () => {
  const tools = new FakeTools("1.8.9");
  const iptables = await tools.iptables();
  const check = "iptables -w 5 -C OUTPUT -t nat -j KUBE-A";
  tools.answer(check, { status: 1 });
  tools.taken();
  let running = 0;
  tools.onRun = async () => {
    running += 1;
    assert.equal(running, 1);
    await new Promise((resolve) => setImmediate(resolve));
    running -= 1;
  };
  await Promise.all([
    iptables.ensureRule("nat", "OUTPUT", ["-j", "KUBE-A"]),
    iptables.save("nat"),
    iptables.ensureRule("nat", "OUTPUT", ["-j", "KUBE-A"]),
  ]);
  const pair = [check, check.replace("-C", "-I")];
  assert.deepEqual(tools.taken(), [...pair, "iptables-save -t nat", ...pair]);
});

test("iptables 1.6.2 and newer are used (iptables-operation.md §10.1)", async () => {
  for (const version of ["1.6.2", "1.8", "1.8.10", "2.0"]) {
    const tools = new FakeTools(version);
    const iptables = await tools.iptables();
    tools.taken();
    await iptables.ensureChain("nat", "KUBE-A");
    await iptables.restore([]);
    assert.deepEqual(tools.taken(), ["iptables -w 5 -N KUBE-A -t nat", "iptables-restore -w 5 --noflush --counters"]);
  }
});

test("what the tool says of tables that cannot be used is said, and what to do", async () => {
  const tools = new FakeTools("1.8.9");
  const said = "iptables v1.8.9 (legacy): can't initialize iptables table `nat': Permission denied (you must be root)";
  tools.answer("iptables -w 5 -t nat -S POSTROUTING", { status: 3, stderr: `${said}\nPerhaps iptables needs more.\n` });
  assert.equal(
    (await findIptables({ family: "IPv4", exec: tools.exec, log: silentLogger }, "tools")).problem,
    `iptables -t nat -S POSTROUTING does not work ("${said}"): ` +
      "install the package iptables, run as root, and make sure the kernel has the nat table",
  );
});

test("a table into which nft has put what the tool does not know is not taken for an empty one, nor for a missing one", async () => {
  const said = "Table `nat' is incompatible, use 'nft' tool.";
  const { tools, options } = nftTools(new Map([["POSTROUTING", 0]]));
  for (const command of ["iptables-save", "iptables-save -t nat"]) tools.answer(command, { stdout: `# ${said}\n` });
  assert.equal((await findIptables(options, "tables")).problem, undefined);
  const iptables = await createIptables(options);
  for (const table of [undefined, "nat"] as const) {
    await assert.rejects(iptables.save(table), { code: "unreadable", output: said });
  }
  const stderr = "iptables v1.8.9 (nf_tables): chain `POSTROUTING' in table `nat' is incompatible, use 'nft' tool.\n";
  tools.answer("iptables -w 5 -t nat -S POSTROUTING", { status: 1, stderr });
  assert.match(
    (await findIptables(options, "tables")).problem ?? "",
    /use 'nft' tool\."\): move what nft has added to that table into a table of another name$/,
  );
});

test("an older iptables is refused by name, before any command of it runs", async () => {
  for (const version of ["1.6.1", "1.6", "1.4.21", "0.9.9"]) {
    const tools = new FakeTools(version);
    const problem = `iptables ${version} is too old: install iptables 1.6.2 or newer`;
    const found = await findIptables({ family: "IPv4", exec: tools.exec, log: silentLogger }, "tools");
    assert.equal(found.problem, problem);
    const iptables = await tools.iptables();
    const refusal = { code: "missing_tool", output: problem };
    await assert.rejects(iptables.ensureChain("nat", "KUBE-A"), refusal);
    await assert.rejects(iptables.rulePresence("nat", "KUBE-A", []), refusal);
    await assert.rejects(iptables.save("nat"), refusal);
    await assert.rejects(iptables.restore([]), { name: "IptablesRestoreError", ...refusal });
    assert.deepEqual(tools.taken(), ["iptables --version", "iptables --version"]);
  }
});

/** An nf_tables kernel with these chain uses, and tools that print a table. */
function nftTools(uses: Map<string, number>, host = { isNftTool: false, hasNat: true }) {
  const tools = new FakeTools("1.8.9");
  const text = "# Generated by iptables-save v1.8.9 (nf_tables) on Thu Nov 26\n*nat\n:KUBE-A - [0:0]\nCOMMIT\n";
  for (const command of ["iptables-save", "iptables-save -t nat"]) tools.answer(command, { stdout: text });
  const nftReader: ExecIptablesOptions["nftReader"] = async () => ({
    nftChainUses: async () => new Map(uses),
    countNftRules: async () => 0,
    nftGeneration: async () => 1,
    chainsAtHand: async () => Array.from(uses.keys(), (chain) => ({ table: "nat", chain }) as const),
    isNftTool: async () => host.isNftTool,
    hasNat: async () => host.hasNat,
  });
  return { tools, text, options: { family: "IPv4", exec: tools.exec, log: silentLogger, nftReader } as const };
}

test("one command finds the tools and reads the tables; it counts until the kernel has others", async () => {
  const uses = new Map([["KUBE-A", 1]]);
  const { tools, text, options } = nftTools(uses);
  const found = await findIptables(options, "tables");
  assert.deepEqual(tools.taken(), ["iptables-save"]);
  assert.deepEqual([found.backEnd, found.version, found.problem], ["nft", "1.8.9", undefined]);
  const iptables = await createIptables(options, found);
  assert.equal(await iptables.save(), text);
  assert.deepEqual(tools.taken(), []);
  // The text that was read first is used once only: it may be out of date by now.
  assert.equal(await iptables.save(), text);
  assert.deepEqual(tools.taken(), ["iptables-save"]);
  const other = await createIptables(options, found);
  uses.set("KUBE-A", 2);
  await other.save();
  assert.deepEqual(tools.taken(), ["iptables-save"]);
});

test("the legacy back end has no such answer: tables are read again", async () => {
  const { tools, text, options } = nftTools(new Map([["KUBE-A", 1]]));
  tools.answer("iptables-save", { stdout: text.replace(" (nf_tables)", "") });
  const iptables = await createIptables(options, await findIptables(options, "tables"));
  await iptables.save();
  assert.deepEqual(tools.taken(), ["iptables-save", "iptables-save"]);
});

test("an iptables whose tables do not begin with its back end (before 1.8.8) is asked for it", async () => {
  const { tools, options, text } = nftTools(new Map([["KUBE-A", 1]]));
  tools.answer("iptables-save", { stdout: text.replace("1.8.9 (nf_tables)", "1.8.7") });
  for (const [said, backEnd] of [
    ["iptables v1.8.7 (nf_tables)\n", "nft"],
    ["iptables v1.8.7 (legacy)\n", "legacy"],
  ] as const) {
    tools.answer("iptables --version", { stdout: said });
    const found = await findIptables(options, "tables");
    assert.deepEqual([found.backEnd, found.version, found.problem], [backEnd, "1.8.7", undefined]);
    assert.deepEqual(tools.taken(), ["iptables-save", "iptables --version"]);
  }
});

test("where no program has a chain, the table nat is asked for, which shows whether the kernel has it", async () => {
  const { tools, options } = nftTools(new Map());
  assert.equal((await findIptables(options, "tables")).problem, undefined);
  assert.deepEqual(tools.taken(), ["iptables-save -t nat"]);
  tools.answer("iptables-save -t nat", { status: 1, stderr: "can't initialize iptables table `nat'\n" });
  const said =
    "iptables-save -t nat does not work (\"can't initialize iptables table `nat'\"): install the package iptables";
  assert.ok((await findIptables(options, "tables")).problem?.startsWith(said));
});

test("no tool is started where nf_tables has none of the chains that are looked for, until it has other chains", async () => {
  const uses = new Map([["KUBE-KUBELET-CANARY", 0]]);
  const host = { isNftTool: true, hasNat: true };
  const { tools, text, options } = nftTools(uses, host);
  const looked = { ...options, isLookedFor: (_: string, chain: string) => chain === "KUBE-A" };
  const found = await findIptables(looked, "tables");
  assert.deepEqual([found.backEnd, found.problem, found.saved?.text], ["nft", undefined, ""]);
  assert.equal(await (await createIptables(options, found)).save(), "");
  assert.deepEqual(tools.taken(), []);
  uses.set("KUBE-A", 1);
  assert.equal(await (await createIptables(options, found)).save(), text);
  assert.equal((await findIptables(looked, "tables")).saved?.text, text);
  assert.deepEqual(tools.taken(), ["iptables-save", "iptables-save"]);
  uses.delete("KUBE-A");
  for (const lacks of ["isNftTool", "hasNat"] as const) {
    Object.assign(host, { isNftTool: true, hasNat: true, [lacks]: false });
    await findIptables(looked, "tables");
    assert.deepEqual(tools.taken(), ["iptables-save"], lacks);
  }
});

test("an older tool is refused by what its tables begin with, not by a comment in them", async () => {
  const { tools, options, text } = nftTools(new Map([["KUBE-A", 1]]));
  tools.answer("iptables-save", { stdout: text.replace("1.8.9", "1.6.1") });
  assert.match((await findIptables(options, "tables")).problem ?? "", /^iptables 1\.6\.1 is too old/);
  tools.answer("iptables-save", { stdout: text.replace("COMMIT", '-A KUBE-A -m comment --comment "v1.2"\nCOMMIT') });
  assert.equal((await findIptables(options, "tables")).problem, undefined);
});

test("a tool that does not say its version is taken for a current one", async () => {
  const tools = new FakeTools("");
  const iptables = await tools.iptables();
  tools.taken();
  await iptables.ensureChain("nat", "KUBE-A");
  assert.deepEqual(tools.taken(), ["iptables -w 5 -N KUBE-A -t nat"]);
});

test("without tools everything fails with missing_tool, and presence is unknown", async () => {
  const exec: Exec = async (file) => {
    throw new ExecError("missing_tool", `${file}: no such program`);
  };
  const options = { family: "IPv4", exec, log: silentLogger } as const;
  for (const reads of ["tools", "tables"] as const) {
    assert.match((await findIptables(options, reads)).problem ?? "", / does not work: install the package iptables/);
  }
  const iptables = await createIptables(options);
  await assert.rejects(iptables.ensureChain("nat", "KUBE-A"), { name: "IptablesError", code: "missing_tool" });
  await assert.rejects(iptables.save("nat"), { name: "IptablesError", code: "missing_tool" });
});

test("a restore command that is missing is a restore error", async () => {
  const tools = new FakeTools("1.8.9");
  const iptables = await createIptables({
    family: "IPv4",
    log: silentLogger,
    exec: (file, args, options) => {
      if (file === "iptables-restore") throw new ExecError("missing_tool", "iptables-restore: no such program");
      return tools.exec(file, args, options);
    },
  });
  await assert.rejects(iptables.restore([]), { name: "IptablesRestoreError", code: "missing_tool", status: -1 });
});

test("a payload that cannot be produced rejects with its own error", async () => {
  const tools = new FakeTools("1.8.9");
  const iptables = await tools.iptables();
  function* broken(): Iterable<string> {
    yield "*nat\n";
    throw new RangeError("a rule that cannot be written");
  }
  await assert.rejects(iptables.restore(broken()), RangeError);
});

test("a family is present when its nat table can be read", { skip: netnsSkip }, async (t) => {
  const { exec } = await netnsFor(t, "iptables-present");
  for (const family of ["IPv4", "IPv6"] as const) {
    for (const reads of ["tools", "tables"] as const) {
      assert.equal((await findIptables({ family, exec, log: silentLogger }, reads)).problem, undefined);
      const binaries = { rule: "false", save: "false", restore: "false" };
      assert.match(
        (await findIptables({ family, exec, log: silentLogger, binaries }, reads)).problem ?? "",
        /not work/,
      );
    }
  }
});

test("while another program holds the xtables lock, legacy commands say so", { skip: netnsSkip }, async (t) => {
  const { exec, lockPath } = await netnsFor(t, "iptables-lock");
  // Each waits five seconds, so they wait in parallel, each in a queue of its own.
  const create = () =>
    createIptables({ family: "IPv4", exec, log: silentLogger, binaries: binariesOf("IPv4", "legacy") });
  const [a, b, c] = await Promise.all([create(), create(), create()]);
  const holder = spawn("flock", ["--no-fork", lockPath, "sh", "-c", "echo held; exec sleep 60"], { stdio: "pipe" });
  t.after(() => signalChild(holder, "SIGKILL"));
  await once(holder.stdout, "data");
  const [presence, restored, created] = await Promise.allSettled([
    a.chainPresence("nat", "OUTPUT"),
    b.restore(["*nat\n:KUBE-A - [0:0]\nCOMMIT\n"]),
    c.ensureChain("nat", "KUBE-A"),
  ]);
  assert.deepEqual(presence, { status: "fulfilled", value: "unknown" });
  assert.ok(restored.status === "rejected" && created.status === "rejected");
  assert.equal(restored.reason.code, "lock_held");
  assert.equal(restored.reason.line, undefined);
  assert.equal(created.reason.code, "lock_held");
  assert.match(await a.save("nat"), /\*nat/);
});
