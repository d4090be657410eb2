/** The initial table of contract tests, the operations that create and change it, and its content as plain values. */
import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import type { IpAddress } from "../../../net/ip.ts";
import { type Nftables, NftError, type NftOperation } from "../nftables.ts";
import { elementKey, type NftElement, type NftHook, type NftRule, type NftSet, type NftVerdict } from "../ruleset.ts";
import type { NftablesRig, NftablesSubject } from "./nftables-subject.ts";

export const CLUSTER_IPS: NftSet = {
  name: "cluster-ips",
  key: ["address"],
  isMap: false,
  comment: "Active ClusterIPs",
};
export const SERVICE_IPS: NftSet = {
  name: "service-ips",
  key: ["address", "protocol", "port"],
  isMap: true,
  comment: "c",
};
export const NODE_PORTS: NftSet = { name: "node-ports", key: ["protocol", "port"], isMap: true };
export const HAIRPIN: NftSet = { name: "hairpin", key: ["address", "address", "protocol", "port"], isMap: false };
export const AFFINITY: NftSet = {
  name: "affinity-A-ns/a/tcp/p__1",
  key: ["address"],
  isMap: false,
  timeoutSeconds: 10,
};
/** A NAT hook, because rules here translate addresses, which filter chains cannot do. */
export const PREROUTING: NftHook = { type: "nat", hook: "prerouting", priority: -100 };
export const ip = (text: string): IpAddress => text as IpAddress; // canonical literals below
export const A = "service-A-ns/a/tcp/p";
export const B = "service-B-ns/b/tcp/p";
export const goto = (chain: string): NftVerdict => ({ kind: "goto", chain });
export const DROP: NftRule = { statements: [{ kind: "verdict", verdict: { kind: "drop" } }], comment: "no more" };
export const GOTO_B: NftRule = { statements: [{ kind: "verdict", verdict: goto(B) }] };
export const TO_ENDPOINTS: NftRule = {
  statements: [
    { kind: "l4proto", protocol: "tcp" },
    {
      kind: "random-dnat",
      targets: [
        { ip: ip("10.180.0.1"), port: 80 },
        { ip: ip("10.180.0.2"), port: 80 },
      ],
    },
  ],
};
export const DISPATCH: NftRule = {
  statements: [{ kind: "vmap", fields: ["daddr", "l4proto", "dport"], map: SERVICE_IPS.name }],
};
export const REMEMBER: NftRule = { statements: [{ kind: "update", set: AFFINITY.name, field: "saddr" }] };
export const frontend = (verdict: NftVerdict, address = "10.96.0.1", comment?: string): NftElement => ({
  key: [ip(address), "tcp", 80],
  verdict,
  ...(comment === undefined ? {} : { comment }),
});
export const addTable: NftOperation = { kind: "add-table", comment: "rules for kube-proxy" };
export const addChain = (name: string, hook?: NftHook): NftOperation => ({
  kind: "add-chain",
  chain: hook === undefined ? { name } : { name, hook },
});
export const addRule = (chain: string, rule: NftRule): NftOperation => ({ kind: "add-rule", chain, rule });
export const addSet = (set: NftSet): NftOperation => ({ kind: "add-set", set });
export const addElements = (set: NftSet, ...elements: NftElement[]): NftOperation => ({
  kind: "add-elements",
  set,
  elements,
});
export const deleteElements = (set: NftSet, ...elements: NftElement[]): NftOperation => ({
  kind: "delete-elements",
  set,
  keys: elements.map(({ key }) => key),
});
export const flushChain = (chain: string): NftOperation => ({ kind: "flush-chain", chain });
export const deleteChain = (chain: string): NftOperation => ({ kind: "delete-chain", chain });

/** A table with a base chain, two regular chains, every kind of set, and rules and elements that refer to them. */
export const EXAMPLE: readonly NftOperation[] = [
  addTable,
  addSet(CLUSTER_IPS),
  addSet(SERVICE_IPS),
  addSet(NODE_PORTS),
  addSet(HAIRPIN),
  addSet(AFFINITY),
  addChain("nat-prerouting", PREROUTING),
  addChain(A),
  addChain(B),
  addRule("nat-prerouting", DISPATCH),
  addRule(A, REMEMBER),
  addRule(A, TO_ENDPOINTS),
  addElements(CLUSTER_IPS, { key: [ip("10.96.0.1")] }),
  addElements(SERVICE_IPS, frontend(goto(A))),
];

/** Opens a kernel with the table of {@link EXAMPLE}. */
export async function openExample(subject: NftablesSubject, t: TestContext): Promise<NftablesRig> {
  const rig = await subject.open(t);
  await rig.nft.transact(EXAMPLE);
  return rig;
}

/** The error of a rejected transaction; fails the test if it was accepted. */
export async function refusal(work: Promise<unknown>): Promise<NftError> {
  try {
    await work;
  } catch (error) {
    assert.ok(error instanceof NftError, String(error));
    return error;
  }
  assert.fail("the transaction was accepted");
}

export function elementText({ key, verdict, comment }: NftElement): string {
  return JSON.stringify([elementKey(key), verdict, comment]);
}

/** The content without the generation, in a fixed order. */
export async function contentOf(nft: Nftables): Promise<unknown> {
  const content = await nft.read();
  if (content === undefined) return undefined;
  const byName = ([a]: readonly [string, unknown], [b]: readonly [string, unknown]) => (a < b ? -1 : 1);
  return {
    chains: [...content.chains].sort(byName),
    sets: [...content.sets]
      .map(([name, { elements, ...rest }]) => [name, { ...rest, elements: elements.map(elementText).sort() }] as const)
      .sort(byName),
  };
}

export async function generationOf(nft: Nftables): Promise<number> {
  return (await nft.read())?.generation ?? assert.fail("there is no table");
}
