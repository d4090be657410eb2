/** The contract of {@link Ipset}, for the kernel's (in the test's own namespace) and the one in memory. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import type { Cidr, IpAddress, IpFamily } from "../../../../net/ip.ts";
import {
  type Ipset,
  type IpsetDefinition,
  type IpsetEntry,
  IpsetError,
  type IpsetOperation,
  ipsetEntryText,
} from "../ipset.ts";

/** A namespace without sets. */
export interface IpsetRig {
  readonly ipset: Ipset;
  /** Another program adds a rule that refers to the set. @returns a function that removes the rule. */
  readonly refer: (name: string) => Promise<() => Promise<void>>;
  /** Another program creates a set. */
  readonly createForeign: (name: string, type: string, family: IpFamily | undefined) => Promise<void>;
}

export interface IpsetSubject {
  readonly name: string;
  readonly open: (t: TestContext) => Promise<IpsetRig>;
}

const ip = (text: string): IpAddress => text as IpAddress; // canonical literals below
const net = (text: string): Cidr => text as Cidr;

const DEFINITIONS: readonly IpsetDefinition[] = [
  { name: "KUBE-IPVS-IPS", type: "hash:ip", family: "IPv4" },
  { name: "KUBE-CLUSTER-IP", type: "hash:ip,port", family: "IPv4" },
  { name: "KUBE-LOOP-BACK", type: "hash:ip,port,ip", family: "IPv4" },
  { name: "KUBE-LOAD-BALANCER-SOURCE-CIDR", type: "hash:ip,port,net", family: "IPv4" },
  { name: "KUBE-NODE-PORT-TCP", type: "bitmap:port", family: undefined },
  { name: "KUBE-6-IPVS-IPS", type: "hash:ip", family: "IPv6" },
  { name: "KUBE-6-CLUSTER-IP", type: "hash:ip,port", family: "IPv6" },
  { name: "KUBE-6-LOOP-BACK", type: "hash:ip,port,ip", family: "IPv6" },
  { name: "KUBE-6-LOAD-BALANCER-SOURCE-CID", type: "hash:ip,port,net", family: "IPv6" },
];
const [IPS, CLUSTER_IPS, , SOURCES, NODE_PORTS, IPS_6] = DEFINITIONS as [
  IpsetDefinition,
  IpsetDefinition,
  IpsetDefinition,
  IpsetDefinition,
  IpsetDefinition,
  IpsetDefinition,
];

/** Members of each of {@link DEFINITIONS}, as `ipset list` prints them. */
const MEMBERS: readonly (readonly [IpsetEntry, string][])[] = [
  [
    [{ kind: "ip", address: ip("10.96.0.1") }, "10.96.0.1"],
    [{ kind: "ip", address: ip("255.255.255.254") }, "255.255.255.254"],
  ],
  [
    [{ kind: "ip-port", address: ip("10.96.0.1"), protocol: "tcp", port: 443 }, "10.96.0.1,tcp:443"],
    [{ kind: "ip-port", address: ip("10.96.0.10"), protocol: "udp", port: 53 }, "10.96.0.10,udp:53"],
    [{ kind: "ip-port", address: ip("10.96.0.11"), protocol: "sctp", port: 65535 }, "10.96.0.11,sctp:65535"],
  ],
  [
    [
      { kind: "ip-port-ip", address: ip("10.180.0.1"), protocol: "tcp", port: 80, second: ip("10.180.0.1") },
      "10.180.0.1,tcp:80,10.180.0.1",
    ],
  ],
  [
    [
      { kind: "ip-port-net", address: ip("1.2.3.4"), protocol: "tcp", port: 80, network: net("203.0.113.0/25") },
      "1.2.3.4,tcp:80,203.0.113.0/25",
    ],
    [
      { kind: "ip-port-net", address: ip("1.2.3.4"), protocol: "udp", port: 80, network: net("203.0.113.7/32") },
      "1.2.3.4,udp:80,203.0.113.7",
    ],
    [
      { kind: "ip-port-net", address: ip("1.2.3.4"), protocol: "sctp", port: 80, network: net("128.0.0.0/1") },
      "1.2.3.4,sctp:80,128.0.0.0/1",
    ],
  ],
  [
    [{ kind: "port", port: 30000 }, "30000"],
    [{ kind: "port", port: 1 }, "1"],
    [{ kind: "port", port: 65535 }, "65535"],
  ],
  [[{ kind: "ip", address: ip("fd00:10:96::1") }, "fd00:10:96::1"]],
  [[{ kind: "ip-port", address: ip("fd00:10:96::a"), protocol: "udp", port: 53 }, "fd00:10:96::a,udp:53"]],
  [
    [
      { kind: "ip-port-ip", address: ip("fd00::1"), protocol: "tcp", port: 80, second: ip("fd00::1") },
      "fd00::1,tcp:80,fd00::1",
    ],
  ],
  [
    [
      { kind: "ip-port-net", address: ip("fd00::1"), protocol: "tcp", port: 80, network: net("2001:db8::/32") },
      "fd00::1,tcp:80,2001:db8::/32",
    ],
    [
      { kind: "ip-port-net", address: ip("fd00::1"), protocol: "udp", port: 80, network: net("2001:db8::1/128") },
      "fd00::1,udp:80,2001:db8::1",
    ],
  ],
];

