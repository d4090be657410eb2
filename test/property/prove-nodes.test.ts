/** What `prove` says of whole nodes: what upstream left in a kernel, beside what others put on every node. `KPTS_PROVE_WORLDS` sets how many cases each has. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { projectObjects } from "../../src/agent/cluster/manifests/read-manifests.ts";
import { offlineNode } from "../../src/contract/inspect/offline-node.ts";
import { ip } from "../../src/model/testing/records.ts";
import { guardsLoopback, rulesSide, specificationSide } from "../../src/tools/prove/sides.ts";
import { recogniseDumps } from "../../src/trace/dump/recognise.ts";
import { historyRuns } from "../../testkit/support/fast-check.ts";
import { prove } from "../../testkit/support/prove.ts";
import { caseFile, caseNames, caseState, SERVICE_CIDR_OBJECT } from "../conformance/conformance-case.ts";
import { inWorld, WORLDS, type World } from "./node-worlds.ts";
import { differencesIn, provedCluster, VARIANTS } from "./prove-support.ts";

const RUNS = historyRuns("KPTS_PROVE_WORLDS", 1);
/** Of cni0, kube-bridge or cilium_host, Calico's tunnel, docker0, and the second network interface of a VPC. */
const MORE_ADDRESSES = ["10.180.0.1", "10.180.0.53", "10.180.0.192", "172.17.0.1", "10.210.0.50"].map(ip);
const NAMES = caseNames().filter((name) => !/more-than-1000/.test(name));

function hasCase(name: string, mode: string): boolean {
  try {
    return caseFile(name, `${mode}/config.yaml`) !== "";
  } catch {
    return false;
  }
}

async function provedIn(world: World, name: string, mode: "iptables" | "nftables", isFirst: boolean) {
  const variant = VARIANTS.find((one) => one.name === mode);
  assert.ok(variant);
  const { services, slices, node } = caseState(name);
  const cluster = projectObjects([...services, ...slices, node, SERVICE_CIDR_OBJECT]);
  const given: object = JSON.parse(caseFile(name, `${mode}/config.yaml`));
  const { node: plain, config, dumps } = await provedCluster(variant, cluster, "IPv4", given, "node-a");
  const own = [...plain.hostAddresses, ...MORE_ADDRESSES];
  const listed =
    mode === "iptables"
      ? inWorld(caseFile(name, "iptables/iptables.txt"), world, isFirst)
      : [...recogniseDumps(caseFile(name, "nftables/nft.txt"), name), ...inWorld("", world, isFirst)];
  const rules = [...listed, ...dumps.filter(({ kind }) => kind === "chains")];
  const known = offlineNode(cluster, config, "IPv4", () => {}, own);
  const deviations = variant.deviations(config);
  const side = rulesSide("rules", rules, "IPv4", own, { guardsLoopback: guardsLoopback(known, deviations) });
  const meaning = specificationSide(cluster, known, config, deviations, side.ownSockets);
  return prove("IPv4", own, [meaning, side]);
}

describe("beside what others put on every node, the proxy's part is equal, and what they change is said", () => {
  for (const [at, [label, world]] of Object.entries(WORLDS).entries()) {
    for (const mode of ["nftables", "iptables"] as const) {
      const names = NAMES.filter((name) => hasCase(name, mode));
      const chosen = Array.from({ length: RUNS }, (_, turn) => names[(7 * at + turn) % names.length] ?? "");
      for (const name of new Set([...chosen, ...(world.alsoIn === undefined ? [] : [world.alsoIn])])) {
        test(`${label}: ${name}, ${mode}`, async () => {
          for (const isFirst of RUNS > 1 ? [true, false] : [at % 2 === 0]) {
            const proof = await provedIn(world, name, mode, isFirst);
            assert.deepEqual(
              differencesIn(proof),
              [],
              isFirst ? "called before the proxy's" : "called after the proxy's",
            );
            // In iptables mode, KUBE-FIREWALL may be the proxy's, too.
            if (label !== "kubelet" || mode === "nftables") assert.ok(proof.others.classes > 0);
          }
        });
      }
    }
  }
});
