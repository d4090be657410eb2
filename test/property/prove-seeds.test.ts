/**
 * Faults that earlier versions had, or that other programs have caused, and that changed what becomes of packets
 * (docs/notes/changelog-0.1.md): each is put back once, and `prove` finds it.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { projectObjects } from "../../src/agent/cluster/manifests/read-manifests.ts";
import { isObject, listOf } from "../../src/kernel/nftables/json.ts";
import { modeNamed } from "../../src/modes/registry.ts";
import { dumpReaders } from "../../src/tools/cli/trace-rules.ts";
import { type Dump, recogniseDump } from "../../src/trace/dump/recognise.ts";
import { examplesAsJson } from "../cli/run-command.ts";
import { type ProvedCluster, provedAgainst, provedCluster, VARIANTS } from "./prove-support.ts";

type Objects = readonly unknown[];
/** Texts of the mode's forms, one after the other. */
type Change = (text: string) => string;

interface TextSeed {
  readonly mode: "iptables" | "ipvs" | "userspace";
  readonly fault: string;
  readonly change: Change;
}

const without =
  (pattern: RegExp): Change =>
  (text) =>
    text
      .split("\n")
      .filter((line) => !pattern.test(line))
      .join("\n");
const put =
  (after: RegExp, line: string): Change =>
  (text) =>
    text.replace(after, (found) => `${found}\n${line}`);

const TEXT_SEEDS: readonly TextSeed[] = [
  {
    mode: "iptables",
    fault: "externalIPs take another Service's cluster IP",
    change: (text) => text.replace(/(?<=^-A KUBE-SERVICES -d 10\.96\.0\.10.* -j )\S+$/m, "KUBE-EXT-7PXUEH4YP2CH4IIV"),
  },
  {
    mode: "iptables",
    fault: "a Service whose name is too long for a rule is left out",
    change: without(/^-A .*shop\/web:http/),
  },
  { mode: "iptables", fault: "a flushed chain of a Service", change: without(/^-A KUBE-SVC-67NZLRHBNDSAWJRO /) },
  {
    mode: "iptables",
    fault: "a rule of another program in a chain of ours",
    change: (text) => text.replace(/^-A KUBE-SVC-67NZLRHBNDSAWJRO /m, "-A KUBE-SVC-67NZLRHBNDSAWJRO -j DROP\n$&"),
  },
  {
    mode: "iptables",
    fault: "the address that a relay of loopback needs is open to other machines (CVE-2020-8558)",
    change: without(/^-A KUBE-FIREWALL /),
  },
  {
    mode: "userspace",
    fault: "a load balancer with source ranges and the Local policy has no rules",
    change: without(/^-A KUBE-PORTALS-CONTAINER -s 10\.200\.0\.64\/26 /),
  },
  {
    mode: "userspace",
    fault: "a portal is not opened because the proxy has the port already",
    change: without(/^-A KUBE-NODEPORT-\w+ .*--dport 30080 /),
  },
  {
    mode: "userspace",
    fault: "a Local policy of the outside is not known",
    change: (text) => text.replace(/(?<=^-A KUBE-NODEPORT-CONTAINER -p tcp .*--dport 30083 .*):20010$/m, ":20009"),
  },
  {
    mode: "ipvs",
    fault: "a weight of 0 that draining has left stays when the endpoint comes back",
    change: (text) => text.replace(/(?<=^-a -t 10\.96\.0\.10:80 .*) -w 1$/m, " -w 0"),
  },
  {
    mode: "ipvs",
    fault: "another program takes one address off kube-ipvs0",
    change: without(/^addr add 10\.96\.0\.10\/32 /),
  },
  {
    mode: "ipvs",
    fault: "node ports answer on addresses of kube-ipvs0",
    change: put(
      /^-a -t 10\.96\.0\.10:80 .*$/m,
      "-A -t 10.96.0.10:30080 -s rr\n-a -t 10.96.0.10:30080 -r 10.180.0.11:8080 -m -w 1",
    ),
  },
  {
    mode: "ipvs",
    fault: "a virtual server of a Service that is gone stays",
    change: put(
      /^-a -t 10\.96\.0\.10:80 .*$/m,
      "-A -t 10.96.0.10:8443 -s rr\n-a -t 10.96.0.10:8443 -r 10.180.0.11:8443 -m -w 1",
    ),
  },
  {
    mode: "ipvs",
    fault: "refusals that iptables mode has left stay",
    change: put(
      /^:KUBE-IPVS-FILTER .*$/m,
      "-A KUBE-IPVS-FILTER -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable",
    ),
  },
  {
    mode: "ipvs",
    fault: "source ranges are served before they are restricted",
    change: without(/^add KUBE-LOAD-BALANCER-FW /),
  },
];

