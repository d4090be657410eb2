/** The subjects of the {@link Iptables} contract: the in-memory kernel and the host's tools, with both back ends. */
import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { MemoryIptables } from "../../../../testkit/fakes/iptables/memory-iptables.ts";
import { netnsFor, netnsSkip } from "../../../../testkit/support/netns.ts";
import { skipWithoutTool } from "../../../../testkit/support/tools.ts";
import { silentLogger } from "../../../logging/logger.ts";
import type { IpFamily } from "../../../net/ip.ts";
import { createIptables } from "../exec-iptables.ts";
import { type Iptables, IptablesRestoreError } from "../iptables.ts";
import { binariesOf } from "./binaries.ts";

type BackEnd = "nft" | "legacy";

/** A fresh kernel and what other programs can do to it. */
interface Rig {
  readonly iptables: Iptables;
  addCounter(name: string): Promise<void>;
  /** An IP set of type `hash:ip,port`. */
  addSet(name: string): Promise<void>;
  /** `iptables -t nat -F`, and `-X`. */
  flushNat(deleteChains: boolean): Promise<void>;
}

interface Subject {
  readonly name: string;
  readonly backEnd: BackEnd;
  readonly skip: string | false;
  /** Why it lacks something that a program of the host creates. */
  skipWithout(tool: string): string | false;
  create(t: TestContext, family: IpFamily): Promise<Rig>;
}

function memory(backEnd: BackEnd): Subject {
  return {
    name: `in memory, as ${backEnd}`,
    backEnd,
    skip: false,
    skipWithout: () => false,
    create: async (_t, family) => {
      const counters = new Set<string>();
      const sets = new Set<string>();
      const iptables = new MemoryIptables(family, { backEnd, counters, hasSet: (name) => sets.has(name) });
      return {
        iptables,
        addCounter: async (name) => void counters.add(name),
        addSet: async (name) => void sets.add(name),
        flushNat: async (deleteChains) => iptables.flush("nat", { deleteChains }),
      };
    },
  };
}

function host(backEnd: BackEnd): Subject {
  return {
    name: `the host's iptables-${backEnd}`,
    backEnd,
    skip: netnsSkip,
    skipWithout: (tool) => skipWithoutTool(tool, tool),
    create: async (t, family) => {
      const { exec } = await netnsFor(t, `iptables-${backEnd}`);
      const binaries = binariesOf(family, backEnd);
      const iptables = await createIptables({ family, exec, log: silentLogger, binaries });
      const run = async (file: string, ...args: string[]): Promise<void> => {
        const { status, stderr } = await exec(file, args);
        assert.equal(status, 0, stderr);
      };
      return {
        iptables,
        addCounter: (name) => run("nfacct", "add", name),
        addSet: (name) => run("ipset", "create", name, "hash:ip,port"),
        flushNat: async (deleteChains) => {
          await run(binaries.rule, "-t", "nat", "-F");
          if (deleteChains) await run(binaries.rule, "-t", "nat", "-X");
        },
      };
    },
  };
}

/** Both back ends, each in memory and with the host's tools. */
export const SUBJECTS = [memory("nft"), memory("legacy"), host("nft"), host("legacy")];

/** Chains and rules without comments; `[0:0]` stays because no packet has passed. */
export async function saved(iptables: Iptables, table: "filter" | "nat"): Promise<string> {
  return (await iptables.save(table)).replace(/^#.*\n/gm, "");
}

/** The rules of a chain of the nat table, without `-A` and the chain name. */
export async function rulesOf(iptables: Iptables, chain: string): Promise<string[]> {
  const lines = (await iptables.save("nat")).split("\n");
  return lines.filter((line) => line.startsWith(`-A ${chain} `)).map((line) => line.slice(chain.length + 4));
}

/** A payload of the nat table with these lines. */
export function nat(...lines: string[]): string[] {
  return [`*nat\n${lines.map((line) => `${line}\n`).join("")}COMMIT\n`];
}

/** The error with which a payload was rejected; fails if it was accepted. */
export async function refusal(work: Promise<unknown>): Promise<IptablesRestoreError> {
  try {
    await work;
  } catch (error) {
    assert.ok(error instanceof IptablesRestoreError, String(error));
    return error;
  }
  assert.fail("the payload was accepted");
}
