/** Comparing large sets with an expectation gives the same result as listing them, whichever of the two an implementation does. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { IpAddress } from "../../../net/ip.ts";
import type { Nftables, NftExpectation, NftSetContent } from "../nftables.ts";
import { elementKey, type NftElement, type NftFamily, type NftSet } from "../ruleset.ts";
import type { NftablesSubject } from "./nftables-subject.ts";

/** Enough that the kernel's set is compared and not listed. */
const MANY = 2_100;
/** Elements per service. */
const EACH = 700;

const KEY = ["address", "protocol", "port", "slot"] as const;
const ENDPOINTS: NftSet = { name: "endpoints-3", key: KEY, isMap: false, hasTargets: true, slots: 3 };
const FRONTENDS: NftSet = { name: "frontends", key: ["address", "protocol", "port"], isMap: false };
const VERDICTS: NftSet = { name: "verdicts", key: ["port"], isMap: true };
const SETS = [ENDPOINTS, FRONTENDS, VERDICTS];

type Content = Readonly<Record<string, readonly NftElement[]>>;

function content(family: NftFamily): Content {
  const address = (n: number): IpAddress =>
    (family === "ip" ? `10.96.${n >> 8}.${n & 255}` : `fd00::${(n + 1).toString(16)}`) as IpAddress; // canonical
  const numbers = Array.from({ length: MANY }, (_, n) => n);
  return {
    [ENDPOINTS.name]: numbers.map((n) => ({
      key: [address(n), "tcp", 80, n % 3],
      target: { ip: address(n), port: 8080 },
      comment: `ns/web-${Math.floor(n / EACH)}:http`,
    })),
    [FRONTENDS.name]: numbers.map((n) => ({ key: [address(n), "udp", 53], comment: `ns/web-${n}:http` })),
    [VERDICTS.name]: numbers.map((n) => ({ key: [n + 1], verdict: { kind: "goto", chain: "a" } })),
  };
}

function expecting(wanted: Content): NftExpectation {
  return {
    sets: new Map(SETS.map((set) => [set.name, set])),
    *elements(sets) {
      for (const [set, elements] of Object.entries(wanted)) {
        for (const element of sets.has(set) ? elements : []) yield { set, element };
      }
    },
  };
}

/** All elements of a set, whether it was listed or compared. */
function elementsOf({ elements, others }: NftSetContent, wanted: readonly NftElement[]): Map<string, NftElement> {
  const all = new Map(elements.map((element) => [elementKey(element.key), element]));
  for (const element of others === undefined ? [] : wanted) {
    const key = elementKey(element.key);
    const found = others?.has(key) === true ? others.get(key) : element;
    if (found !== undefined) all.set(key, found);
  }
  return all;
}

async function check(nft: Nftables, wanted: Content): Promise<void> {
  const listed = await nft.read();
  const compared = await nft.read(expecting(wanted));
  assert.ok(listed !== undefined && compared !== undefined);
  for (const { name } of SETS) {
    const plain: NftSetContent | undefined = listed.sets.get(name);
    const outcome: NftSetContent | undefined = compared.sets.get(name);
    assert.ok(plain !== undefined && outcome !== undefined, name);
    assert.equal(plain.others, undefined, "nothing is expected of a set that is listed");
    assert.deepEqual(elementsOf(outcome, wanted[name] ?? []), elementsOf(plain, []), name);
  }
}

export function comparisonContract({ name, open, skip }: NftablesSubject): void {
  const fill = async (nft: Nftables, having: Content): Promise<void> => {
    await nft.transact([
      { kind: "add-table", comment: "rules for kube-proxy" },
      { kind: "add-chain", chain: { name: "a" } },
      ...SETS.map((set) => ({ kind: "add-set", set }) as const),
      ...SETS.map((set) => ({ kind: "add-elements", set, elements: having[set.name] ?? [] }) as const),
    ]);
  };
  const changed = (
    having: Content,
    name: string,
    change: (elements: readonly NftElement[]) => NftElement[],
  ): Content => ({
    ...having,
    [name]: change(having[name] ?? []),
  });

  describe(`sets compared with what is expected: ${name}`, { skip }, () => {
    test("with all of it, nothing is listed", async (t) => {
      const { nft } = await open(t);
      const having = content(nft.family);
      await fill(nft, having);
      await check(nft, having);
      const sets = (await nft.read(expecting(having)))?.sets;
      for (const set of SETS) {
        const { elements, others } = sets?.get(set.name) ?? assert.fail();
        // If the kernel does not tell the number of elements, the set is listed.
        if (others === undefined) assert.equal(elements.length, MANY, set.name);
        else assert.deepEqual([elements.length, others.size], [0, 0], set.name);
      }
    });

    test("others at some keys, nothing at some, and what is not expected", async (t) => {
      const { nft } = await open(t);
      const having = content(nft.family);
      await fill(nft, having);
      const endpoints = having[ENDPOINTS.name] ?? assert.fail();
      // The first element of one service, the last of another, and one in the middle.
      const atEndpoint = [EACH, MANY - 1, EACH + 400].flatMap((at) => {
        const one = endpoints[at] ?? assert.fail();
        const target = { ...(one.target ?? assert.fail()), port: 9090 };
        const slot = (Number(one.key[3]) + 1) % 3;
        const withKey = { ...one, key: [...one.key.slice(0, 3), slot] };
        return [
          endpoints.with(at, { ...one, target }),
          endpoints.toSpliced(at, 0, withKey),
          endpoints.toSpliced(at, 1),
          endpoints.with(at, withKey),
        ].map((changes) => changed(having, ENDPOINTS.name, () => changes));
      });
      for (const wanted of [
        ...atEndpoint,
        changed(having, ENDPOINTS.name, ([one, ...rest]) => [
          { ...(one ?? assert.fail()), comment: "ns/renamed:http" },
          ...rest,
        ]),
        changed(having, ENDPOINTS.name, (all) => [...all.slice(0, EACH + 3), ...all.slice(EACH + 300)]),
        changed(having, FRONTENDS.name, ([, ...rest]) => rest),
        changed(having, VERDICTS.name, ([one, ...rest]) => [
          { key: one?.key ?? [], verdict: { kind: "drop" } },
          ...rest,
        ]),
        changed(having, VERDICTS.name, (all) => [...all, { key: [60_000], verdict: { kind: "drop" } }]),
        changed(having, VERDICTS.name, () => []),
      ]) {
        await check(nft, wanted);
      }
    });
  });
}