const add = (set: string, ...entries: readonly IpsetEntry[]): IpsetOperation[] =>
  entries.map((entry) => ({ kind: "add", set, entry }));
const remove = (set: string, ...entries: readonly IpsetEntry[]): IpsetOperation[] =>
  entries.map((entry) => ({ kind: "delete", set, entry }));
const address = (n: number): IpsetEntry => ({ kind: "ip", address: ip(`10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`) });
const texts = async (ipset: Ipset, name: string): Promise<string[] | undefined> =>
  (await ipset.members(name))?.map(ipsetEntryText).sort();
const hasCode =
  (code: string) =>
  (error: unknown): boolean =>
    error instanceof IpsetError && error.code === code && error.message.includes(code);

export function ipsetContract({ name, open }: IpsetSubject): void {
  describe(`IP sets: ${name}`, () => {
    describe("sets", () => definitionTests(open));
    describe("members", () => memberTests(open));
    describe("refusals", () => refusalTests(open));
  });
}

type Open = IpsetSubject["open"];

function definitionTests(open: Open): void {
  test("every type is created and found again", async (t) => {
    const { ipset } = await open(t);
    for (const definition of DEFINITIONS) await ipset.ensure(definition);
    assert.deepEqual(new Set(await ipset.sets()), new Set(DEFINITIONS));
    for (const { name } of DEFINITIONS) assert.deepEqual(await ipset.members(name), []);
  });

  test("what does not exist has no members, and can be destroyed", async (t) => {
    const { ipset } = await open(t);
    assert.deepEqual(await ipset.sets(), []);
    assert.equal(await ipset.members("KUBE-GONE"), undefined);
    await ipset.destroy("KUBE-GONE");
  });

  test("ensuring a set that is there keeps its members", async (t) => {
    const { ipset } = await open(t);
    await ipset.ensure(IPS);
    await ipset.apply(add(IPS.name, address(1)));
    await ipset.ensure(IPS);
    assert.deepEqual(await texts(ipset, IPS.name), ["10.0.0.1"]);
  });

  test("sets of types that are not ours are listed as well", async (t) => {
    const { ipset, createForeign } = await open(t);
    await createForeign("blocked", "hash:net", "IPv4");
    await ipset.ensure(IPS);
    const blocked = { name: "blocked", type: "hash:net", family: "IPv4" } as const;
    assert.deepEqual(new Set(await ipset.sets()), new Set([IPS, blocked]));
  });

  test("a destroyed set is gone", async (t) => {
    const { ipset } = await open(t);
    await ipset.ensure(IPS);
    await ipset.ensure(CLUSTER_IPS);
    await ipset.destroy(IPS.name);
    assert.deepEqual(await ipset.sets(), [CLUSTER_IPS]);
  });
}

