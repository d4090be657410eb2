/** The answers of commands are true, and the answers of several commands about the same thing agree. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { diff } from "../../src/tools/cli/diff.ts";
import { explain } from "../../src/tools/cli/explain.ts";
import { render } from "../../src/tools/cli/render.ts";
import { sysdump } from "../../src/tools/cli/sysdump.ts";
import { trace } from "../../src/tools/cli/trace.ts";
import { runCommand } from "./run-command.ts";

const node = (name: string, own: string, own6: string) => ({
  ...{ apiVersion: "v1", kind: "Node", metadata: { name } },
  status: { addresses: [own, own6].map((address) => ({ type: "InternalIP", address })) },
});
const NODES = [node("node-a", "10.200.0.2", "fd00:200::2"), node("node-b", "10.200.0.3", "fd00:200::3")];
const service = (name: string, spec: object, extra: object = {}) => ({
  ...{ apiVersion: "v1", kind: "Service", metadata: { namespace: "d", name }, spec, ...extra },
});
const slice = (name: string, endpoints: readonly object[], addressType = "IPv4") => ({
  ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType, endpoints },
  metadata: {
    namespace: "d",
    name: `${name}-${addressType.toLowerCase()}`,
    labels: { "kubernetes.io/service-name": name },
  },
  ports: [{ name: "", port: 8080 }],
});
const at = (address: string, nodeName: string, conditions: object = {}) => ({
  ...{ addresses: [address], nodeName, conditions },
});
const listOf = (...items: readonly object[]) =>
  JSON.stringify({ apiVersion: "v1", kind: "List", items: [...NODES, ...items] });

function folderOf(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "kpts-contradict-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

function fileOf(t: TestContext, content: string): string {
  const file = join(folderOf(t), "cluster.json");
  writeFileSync(file, content);
  return file;
}

test("diff: what is said of nodes and families is true of each of them", async (t) => {
  const at1 = [at("10.180.0.5", "node-a"), at("10.180.1.5", "node-b")];
  const cluster = (externalTrafficPolicy: string) => {
    const addresses = { clusterIP: "10.96.0.1", clusterIPs: ["10.96.0.1", "fd00:96::1"] };
    const policy = { externalTrafficPolicy, ipFamilies: ["IPv4", "IPv6"] };
    const spec = { ...addresses, ...policy, type: "NodePort", ports: [{ port: 80, nodePort: 30_080 }] };
    const six = slice("web", [at("fd00:180:1::5", "node-b")], "IPv6");
    return listOf(service("web", spec), slice("web", at1), six);
  };
  const [old, current] = [fileOf(t, cluster("Local")), fileOf(t, cluster("Cluster"))];
  const { out } = await runCommand(diff, [old, current, "--mode", "nftables"]);
  // On node-a no IPv6 endpoint is local: nothing answered before.
  const wrong = out
    .split("\n")
    .filter((line) => /^ {2}on node-a, node-b, IPv4 and IPv6: .*before: answered by an endpoint here/.test(line));
  assert.deepEqual(wrong, []);
});

test("diff: an endpoint that the cluster IP no longer leads to is told, also where the Local policy still uses it", async (t) => {
  const cluster = (conditions: object) => {
    const addresses = { clusterIP: "10.96.0.1", externalTrafficPolicy: "Local", type: "NodePort" };
    const spec = { ...addresses, ports: [{ port: 80, nodePort: 30_080 }] };
    return listOf(
      service("web", spec),
      slice("web", [at("10.180.0.5", "node-a", conditions), at("10.180.1.5", "node-b"), at("10.180.1.6", "node-b")]),
    );
  };
  const old = fileOf(t, cluster({ ready: true }));
  const current = fileOf(t, cluster({ ready: false, serving: true, terminating: true }));
  const { out } = await runCommand(diff, [old, current, "--mode", "nftables", "--node", "node-a"]);
  // The rules of node-a do change, but nothing for clients.
  assert.match(out, /^rules of node-a: 1 line more, 1 fewer/m);
  assert.match(out, /on node-a, IPv4: .*10\.180\.0\.5:8080/);
});

test("diff --family: a dump that says itself that it is of the other family is not compared as if it were of this one", async (t) => {
  const spec = { clusterIP: "10.96.0.1", clusterIPs: ["10.96.0.1", "fd00:96::1"], ports: [{ port: 80 }] };
  const cluster = listOf(
    service("web", { ...spec, ipFamilies: ["IPv4", "IPv6"] }),
    slice("web", [at("10.180.0.5", "node-a")]),
    slice("web", [at("fd00:180::5", "node-a")], "IPv6"),
  );
  const file = fileOf(t, cluster);
  const own = ["-f", file, "--node", "node-a", "--mode", "iptables"];
  const saved = async (family: string) =>
    fileOf(t, (await runCommand(render, [...own, "--family", family, "-o", "iptables-save"])).out);
  const dumps = ["--dump", await saved("ipv4"), "--dump", await saved("ipv6")];
  assert.equal((await runCommand(diff, [...own, ...dumps])).out, "No differences.\n");
  assert.equal((await runCommand(diff, [...own, "--family", "ipv4", ...dumps])).out, "No differences.\n");
});

test("diff --dump: a virtual server that is left over is told where none at all is wanted", async (t) => {
  const own = ["-f", fileOf(t, listOf()), "--node", "node-a", "--mode", "ipvs"];
  const { out } = await runCommand(diff, [...own, "--dump", fileOf(t, "-A -t 10.96.0.1:80 -s rr\n")]);
  assert.match(out, /virtual server 10\.96\.0\.1:80\/TCP in ipvs is there, and should not be/);
});

test("sysdump: explain says of a dump what it says of the cluster", async (t) => {
  const cluster = listOf(
    service("web", { clusterIP: "10.96.0.1", selector: { app: "wbe" }, ports: [{ port: 80 }] }),
    service("pods", { clusterIP: "None", selector: { app: "db" }, ports: [{ port: 80 }] }),
  );
  const file = fileOf(t, cluster);
  const folder = folderOf(t);
  const archive = join(folder, "dump.tgz");
  const socket = join(folder, "none.sock");
  await runCommand(sysdump, ["-f", file, "--node", "node-a", "-o", archive, "--socket", socket]);
  execFileSync("tar", ["xzf", archive, "-C", folder]);
  const dump = join(folder, readdirSync(folder).find((name) => name.startsWith("kube-proxy-sysdump")) ?? "");
  for (const what of ["d/web", "d/pods"]) {
    const live = await runCommand(explain, [what, "-f", file, "--node", "node-a", "--family", "ipv4"]);
    const dumped = await runCommand(explain, [what, "--dump", dump, "--family", "ipv4"]);
    assert.equal(dumped.out + dumped.err, live.out + live.err);
  }
});

test("explain and trace agree on a node port at whose address another Service has an external IP of that port", async (t) => {
  const cluster = listOf(
    service("np", { type: "NodePort", clusterIP: "10.96.0.1", ports: [{ port: 80, nodePort: 30_095 }] }),
    slice("np", [at("10.180.1.10", "node-b")]),
    service("ext", { clusterIP: "10.96.0.2", externalIPs: ["10.200.0.2"], ports: [{ port: 30_095 }] }),
    slice("ext", [at("10.180.1.11", "node-b")]),
  );
  const own = ["-f", fileOf(t, cluster), "--node", "node-a", "--mode", "nftables"];
  const { out: way } = await runCommand(trace, ["--from", "outside", "--to", "10.200.0.2:30095", ...own]);
  assert.match(way, /100\.0 % {2}sent to 10\.180\.1\.11:8080/);
  const { out } = await runCommand(explain, ["d/np", "--family", "ipv4", ...own]);
  assert.doesNotMatch(out, /node port 30095 at 10\.200\.0\.2\n {4}any client: answered by any endpoint/);
});

test("explain: a drop by loadBalancerSourceRanges is not put down to a policy that the Service does not have", async (t) => {
  const spec = { type: "LoadBalancer", clusterIP: "10.96.0.1", ports: [{ port: 30_080, nodePort: 30_080 }] };
  const ranges = { loadBalancerSourceRanges: ["198.51.100.0/24"] };
  const status = { loadBalancer: { ingress: [{ ip: "10.200.0.2" }] } };
  const cluster = listOf(service("lb", { ...spec, ...ranges }, { status }), slice("lb", [at("10.180.0.5", "node-a")]));
  const own = ["-f", fileOf(t, cluster), "--node", "node-a", "--mode", "nftables", "--family", "ipv4"];
  const { out } = await runCommand(explain, ["d/lb", ...own]);
  assert.doesNotMatch(out, /the policy is Local, and no usable endpoint is on this node/);
});

test("explain --what-if type=NodePort: a load balancer's address goes with the type, as with ClusterIP", async (t) => {
  const spec = { type: "LoadBalancer", clusterIP: "10.96.0.1", ports: [{ port: 80, nodePort: 30_080 }] };
  const status = { loadBalancer: { ingress: [{ ip: "192.0.2.9" }] } };
  const cluster = listOf(service("lb", spec, { status }), slice("lb", [at("10.180.0.5", "node-a")]));
  const own = ["-f", fileOf(t, cluster), "--node", "node-a", "--mode", "nftables", "--family", "ipv4"];
  const { out } = await runCommand(explain, ["d/lb", "--what-if", "type=NodePort", ...own]);
  assert.match(out, /load balancer 192\.0\.2\.9:80 is gone/);
});

test("explain --what-if type=…: what is allocated with the type is told, though no object has it", async (t) => {
  const cluster = listOf(service("web", { clusterIP: "10.96.0.1", ports: [{ port: 80 }] }));
  const own = ["-f", fileOf(t, cluster), "--node", "node-a", "--mode", "nftables", "--family", "ipv4"];
  const { out } = await runCommand(explain, ["d/web", "--what-if", "type=NodePort", ...own]);
  assert.match(out, /d\/web TCP on node-a, IPv4: gets a node port, which no object has yet/);
  const { out: balanced } = await runCommand(explain, ["d/web", "--what-if", "type=LoadBalancer", ...own]);
  assert.match(balanced, /gets a node port and a load balancer's address, which no object has yet/);
});

test("trace --to: of a Service that no proxy serves it says why, as explain does, and not that it is no pod", async (t) => {
  const cluster = listOf(
    service("ext", { type: "ExternalName", externalName: "example.com" }),
    service("hl", { clusterIP: "None", ports: [{ port: 80 }] }),
  );
  const own = ["-f", fileOf(t, cluster), "--node", "node-a"];
  for (const [what, why] of [
    ["ext", /ExternalName/],
    ["hl", /headless/],
  ] as const) {
    for (const to of [`d/${what}:80`, what]) {
      const { err } = await runCommand(trace, ["--from", "pod", "--to", to, ...own]);
      assert.match(err, why);
    }
  }
});

test("explain: an endpoint of a headless Service is not called the endpoint of none", async (t) => {
  const endpoint = { ...at("10.180.0.9", "node-a"), targetRef: { kind: "Pod", namespace: "d", name: "hl-0" } };
  const cluster = listOf(service("hl", { clusterIP: "None", ports: [{ port: 80 }] }), slice("hl", [endpoint]));
  const { err } = await runCommand(explain, ["d/hl-0", "-f", fileOf(t, cluster), "--node", "node-a"]);
  assert.match(err, /^Error: 10\.180\.0\.9 is an endpoint of d\/hl: Service d\/hl is headless/);
});

test("explain takes what trace --to takes: a protocol behind a Service's port, a name without a namespace", async (t) => {
  const cluster = listOf(
    service("web", { clusterIP: "10.96.0.1", ports: [{ port: 80 }] }),
    slice("web", [at("10.180.0.5", "node-a")]),
  );
  const own = ["-f", fileOf(t, cluster), "--node", "node-a"];
  for (const what of ["d/web:80/tcp", "web:80"]) {
    assert.equal((await runCommand(trace, ["--from", "node", "--to", what, ...own])).status, 0, `trace ${what}`);
    assert.equal((await runCommand(explain, [what, ...own])).status, 0, `explain ${what}`);
  }
});
