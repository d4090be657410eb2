/**
 * The daemon on every case: those with the same configuration follow each other on one node, so each has to leave nothing of
 * the one before it.
 */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { ProxyDaemon } from "../../testkit/support/proxy-daemon.ts";
import { kernelSkip } from "../../testkit/support/topology.ts";
import { type CaseState, caseFile, caseNames, caseState } from "./conformance-case.ts";
import { conformanceNode } from "./conformance-node.ts";

export interface DaemonCases {
  readonly mode: "iptables" | "nftables";
  objects(state: CaseState): readonly unknown[];
  /** What must be the same in the end. */
  expected(name: string): readonly string[];
  /** The same of the node. */
  actual(daemon: ProxyDaemon): Promise<readonly string[]>;
  /** Anything else that must hold at the end of a case. */
  also?(daemon: ProxyDaemon, name: string): Promise<void>;
}

/** The names of cases by their configuration, in the order of the first. */
function byConfiguration(mode: string): readonly (readonly [config: string, names: readonly string[]])[] {
  return [...Map.groupBy(caseNames(), (name) => caseFile(name, `${mode}/config.yaml`))];
}

async function runCase(daemon: ProxyDaemon, name: string, cases: DaemonCases): Promise<void> {
  const expected = cases.expected(name);
  let actual: readonly string[] = [];
  const isThere = async (): Promise<boolean> => {
    actual = await cases.actual(daemon);
    return actual.every((text, index) => text === expected[index]);
  };
  // What differs says more than the log of a daemon that has done what it thinks is right.
  await daemon.until(`the rules of ${name}`, isThere).catch((error: unknown) => {
    assert.deepEqual(actual, expected);
    throw error;
  });
  await cases.also?.(daemon, name);
}

async function runGroup(t: TestContext, config: string, names: readonly string[], cases: DaemonCases): Promise<void> {
  const node = await conformanceNode("conf");
  t.after(() => node.remove());
  const objectsOf = (name: string | undefined) => cases.objects(caseState(name ?? ""));
  const options = { config: JSON.parse(config), hostnameOverride: "node-a" };
  const daemon = await ProxyDaemon.start(node, { ...options, objects: objectsOf(names[0]) });
  t.after(() => daemon.dispose());
  for (const [index, name] of names.entries()) {
    await t.test(name, async () => {
      if (index > 0) daemon.writeObjects(objectsOf(name));
      await runCase(daemon, name, cases);
    });
  }
}

/** Registers a test for each configuration, with a subtest for each case. */
export function daemonLeavesWhatUpstreamLeft(cases: DaemonCases): void {
  describe(`${cases.mode} mode leaves what upstream left`, { concurrency: 2, skip: kernelSkip }, () => {
    for (const [config, names] of byConfiguration(cases.mode)) {
      test(`configured as for ${names[0]}`, (t) => runGroup(t, config, names, cases));
    }
  });
}
