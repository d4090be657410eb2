/** What `prove` says of whole nodes: what upstream left in a kernel, beside kubelet and a CNI. `KPTS_PROVE_WORLDS` sets how many of them. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { projectObjects } from "../../src/agent/cluster/manifests/read-manifests.ts";
import { offlineNode } from "../../src/contract/inspect/offline-node.ts";
import { ip } from "../../src/model/testing/records.ts";
import { rulesSide, specificationSide } from "../../src/tools/prove/sides.ts";
import { type Dump, recogniseDumps } from "../../src/trace/dump/recognise.ts";
import { historyRuns } from "../../testkit/support/fast-check.ts";
import { prove } from "../../testkit/support/prove.ts";
import { caseFile, caseNames, caseState, SERVICE_CIDR_OBJECT } from "../conformance/conformance-case.ts";
import { differencesIn, provedCluster, VARIANTS, type Variant } from "./prove-support.ts";

/** What upstream left, as its tools have listed it. */
const LISTED = {
  nftables: (name: string): Dump[] => recogniseDumps(caseFile(name, "nftables/nft.json"), name),
  iptables: (name: string): Dump[] => recogniseDumps(caseFile(name, "iptables/iptables.txt"), name),
} as const;

/** What kubelet and flannel put on a node, where they started before the proxy. */
const BY_KUBELET = [
  "*filter",
  ...["INPUT", "FORWARD", "OUTPUT"].map((chain) => `:${chain} ACCEPT [0:0]`),
  ":KUBE-FIREWALL - [0:0]",
  "-A INPUT -j KUBE-FIREWALL",
  "-A OUTPUT -j KUBE-FIREWALL",
  '-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP',
  "COMMIT",
];
const BY_FLANNEL = [
  "*nat",
  ...["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"].map((chain) => `:${chain} ACCEPT [0:0]`),
  ":FLANNEL-POSTRTG - [0:0]",
  '-A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG',
  "-A FLANNEL-POSTRTG -s 10.180.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE",
  "COMMIT",
];

/** The same, with kubelet's chain behind the proxy's jumps. */
function onNodeOfKubelet(dump: Dump): Dump {
  if (dump.kind !== "iptables") return dump;
  const jump = /^-A INPUT .*-j KUBE-FIREWALL\n/m.exec(dump.text)?.[0] ?? "-A INPUT -j KUBE-FIREWALL\n";
  const missing = dump.text.includes(":KUBE-FIREWALL")
    ? []
    : BY_KUBELET.filter((line) => /KUBE-FIREWALL/.test(line)).filter((line) => !line.startsWith("-A INPUT"));
  const text = dump.text
    .replace(jump, "")
    .replace(/(^\*filter\n(?:(?!COMMIT).*\n)*)/m, `$1${missing.join("\n")}${missing.length > 0 ? "\n" : ""}${jump}`);
  return { ...dump, text };
}

function configOf(name: string, mode: string): object | undefined {
  try {
    return JSON.parse(caseFile(name, `${mode}/config.yaml`));
  } catch {
    return undefined;
  }
}

function variantNamed(name: string): Variant {
  const found = VARIANTS.find((variant) => variant.name === name);
  assert.ok(found);
  return found;
}

/** In `test:all`, all of them. */
const WORLDS = historyRuns("KPTS_PROVE_WORLDS", 5);

describe("on a node with kubelet, flannel and a bridge for pods, the proxy's part is the same", () => {
  const cases = caseNames().filter((name) => !/more-than-1000/.test(name));
  const every = Math.max(1, Math.floor(cases.length / WORLDS));
  for (const name of cases.filter((_, at) => at % every === 0)) {
    for (const [mode, list] of Object.entries(LISTED)) {
      const config = configOf(name, mode);
      if (config === undefined) continue;
      test(`${name}, ${mode}`, async () => {
        const { services, slices, node } = caseState(name);
        const cluster = projectObjects([...services, ...slices, node, SERVICE_CIDR_OBJECT]);
        const {
          node: plain,
          config: settings,
          dumps,
        } = await provedCluster(variantNamed(mode), cluster, "IPv4", config, "node-a");
        const own = [...plain.hostAddresses, ip("10.180.0.1")];
        const world = offlineNode(cluster, settings, "IPv4", () => {}, own);
        const rules = [...list(name).map(onNodeOfKubelet), ...dumps.filter(({ kind }) => kind === "chains")];
        const others =
          mode === "iptables" ? [] : recogniseDumps([...BY_KUBELET, ...BY_FLANNEL, ""].join("\n"), "others");
        const side = rulesSide("rules", [...others, ...rules], "IPv4", own);
        const meaning = specificationSide(
          cluster,
          world,
          settings,
          variantNamed(mode).deviations(settings),
          side.ownSockets,
        );
        const proof = prove("IPv4", own, [meaning, side]);
        assert.deepEqual(differencesIn(proof), []);
        assert.equal(proof.others.classes > 0, mode === "nftables");
      });
    }
  }
});
