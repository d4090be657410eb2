/**
 * Random histories in a kernel that has IPVS: what it holds after every sync is what one full sync leaves in the kernel in
 * memory, and a restart writes nothing. `KPTS_PROPERTY_KERNEL_RUNS` sets how many histories are tried per family.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { createIptables, DEFAULT_BINARIES } from "../../src/kernel/iptables/exec-iptables.ts";
import type { Iptables, IptablesTable } from "../../src/kernel/iptables/iptables.ts";
import { execProcess } from "../../src/kernel/process.ts";
import { openLinks } from "../../src/kernel/route/netlink-links.ts";
import { silentLogger } from "../../src/logging/logger.ts";
import { openIpset } from "../../src/modes/ipvs/ipset/netlink-ipset.ts";
import { openIpvs } from "../../src/modes/ipvs/kernel/open-ipvs.ts";
import { NODE_IPS } from "../../src/modes/ipvs/testing/memory-node.ts";
import { type IpvsKernel, type NodeState, readNodeState } from "../../src/modes/ipvs/testing/node-state.ts";
import type { IpAddress, IpFamily } from "../../src/net/ip.ts";
import fc, { historyRuns } from "../../testkit/support/fast-check.ts";
import { inNetns } from "../../testkit/support/in-netns.ts";
import { until } from "../../testkit/support/patience.ts";
import { stepArbitrary } from "./cluster-arbitrary.ts";
import { IpvsHistory } from "./ipvs-history.ts";

const RUNS = historyRuns("KPTS_PROPERTY_KERNEL_RUNS", 12);
const ROUTES_MS = 5_000;

const ip = (...words: string[]): void => void execFileSync("ip", words);

function prepare(): void {
  ip("link", "add", "eth0", "type", "dummy");
  ip("link", "set", "eth0", "up");
  ip("addr", "add", `${NODE_IPS.IPv4}/24`, "dev", "eth0");
  ip("addr", "add", `${NODE_IPS.IPv6}/64`, "dev", "eth0", "nodad");
}

function setAddress(address: IpAddress, isThere: boolean): void {
  if (isThere) ip("addr", "replace", `${address}/128`.replace(/^([0-9.]+)\/.*/, "$1/32"), "dev", "eth0");
  else ip("addr", "del", `${address}/128`.replace(/^([0-9.]+)\/.*/, "$1/32"), "dev", "eth0");
}

/** The same object, whose calls that change something are told, with what they change. */
function watched<T extends object>(target: T, onWrite: (...changes: unknown[]) => void): T {
  return new Proxy(target, {
    get(_, name) {
      const member: unknown = Reflect.get(target, name);
      if (typeof member !== "function") return member;
      return (...args: unknown[]) => {
        if (name === "restore") onWrite(args);
        if (name === "apply" && Array.isArray(args[0])) onWrite(...args[0]);
        return Reflect.apply(member, target, args);
      };
    },
  });
}

/** Of the tools: what only reads. */
const READS: ReadonlySet<string> = new Set([
  "chainPresence",
  "rulePresence",
  "chainNames",
  "chainUses",
  "ruleCount",
  "save",
  "generation",
]);

/**
 * The tools, and the tables as they are, for comparing: a table is read again when something was done with the tools, which starts a
 * program. Nothing else changes tables in this namespace.
 */
function withComparing(tools: Iptables): { tools: Iptables; compared: Iptables; forget: () => void } {
  const saved = new Map<unknown, Promise<string>>();
  const told = new Proxy(tools, {
    get(_, name) {
      const member: unknown = Reflect.get(tools, name);
      if (typeof member !== "function") return member;
      return async (...args: unknown[]) => {
        const isRead = READS.has(String(name));
        try {
          return await Reflect.apply(member, tools, args);
        } finally {
          if (!isRead) saved.clear();
        }
      };
    },
  });
  const compared = new Proxy(tools, {
    get(_, name) {
      if (name !== "save") return Reflect.get(tools, name);
      return (table: IptablesTable) => {
        const text = saved.get(table) ?? tools.save(table);
        saved.set(table, text);
        return text;
      };
    },
  });
  return { tools: told, compared, forget: () => saved.clear() };
}