function memberTests(open: Open): void {
  for (const [index, definition] of DEFINITIONS.entries()) {
    test(`of ${definition.type} sets, ${definition.family ?? "any family"}, are added, listed and deleted`, async (t) => {
      const { ipset } = await open(t);
      await ipset.ensure(definition);
      const wanted = MEMBERS[index] ?? [];
      const entries = wanted.map(([entry]) => entry);
      assert.deepEqual(await ipset.apply(add(definition.name, ...entries)), []);
      const key = (entry: IpsetEntry): string => ipsetEntryText(entry);
      const found = [...((await ipset.members(definition.name)) ?? [])];
      assert.deepEqual(
        found.sort((a, b) => (key(a) < key(b) ? -1 : 1)),
        [...entries].sort((a, b) => (key(a) < key(b) ? -1 : 1)),
      );
      assert.deepEqual(await texts(ipset, definition.name), wanted.map(([, text]) => text).sort());
      assert.deepEqual(await ipset.apply(remove(definition.name, ...entries)), []);
      assert.deepEqual(await ipset.members(definition.name), []);
    });
  }

  test("adding what is there and deleting what is not succeed, alone and among others", async (t) => {
    const { ipset } = await open(t);
    await ipset.ensure(IPS);
    await ipset.ensure(NODE_PORTS);
    assert.deepEqual(await ipset.apply(add(IPS.name, address(1), address(1), address(2))), []);
    assert.deepEqual(await ipset.apply(add(IPS.name, address(1))), []);
    assert.deepEqual(await ipset.apply(remove(IPS.name, address(3), address(1), address(1))), []);
    assert.deepEqual(await ipset.apply(remove(IPS.name, address(3))), []);
    assert.deepEqual(await ipset.apply(remove(NODE_PORTS.name, { kind: "port", port: 5 })), []);
    assert.deepEqual(await texts(ipset, IPS.name), ["10.0.0.2"]);
  });

  test("operations take effect in their order", async (t) => {
    const { ipset } = await open(t);
    await ipset.ensure(IPS);
    const [a, b] = [address(1), address(2)];
    await ipset.apply([...add(IPS.name, a, b), ...remove(IPS.name, a), ...add(IPS.name, a), ...remove(IPS.name, b)]);
    assert.deepEqual(await texts(ipset, IPS.name), ["10.0.0.1"]);
  });

  test("nothing to do is done", async (t) => {
    const { ipset } = await open(t);
    assert.deepEqual(await ipset.apply([]), []);
  });

  test("thousands of members, more than fit one message and one datagram", async (t) => {
    const { ipset } = await open(t);
    await ipset.ensure(IPS);
    const entries = Array.from({ length: 5000 }, (_, n) => address(n));
    assert.deepEqual(await ipset.apply(add(IPS.name, ...entries)), []);
    assert.equal(new Set(await texts(ipset, IPS.name)).size, 5000);
    assert.deepEqual(await ipset.apply(remove(IPS.name, ...entries.slice(1))), []);
    assert.deepEqual(await texts(ipset, IPS.name), ["10.0.0.0"]);
  });

  test("an aborted signal stops it", async (t) => {
    const { ipset } = await open(t);
    const signal = AbortSignal.abort(new Error("stop"));
    await ipset.ensure(IPS);
    await assert.rejects(ipset.members(IPS.name, signal), /stop/);
    await assert.rejects(ipset.apply(add(IPS.name, address(1)), signal), /stop/);
    assert.deepEqual(await ipset.members(IPS.name), []);
  });
}

