import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { netnsFor, netnsSkip } from "../../../testkit/support/netns.ts";
import { silentLogger } from "../../logging/logger.ts";
import type { IpFamily } from "../../net/ip.ts";
import { signalChild } from "../child-process.ts";
import { type Exec, ExecError, type ExecResult } from "../process.ts";
import { binariesOf, createIptables, isIptablesPresent } from "./exec-iptables.ts";
import { type Iptables, IptablesRestoreError } from "./iptables.ts";

/** A stand-in for the host's tools: answers by command line, remembers what was run. */
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

  iptables(family: IpFamily = "IPv4", lockPath?: string): Promise<Iptables> {
    const base = { family, exec: this.exec, log: silentLogger };
    return createIptables(lockPath === undefined ? base : { ...base, lockPath });
  }
}

test("command lines are those of the reference (iptables.md §10.2)", async () => {
  const tools = new FakeTools("1.8.9");
  const iptables = await tools.iptables();
  assert.deepEqual(tools.taken(), ["iptables --version"]);
  assert.equal(iptables.hasRandomFully, true);
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

test("old versions get the flags that they know (iptables.md §10.1)", async () => {
  const cases: readonly (readonly [version: string, wait: string, restoreWait: string, randomFully: boolean])[] = [
    ["1.8.10", " -w 5", " -w 5", true],
    ["1.6.2", " -w 5", " -w 5", true],
    ["1.6.1", " -w 5", " -w", false],
    ["1.4.22", " -w 5", " -w", false],
    ["1.4.21", " -w", " -w", false],
    ["1.4.19.1", "", " -w", false],
  ];
  for (const [version, wait, restoreWait, randomFully] of cases) {
    const tools = new FakeTools(version);
    tools.answer("iptables-restore --version", { stdout: `iptables-restore v${version}\n` });
    const iptables = await tools.iptables();
    tools.taken();
    await iptables.ensureChain("nat", "KUBE-A");
    await iptables.rulePresence("nat", "KUBE-A", []);
    await iptables.restore([]);
    assert.deepEqual(tools.taken(), [
      `iptables${wait} -N KUBE-A -t nat`,
      `iptables${wait} -C KUBE-A -t nat`,
      `iptables-restore${restoreWait} --noflush --counters`,
    ]);
    assert.equal(iptables.hasRandomFully, randomFully, version);
  }
});

test("without -C, rules are looked up in what is saved", async () => {
  const tools = new FakeTools("1.4.10");
  tools.answer("iptables-save -t nat", {
    stdout:
      '*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -s 10.0.0.1/32 -m comment --comment "a b" -j KUBE-A\n-A OUTPUT -m exotic\nCOMMIT\n',
  });
  const iptables = await tools.iptables();
  tools.taken();
  const rule = ["-m", "comment", "--comment", "a b", "-s", "10.0.0.1", "-j", "KUBE-A"];
  assert.equal(await iptables.rulePresence("nat", "OUTPUT", rule), "present");
  assert.equal(await iptables.rulePresence("nat", "PREROUTING", rule), "absent");
  assert.equal(await iptables.rulePresence("nat", "OUTPUT", ["-j", "KUBE-A"]), "absent");
  await iptables.ensureRule("nat", "OUTPUT", rule);
  assert.deepEqual(tools.taken(), Array(4).fill("iptables-save -t nat"));
});

function temporaryLock(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "kpts-lock-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return join(folder, "xtables.lock");
}

/** Whether some process has the abstract socket that old versions use as their lock. */
function isOldLockHeld(): boolean {
  return execFileSync("cat", ["/proc/net/unix"], { encoding: "utf8" }).includes("@xtables");
}

test("a restore command without a wait flag runs under both old locks, which are given back", async (t) => {
  const lockPath = temporaryLock(t);
  const tools = new FakeTools("1.4.19");
  const iptables = await tools.iptables("IPv4", lockPath);
  const states: boolean[] = [];
  tools.onRun = async () => {
    states.push(isFileLocked(lockPath), isOldLockHeld());
  };
  await iptables.restore([]);
  await iptables.restore([]);
  assert.deepEqual(states, [true, true, true, true]);
  assert.deepEqual([isFileLocked(lockPath), isOldLockHeld()], [false, false]);
});

function isFileLocked(path: string): boolean {
  try {
    execFileSync("flock", ["--nonblock", path, "true"]);
    return false;
  } catch {
    return true;
  }
}

test("an old lock that others hold is given up on", async (t) => {
  const tools = new FakeTools("1.4.19");
  const iptables = await tools.iptables("IPv4", temporaryLock(t));
  tools.taken();
  const other = createServer();
  other.listen("\0xtables");
  await once(other, "listening");
  t.after(() => other.close());
  await assert.rejects(iptables.restore([]), (error: unknown) => {
    assert.ok(error instanceof IptablesRestoreError);
    assert.equal(error.code, "lock_held");
    assert.match(error.message, /failed to acquire old iptables lock/);
    return true;
  });
  assert.deepEqual(tools.taken(), []);
});

test("without tools everything fails with missing_tool, and presence is unknown", async () => {
  const exec: Exec = async (file) => {
    throw new ExecError("missing_tool", `${file}: no such program`);
  };
  const options = { family: "IPv4", exec, log: silentLogger } as const;
  assert.equal(await isIptablesPresent(options), false);
  const iptables = await createIptables(options);
  assert.equal(iptables.hasRandomFully, false);
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
    assert.equal(await isIptablesPresent({ family, exec, log: silentLogger }), true);
    const binaries = { rule: "false", save: "false", restore: "false" };
    assert.equal(await isIptablesPresent({ family, exec, log: silentLogger, binaries }), false);
  }
});

test("while another program holds the xtables lock, legacy commands say so", { skip: netnsSkip }, async (t) => {
  const { exec, lockPath } = await netnsFor(t, "iptables-lock");
  // Each waits five seconds, so they wait side by side, each in a queue of its own.
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