interface OpenKernel extends IpvsKernel {
  /** The same, for comparing. */
  readonly compared: IpvsKernel;
  /** Of the family: a history writes no others. */
  emptyTables(): void;
  /** What was written since the last call. */
  takeWrites(): unknown[];
}

async function open(family: IpFamily): Promise<OpenKernel> {
  const writes: unknown[] = [];
  const note = (...changes: unknown[]) => void writes.push(...changes);
  const open = await createIptables({ family, exec: execProcess, log: silentLogger });
  const { tools, compared, forget } = withComparing(open);
  const others = {
    ipvs: watched(await openIpvs({ log: silentLogger }), note),
    ipset: watched(openIpset(), note),
    links: openLinks(),
  };
  return {
    ...others,
    iptables: watched(tools, note),
    compared: { ...others, iptables: compared },
    emptyTables: () => {
      execFileSync(DEFAULT_BINARIES[family].restore, { input: "*filter\nCOMMIT\n*nat\nCOMMIT\n" });
      forget();
    },
    takeWrites: () => writes.splice(0),
  };
}

/** Removes all that a history left. */
async function empty({ ipvs, ipset, links, emptyTables }: OpenKernel): Promise<void> {
  await ipvs.flush();
  await links.deleteDummy("kube-ipvs0");
  emptyTables();
  for (const { name } of await ipset.sets()) await ipset.destroy(name);
}

function assertSame(found: NodeState, wanted: NodeState): void {
  const { nat, filter, ...rest } = found;
  const { nat: wantedNat, filter: wantedFilter, ...wantedRest } = wanted;
  assert.deepEqual(rest, wantedRest);
  assert.equal(byChain(nat), byChain(wantedNat));
  assert.equal(byChain(filter), byChain(wantedFilter));
}

/** The kernel makes the route of an IPv6 address in work of its own (addrconf_dad_work of net/ipv6/addrconf.c). */
async function assertSameSoon(kernel: IpvsKernel, family: IpFamily, wanted: NodeState): Promise<void> {
  let found = await readNodeState(kernel, family);
  const hasRoutes = async (): Promise<boolean> => {
    if (isDeepStrictEqual(found.routes, wanted.routes)) return true;
    found = await readNodeState(kernel, family);
    return false;
  };
  const evidence = (): string => `there are ${found.routes}, and not ${wanted.routes}`;
  await until("the routes of addresses", hasRoutes, { patienceMs: ROUTES_MS, evidence });
  assertSame(found, wanted);
}

/** Chains and rules of iptables-save, the chains in order; counters and comments left out. */
function byChain(saved: string): string {
  const lines = saved.split("\n").filter((line) => /^(?::|-A )/.test(line));
  const bare = lines.map((line) => line.replace(/ \[\d+:\d+\]$/, ""));
  const chainOf = (line: string) => line.replace(/^(?::|-A )/, "").split(" ", 1)[0] ?? "";
  return bare.sort((a, b) => (chainOf(a) < chainOf(b) ? -1 : chainOf(a) > chainOf(b) ? 1 : 0)).join("\n");
}

inNetns(import.meta.url, { name: "ipvshist", timeoutMs: 600_000 }, () => {
  prepare();
  for (const family of ["IPv4", "IPv6"] as const) {
    test(`${family}: every sync leaves what a full sync from nothing leaves`, async () => {
      const kernel = await open(family);
      const steps = fc.array(stepArbitrary(family), { maxLength: 14, size: "max" });
      await fc.assert(
        fc.asyncProperty(steps, fc.constantFrom("rr", "mh"), async (history, scheduler) => {
          await empty(kernel);
          const cluster = new IpvsHistory(family, { kernel, config: { scheduler } }, setAddress);
          for (const step of [...history, { kind: "sync", isFullSync: false } as const]) {
            if (step.kind !== "sync") cluster.apply(step);
            else {
              assert.deepEqual((await cluster.sync(step.isFullSync)).failures, []);
              await assertSameSoon(kernel.compared, family, await cluster.fromNothing());
            }
          }
          kernel.takeWrites();
          await cluster.rig.restart();
          await cluster.sync(true);
          assert.deepEqual(kernel.takeWrites(), [], "a restart writes nothing");
          cluster.apply({ kind: "addresses", index: 0 });
        }),
        { numRuns: RUNS, endOnFailure: true },
      );
      await empty(kernel);
    });
  }
});