function refusalTests(open: Open): void {
  test("a set of the same name with another type or family", async (t) => {
    const { ipset, createForeign } = await open(t);
    await createForeign(CLUSTER_IPS.name, "hash:net", "IPv4");
    await assert.rejects(ipset.ensure(CLUSTER_IPS), hasCode("EEXIST"));
    await ipset.ensure(IPS);
    await assert.rejects(ipset.ensure({ ...IPS_6, name: IPS.name }), hasCode("EEXIST"));
    await assert.rejects(ipset.ensure({ ...NODE_PORTS, name: IPS.name }), hasCode("EEXIST"));
    assert.deepEqual(
      (await ipset.sets()).find(({ name }) => name === IPS.name),
      IPS,
    );
  });

  test("a name of more than 31 characters", async (t) => {
    const { ipset } = await open(t);
    await ipset.ensure({ ...IPS, name: "x".repeat(31) });
    await assert.rejects(ipset.ensure({ ...IPS, name: "x".repeat(32) }), hasCode("ENAMETOOLONG"));
  });

  test("an entry of another family or form is refused by name, and the others are done", async (t) => {
    const { ipset } = await open(t);
    await ipset.ensure(IPS);
    await ipset.ensure(CLUSTER_IPS);
    const wrong = { kind: "ip", address: ip("fd00::1") } as const;
    const operations = [...add(IPS.name, address(1), wrong, address(2)), ...add(CLUSTER_IPS.name, address(3))];
    const failures = await ipset.apply(operations);
    assert.deepEqual(
      failures.map(({ operation, code }) => [operation, code]),
      [
        [operations[1], "IPSET_ERR_PROTOCOL"],
        [operations[3], "IPSET_ERR_PROTOCOL"],
      ],
    );
    assert.match(failures[0]?.message ?? "", /cannot add fd00::1 to KUBE-IPVS-IPS: .*type or family/);
    assert.deepEqual(await texts(ipset, IPS.name), ["10.0.0.1", "10.0.0.2"]);
  });

  test("a network of length 0", async (t) => {
    const { ipset } = await open(t);
    await ipset.ensure(SOURCES);
    const entry: IpsetEntry = {
      kind: "ip-port-net",
      address: ip("1.2.3.4"),
      protocol: "tcp",
      port: 80,
      network: net("0.0.0.0/0"),
    };
    const [failure] = await ipset.apply(add(SOURCES.name, entry));
    assert.equal(failure?.code, "IPSET_ERR_INVALID_CIDR");
    assert.match(failure.message, /two halves/);
  });

  test("operations on a missing set, each by itself", async (t) => {
    const { ipset } = await open(t);
    await ipset.ensure(IPS);
    const operations = [...add("gone", address(1), address(2)), ...add(IPS.name, address(3))];
    const failures = await ipset.apply(operations);
    assert.deepEqual(
      failures.map(({ code }) => code),
      ["ENOENT", "ENOENT"],
    );
    assert.deepEqual(await texts(ipset, IPS.name), ["10.0.0.3"]);
  });

  test("more members than a set holds", async (t) => {
    const { ipset } = await open(t);
    await ipset.ensure(IPS);
    const entries = Array.from({ length: 70_000 }, (_, n) => address(n));
    const failures = await ipset.apply(add(IPS.name, ...entries));
    // The kernel divides the limit among regions of its hash table, so it is not exact.
    assert.ok(failures.length > 0);
    assert.deepEqual([...new Set(failures.map(({ code }) => code))], ["IPSET_ERR_HASH_FULL"]);
    const members = new Set(await texts(ipset, IPS.name));
    assert.equal(members.size, entries.length - failures.length);
    for (const { operation } of failures) assert.ok(!members.has(ipsetEntryText(operation.entry)));
  });

  test("destroying a set that a rule refers to", async (t) => {
    const { ipset, refer } = await open(t);
    await ipset.ensure(IPS);
    const release = await refer(IPS.name);
    await assert.rejects(ipset.destroy(IPS.name), hasCode("IPSET_ERR_BUSY"));
    await release();
    await ipset.destroy(IPS.name);
    assert.deepEqual(await ipset.sets(), []);
  });
}
