/**
 * `prove` finds what it must: each rule and each element of the examples' plan is taken out, led elsewhere or moved to the other end
 * of its chain, one at a time. Each is found by a packet, or is known to change nothing there, with its reason.
 * `KPTS_PROVE_MUTANTS` sets how many of each mode are tried; 0: all.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { projectObjects } from "../../src/agent/cluster/manifests/read-manifests.ts";
import { isObject, type JsonObject } from "../../src/kernel/nftables/json.ts";
import { modeNamed } from "../../src/modes/registry.ts";
import { dumpReaders } from "../../src/tools/cli/trace-rules.ts";
import { type Dump, type DumpReader, recogniseDump } from "../../src/trace/dump/recognise.ts";
import { examplesAsJson } from "../cli/run-command.ts";
import { REDUNDANT } from "./prove-redundant.ts";
import { type ProvedCluster, provedAgainst, provedCluster, VARIANTS } from "./prove-support.ts";

const TRIED = Number(process.env.KPTS_PROVE_MUTANTS ?? (process.env.KPTS_PROPERTY_SCALE === undefined ? 150 : 0));
const SEED = Number(process.env.KPTS_PROPERTY_SEED ?? Date.now() % 1_000);

interface Mutant {
  /** `without`, `elsewhere` or `moved`, and the rule or element. */
  readonly text: string;
  readonly dumps: readonly Dump[];
}

function reasonFor(mutant: string): string | undefined {
  return REDUNDANT.find(([pattern]) => pattern.test(mutant))?.[1];
}

function* nftMutants(objects: readonly unknown[]): Generator<Mutant> {
  for (const [index, object] of objects.entries()) {
    if (!isObject(object)) continue;
    const changed = (text: string, ...put: unknown[]): Mutant => ({
      text,
      dumps: [{ kind: "nftables", objects: objects.toSpliced(index, 1, ...put) }],
    });
    if (isObject(object.rule)) {
      const text = JSON.stringify({ chain: object.rule.chain, expr: object.rule.expr });
      yield changed(`without ${text}`);
      const { chain } = object.rule;
      const others = objects.flatMap((one, at) =>
        isObject(one) && isObject(one.rule) && one.rule.chain === chain ? [at] : [],
      );
      const to = others[0] === index ? others.at(-1) : others[0];
      if (to !== undefined && to !== index) {
        const moved = objects.toSpliced(index, 1).toSpliced(to, 0, object);
        yield { text: `moved ${text}`, dumps: [{ kind: "nftables", objects: moved }] };
      }
    }
    const kind = object.set === undefined ? "map" : "set";
    const body = object[kind];
    if (!isObject(body) || !Array.isArray(body.elem)) continue;
    const elements: readonly unknown[] = body.elem;
    for (const [at, element] of elements.entries()) {
      const text = JSON.stringify({ [kind]: body.name, element });
      const withElements = (elem: readonly unknown[]): JsonObject => ({ [kind]: { ...body, elem } });
      yield changed(`without ${text}`, withElements(elements.toSpliced(at, 1)));
      const other = elements.find((one) => dataOf(one) !== dataOf(element));
      if (kind !== "map" || !Array.isArray(element) || !Array.isArray(other)) continue;
      yield changed(`elsewhere ${text}`, withElements(elements.toSpliced(at, 1, [element[0], other[1]])));
    }
  }
}

function dataOf(element: unknown): string {
  return JSON.stringify(Array.isArray(element) ? element[1] : null);
}