const FORMS = {
  iptables: ["iptables-save"],
  userspace: ["iptables-save"],
  ipvs: ["iptables-save", "ipset", "ipvsadm", "ip"],
} as const;

/** @param name of a chain, a set or a map. */
function changed(objects: Objects, kind: "chain" | "set" | "map" | "table", name: string, change: object): Objects {
  let count = 0;
  const found = objects.map((object) => {
    const body = isObject(object) ? object[kind] : undefined;
    if (!isObject(body) || body.name !== name) return object;
    count += 1;
    return { [kind]: { ...body, ...change } };
  });
  assert.equal(count, 1, name);
  return found;
}

function elementsOf(objects: Objects, name: string): readonly unknown[] {
  const bodies = objects.flatMap((object) => (isObject(object) ? [object.set, object.map] : []));
  return listOf(bodies.find((body): body is Record<string, unknown> => isObject(body) && body.name === name)?.elem);
}

const NFT_SEEDS: readonly (readonly [fault: string, change: (objects: Objects) => Objects])[] = [
  ["the policy of a base chain", (all) => changed(all, "chain", "filter-forward", { policy: "drop" })],
  ["the hook of a base chain", (all) => changed(all, "chain", "nat-prerouting", { hook: "input" })],
  ["the type of a base chain", (all) => changed(all, "chain", "nat-prerouting", { type: "filter", hook: "forward" })],
  ["a chain that is renamed", (all) => changed(all, "chain", "services", { name: "services-old" })],
  ["a table that is switched off", (all) => changed(all, "table", "kube-proxy", { flags: ["dormant"] })],
  ["an element that catches everything", (all) => changed(all, "set", "nodeport-ips", { elem: ["*"] })],
  ["an address of the node that came later is not known", (all) => changed(all, "set", "nodeport-ips", { elem: [] })],
  [
    "an address that the node no longer has stays",
    (all) => changed(all, "set", "nodeport-ips", { elem: [...elementsOf(all, "nodeport-ips"), "10.180.0.77"] }),
  ],
  [
    "pods that are led to themselves are not masqueraded",
    (all) => changed(all, "set", "hairpin-connections", { elem: [] }),
  ],
];

async function cluster(name: string): Promise<ProvedCluster> {
  const raw: unknown = JSON.parse(examplesAsJson());
  const items = isObject(raw) ? listOf(raw.items) : [];
  const settings = { detectLocalMode: "ClusterCIDR", clusterCIDR: "10.180.0.0/16" };
  const variant = VARIANTS.find((one) => one.name === name);
  assert.ok(variant);
  return await provedCluster(variant, projectObjects(items), "IPv4", settings, "node-a");
}

for (const mode of ["iptables", "userspace", "ipvs"] as const) {
  describe(`${mode} mode: a fault that was is found`, async () => {
    const proved = await cluster(mode);
    const render = await modeNamed(mode).loadRenderer();
    const readers = await dumpReaders();
    const texts = await Promise.all(
      FORMS[mode].map(async (form) => {
        const rendered = await render(proved.node, {
          config: proved.config,
          form,
          service: undefined,
          missing: new Set(),
        });
        return rendered.kind === "text" ? rendered.text : "";
      }),
    );
    const dumpsWith = (change: Change): Dump[] => [
      ...texts.map((text) => recogniseDump(change(text), mode, readers)),
      // Virtual servers are among the texts.
      ...proved.dumps.filter(({ kind }) => kind === "chains" && mode !== "ipvs"),
    ];
    test("none of them: equal", () =>
      assert.equal(
        provedAgainst(
          proved,
          dumpsWith((text) => text),
        ).differing,
        0,
      ));
    for (const { fault, change } of TEXT_SEEDS.filter((seed) => seed.mode === mode)) {
      test(fault, () => {
        assert.notDeepEqual(texts.map(change), texts, "the seed changes nothing");
        const { differing, unprovable } = provedAgainst(proved, dumpsWith(change));
        assert.equal(unprovable, undefined);
        assert.ok(differing > 0);
      });
    }
  });
}

for (const layout of ["nftables", "flat"]) {
  describe(`nftables mode, ${layout}: a fault that was is found`, async () => {
    const proved = await cluster(layout);
    const [dump] = proved.dumps;
    const objects = dump?.kind === "nftables" ? dump.objects : [];
    for (const [fault, change] of NFT_SEEDS) {
      test(fault, () => {
        const { differing, unprovable } = provedAgainst(proved, [{ kind: "nftables", objects: change(objects) }]);
        assert.ok(differing > 0 || unprovable !== undefined);
      });
    }
  });
}
