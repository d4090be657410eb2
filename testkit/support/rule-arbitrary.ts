/** Random iptables rules for property tests. */
import assert from "node:assert/strict";
import {
  ADDRESS_TYPES,
  CONNTRACK_STATES,
  type KernelMatch,
  STATES,
} from "../../src/kernel/iptables/parser/rule-matches.ts";
import type { KernelRule } from "../../src/kernel/iptables/parser/rule-syntax.ts";
import type { KernelTarget } from "../../src/kernel/iptables/parser/rule-targets.ts";
import { type Cidr, type IpAddress, parseCidr, parseIpAddress } from "../../src/net/ip.ts";
import fc from "./fast-check.ts";

function must<T>(value: T | undefined): T {
  assert.ok(value !== undefined);
  return value;
}

const negated = fc.boolean();
const u32 = fc.nat(0xffffffff);
const ipv4 = fc.ipV4().map((text): IpAddress => must(parseIpAddress(text)));
const cidr = fc
  .tuple(ipv4, fc.integer({ min: 1, max: 32 }))
  .map(([ip, length]): Cidr => must(parseCidr(`${ip}/${length}`)));
const maybe = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined });
const interfaceName = fc.stringMatching(/^[a-z][a-z0-9]{0,13}\+?$/);
const chainName = fc.stringMatching(/^KUBE-[A-Z0-9]{1,23}$/);
const range = fc
  .record({ from: fc.nat(65535), to: fc.nat(65535), negated })
  .map(({ from, to, negated: not }) => ({ from: Math.min(from, to), to: Math.max(from, to), negated: not }))
  .filter(({ from, to, negated: not }) => not || from !== 0 || to !== 65535);
const types = fc.record({ types: fc.subarray([...ADDRESS_TYPES], { minLength: 1 }), negated });

const match: fc.Arbitrary<KernelMatch> = fc.oneof(
  fc.record({ kind: fc.constant("comment" as const), text: fc.string({ maxLength: 60 }) }),
  fc.record({
    kind: fc.constant("conntrack" as const),
    states: fc.subarray([...CONNTRACK_STATES], { minLength: 1 }),
    negated,
  }),
  fc.record({ kind: fc.constant("state" as const), states: fc.subarray([...STATES], { minLength: 1 }), negated }),
  fc.record({ kind: fc.constant("physdev" as const), isIn: fc.boolean() }),
  fc
    .record({
      kind: fc.constant("addrtype" as const),
      source: maybe(types),
      destination: maybe(types),
      device: fc.constantFrom(undefined, "in" as const, "out" as const),
    })
    .filter(({ source, destination }) => source !== undefined || destination !== undefined),
  fc.record({ kind: fc.constant("mark" as const), value: u32, mask: u32, negated }),
  fc.record({ kind: fc.constant("statistic" as const), probability: fc.nat(2 ** 31 - 1), negated }),
  fc.record({
    kind: fc.constant("recent" as const),
    action: fc.constantFrom("rcheck" as const, "update" as const),
    negated,
    list: chainName,
    seconds: fc.nat(0x7fffffff),
    hitCount: maybe(fc.nat(255)),
    reap: fc.boolean(),
    mask: ipv4,
    // The printed form always has a mask.
    hasDefaultMask: fc.constant(false),
    side: fc.constantFrom("source" as const, "destination" as const),
  }),
  fc.record({ kind: fc.constant("nfacct" as const), counter: fc.stringMatching(/^[a-z_ ]{1,31}$/) }),
  fc.record({
    kind: fc.constant("set" as const),
    name: chainName,
    directions: fc.array(fc.constantFrom("src" as const, "dst" as const), { minLength: 1, maxLength: 6 }),
    negated,
  }),
  fc.record({ kind: fc.constant("physdev" as const), isIn: fc.boolean() }),
  fc.record({
    kind: fc.constant("ipvs" as const),
    protocolNumber: maybe(fc.nat(255)),
    address: ipv4,
    port: maybe(fc.nat(65535)),
  }),
  fc.record({ kind: fc.constant("tcp" as const), source: maybe(range), destination: maybe(range) }),
);

const target: fc.Arbitrary<KernelTarget> = fc.oneof(
  fc.constantFrom<KernelTarget>(
    { kind: "none" },
    { kind: "ACCEPT" },
    { kind: "DROP" },
    { kind: "RETURN" },
    { kind: "REJECT", with: "tcp-reset" },
    { kind: "MASQUERADE", random: true, randomFully: false },
  ),
  fc.record({ kind: fc.constantFrom("jump" as const, "goto" as const), chain: chainName }),
  fc.record({ kind: fc.constant("MARK" as const), value: u32, mask: u32 }),
  fc.record({
    kind: fc.constant("REDIRECT" as const),
    ports: maybe(range.map(({ from, to }) => ({ from, to }))),
    random: fc.boolean(),
  }),
  fc.record({
    kind: fc.constant("DNAT" as const),
    address: ipv4,
    port: maybe(fc.integer({ min: 1, max: 65535 })),
    random: fc.boolean(),
    persistent: fc.boolean(),
  }),
);

function hasOnePortsMatch(matches: readonly KernelMatch[]): boolean {
  return matches.filter(({ kind }) => kind === "tcp").length <= 1;
}

/** An IPv4 rule for TCP with any matches and any target. */
export const ruleArbitrary: fc.Arbitrary<KernelRule> = fc.record({
  source: maybe(fc.record({ cidr, negated })),
  destination: maybe(fc.record({ cidr, negated })),
  inInterface: maybe(fc.record({ name: interfaceName, negated })),
  outInterface: maybe(fc.record({ name: interfaceName, negated })),
  protocol: fc.constant({ protocol: "tcp" as const, negated: false }),
  matches: fc.array(match, { maxLength: 4 }).filter(hasOnePortsMatch),
  target,
});