/** Lines of what tools print: rules of iptables, entries of IP sets, virtual and real servers. */
function* textMutants(
  texts: readonly string[],
  others: readonly Dump[],
  readers: readonly DumpReader[],
): Generator<Mutant> {
  for (const [place, text] of texts.entries()) {
    const lines = text.split("\n");
    const changed = (all: readonly string[]): Dump[] => [
      ...texts.with(place, all.join("\n")).map((one) => recogniseDump(one, "a mutant", readers)),
      ...others,
    ];
    for (const [index, line] of lines.entries()) {
      if (!/^(?:-A|-a|add) /.test(line)) continue;
      // A virtual server takes its real servers with it.
      const end = /^-A -/.test(line) ? lines.findIndex((one, at) => at > index && !one.startsWith("-a ")) : index + 1;
      yield { text: `without ${line}`, dumps: changed(lines.toSpliced(index, end - index)) };
      const elsewhere = line.replace(/(?<=--to-destination \S+:|^-a .* -r \S+:)\d+(?= |$)/, "9");
      if (elsewhere !== line) yield { text: `elsewhere ${line}`, dumps: changed(lines.with(index, elsewhere)) };
      const chain = /^-A [A-Z]\S*/.exec(line)?.[0];
      const same = lines.flatMap((one, at) => (chain !== undefined && one.startsWith(`${chain} `) ? [at] : []));
      const table = (at: number) => lines.slice(0, at).findLast((one) => one.startsWith("*"));
      const own = same.filter((at) => table(at) === table(index));
      const to = own[0] === index ? own.at(-1) : own[0];
      if (to === undefined || to === index) continue;
      yield { text: `moved ${line}`, dumps: changed(lines.toSpliced(index, 1).toSpliced(to, 0, line)) };
    }
  }
}

const TEXT_FORMS: Readonly<Record<string, readonly string[]>> = {
  iptables: ["iptables-save"],
  userspace: ["iptables-save"],
  ipvs: ["iptables-save", "ipset", "ipvsadm"],
};

async function mutantsOf(mode: string, { node, config, dumps }: ProvedCluster): Promise<Iterable<Mutant>> {
  const [first] = dumps;
  if (first?.kind === "nftables") return nftMutants(first.objects);
  const render = await modeNamed(config.mode).loadRenderer();
  const texts: string[] = [];
  for (const form of TEXT_FORMS[mode] ?? []) {
    const rendered = await render(node, { config, form, service: undefined, missing: new Set() });
    if (rendered.kind === "text") texts.push(rendered.text);
  }
  return textMutants(
    texts,
    // Virtual servers are among the texts.
    dumps.filter(({ kind }) => (kind === "chains" && mode !== "ipvs") || kind === "addresses"),
    await dumpReaders(),
  );
}

function picked<T>(all: readonly T[]): readonly T[] {
  if (TRIED === 0 || all.length <= TRIED) return all;
  return Array.from(
    { length: TRIED },
    (_, index) => all[Math.floor((index + (SEED % 100) / 100) * (all.length / TRIED))],
  ).filter((one) => one !== undefined);
}

// The rules of ebpf mode are those of the flat layout.
for (const variant of VARIANTS.filter(({ mode }) => mode !== "ebpf")) {
  test(`${variant.name}: every rule that is gone, moved or leads elsewhere is found`, async (t) => {
    const raw: unknown = JSON.parse(examplesAsJson());
    const items = isObject(raw) && Array.isArray(raw.items) ? raw.items : raw;
    assert.ok(Array.isArray(items));
    const settings = { detectLocalMode: "ClusterCIDR", clusterCIDR: "10.180.0.0/16" };
    const proved = await provedCluster(variant, projectObjects(items), "IPv4", settings, "node-a");
    assert.equal(provedAgainst(proved, proved.dumps).differing, 0);
    const all = [...(await mutantsOf(variant.mode, proved))];
    const tried = picked(all);
    let found = 0;
    const lived: string[] = [];
    for (const { text, dumps } of tried) {
      const { differing, unprovable } = provedAgainst(proved, dumps, 1);
      if (differing > 0 || unprovable !== undefined) found += 1;
      else if (reasonFor(text) === undefined) lived.push(text);
    }
    t.diagnostic(`${found} of ${tried.length} mutants found, ${all.length} there are`);
    assert.deepEqual(lived, []);
    assert.ok(found > tried.length / 3, `only ${found} of ${tried.length} mutants were found`);
  });
}
