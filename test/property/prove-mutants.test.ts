/**
 * `prove` finds what it must: each rule and each element of the examples' plan is taken out, or led elsewhere, one at a time. Each
 * is found by a packet, or is known to change nothing there, with its reason.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { projectObjects } from "../../src/cluster/manifests/read-manifests.ts";
import { modeNamed } from "../../src/dataplane/registry.ts";
import { type Dump, recogniseDumps } from "../../src/trace/dump/recognise.ts";
import { isObject, type JsonObject } from "../../src/trace/nftables/json.ts";
import { examplesAsJson } from "../cli/run-command.ts";
import { type ProvedCluster, provedAgainst, provedCluster, VARIANTS } from "./prove-support.ts";

/** What may go without a difference in this cluster, and why. */
const REDUNDANT: readonly (readonly [pattern: RegExp, reason: string])[] = [
  [/"10\.96\.0\.70"/, "other ports of a cluster IP are refused as well as those without endpoints"],
  [
    /"filter-input".*"(?:service-endpoints-check|remember-clients)"/,
    "no Service of the examples has an address of the node, or affinity and an endpoint on the node's network",
  ],
  [
    /^\{"chain":"(?:nodeport|service)-endpoints-check".*drop/,
    "no local policy is without endpoints at these addresses",
  ],
  [/"service-endpoints-check".*@rejected-frontends/, "no external address of the examples is without endpoints"],
  [/"chain":"remember-(?:clients|frontends-\d+|nodeports-\d+)"/, "affinity is tried over TCP only"],
  [/"chain":"(?:frontend|nodeport)-cluster-endpoints".*"pick-clients-/, "no Service has affinity and a local policy"],
  [
    /^-A (?:INPUT|OUTPUT) .*KUBE-(?:PROXY-)?FIREWALL/,
    "what the node sends to itself meets the chain at input and at output",
  ],
  [/KUBE-FW-.*comment "other traffic to/, "a comment without a target"],
  [/health check/, "nothing else of the examples' rules drops these packets"],
  [/KUBE-FORWARD/, "the policy of FORWARD accepts, and only first packets are asked"],
  [/^-A FORWARD .*KUBE-EXTERNAL-SERVICES/, "no external address of the examples is without endpoints"],
  [/-d 127\.0\.0\.0\/8 .*localhost_nps/, "counts, and leads where the next rule leads"],
  [/KUBE-POSTROUTING -j MARK/, "takes the mark away, which nothing looks at afterwards"],
  [/KUBE-SEP-\w+ -s 10\.180\.0\.12\/32 .*checkout/, "an endpoint that terminates: only clients outside are led to it"],
];

function reasonFor(mutant: string): string | undefined {
  return REDUNDANT.find(([pattern]) => pattern.test(mutant))?.[1];
}

interface Mutant {
  readonly text: string;
  readonly dumps: readonly Dump[];
}

function* nftMutants(objects: readonly unknown[]): Generator<Mutant> {
  for (const [index, object] of objects.entries()) {
    if (!isObject(object)) continue;
    const changed = (text: string, ...put: unknown[]): Mutant => ({
      text,
      dumps: [{ kind: "nftables", objects: objects.toSpliced(index, 1, ...put) }],
    });
    if (isObject(object.rule)) yield changed(JSON.stringify({ chain: object.rule.chain, expr: object.rule.expr }));
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

function* savedMutants(text: string): Generator<Mutant> {
  const lines = text.split("\n");
  for (const [index, line] of lines.entries()) {
    if (!line.startsWith("-A")) continue;
    const changed = (...put: string[]) => recogniseDumps(lines.toSpliced(index, 1, ...put).join("\n"), "a mutant");
    yield { text: line, dumps: changed() };
    const elsewhere = line.replace(/(?<=--to-destination \S+:)\d+$/, "9");
    if (elsewhere !== line) yield { text: line, dumps: changed(elsewhere) };
  }
}

async function mutantsOf(mode: string, { node, config, dumps }: ProvedCluster): Promise<Iterable<Mutant>> {
  const [first] = dumps;
  if (first?.kind === "nftables") return nftMutants(first.objects);
  assert.equal(mode, "iptables");
  const render = await modeNamed("iptables").loadRenderer();
  const saved = await render(node, { config, form: "iptables-save", service: undefined, missing: new Set() });
  assert.equal(saved.kind, "text");
  return saved.kind === "text" ? savedMutants(saved.text) : [];
}

// The rules of ebpf mode are those of the flat layout.
for (const variant of VARIANTS.filter(({ mode }) => mode !== "ebpf")) {
  test(`${variant.name}: every rule that is gone or leads elsewhere is found`, async () => {
    const raw: unknown = JSON.parse(examplesAsJson());
    const items = isObject(raw) && Array.isArray(raw.items) ? raw.items : raw;
    assert.ok(Array.isArray(items));
    const settings = { detectLocalMode: "ClusterCIDR", clusterCIDR: "10.180.0.0/16" };
    const proved = await provedCluster(variant, projectObjects(items), "IPv4", settings, "node-a");
    assert.equal(provedAgainst(proved, proved.dumps).differing, 0);
    let found = 0;
    const lived: string[] = [];
    for (const { text, dumps } of await mutantsOf(variant.mode, proved)) {
      const { differing, unprovable } = provedAgainst(proved, dumps);
      if (differing > 0 || unprovable !== undefined) found += 1;
      else if (reasonFor(text) === undefined) lived.push(text);
    }
    assert.deepEqual(lived, []);
    assert.ok(found > 100, `only ${found} mutants were found`);
  });
}
