/** `explain` of a cluster: read with the user's own permissions, over TLS, page by page; and `--all-nodes`. */
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { checkedSettings } from "../../src/lib/plan-settings.ts";
import { diff } from "../../src/tools/cli/diff.ts";
import { explain } from "../../src/tools/cli/explain.ts";
import { readChoices } from "../../src/tools/cli/inspect-options.ts";
import { type ObjectsChoice, readObjects } from "../../src/tools/cli/objects-input.ts";
import { proveCommand } from "../../src/tools/cli/prove.ts";
import { render } from "../../src/tools/cli/render.ts";
import { trace } from "../../src/tools/cli/trace.ts";
import { until } from "../../testkit/support/patience.ts";
import type { ApiObject } from "../apiserver/object-store.ts";
import type { Plural } from "../apiserver/resource-types.ts";
import { TestApiServer } from "../apiserver/test-api-server.ts";
import { daemonAt } from "./inspected-daemon.ts";
import { examplesAsJson, runCommand } from "./run-command.ts";
import { runKubeProxy } from "./run-kube-proxy.ts";

const PLURALS: Readonly<Record<string, Plural>> = {
  Service: "services",
  EndpointSlice: "endpointslices",
  Node: "nodes",
};

async function serverWithExamples(t: TestContext): Promise<TestApiServer> {
  const server = await TestApiServer.start();
  t.after(() => server.close());
  const { items }: { items: (ApiObject & { kind: string })[] } = JSON.parse(examplesAsJson());
  for (const item of items) {
    const plural = PLURALS[item.kind];
    if (plural !== undefined) server.put(plural, item);
  }
  return server;
}

/** A kubeconfig with two contexts; the current one leads nowhere. */
function kubeconfig(t: TestContext, server: TestApiServer): string {
  const folder = mkdtempSync(join(tmpdir(), "kpts-kubeconfig-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "config");
  const ca = Buffer.from(server.authority.certificate).toString("base64");
  const config = {
    apiVersion: "v1",
    kind: "Config",
    "current-context": "nowhere",
    contexts: [
      { name: "nowhere", context: { cluster: "nowhere", user: "me" } },
      { name: "test", context: { cluster: "test", user: "me", namespace: "shop" } },
    ],
    clusters: [
      { name: "nowhere", cluster: { server: "https://127.0.0.1:1" } },
      { name: "test", cluster: { server: server.url, "certificate-authority-data": ca } },
    ],
    users: [{ name: "me", user: { token: "t" } }],
  };
  writeFileSync(file, JSON.stringify(config));
  return file;
}

test("a cluster is asked as kubectl would ask it, and answers as its manifests do", async (t) => {
  const server = await serverWithExamples(t);
  const from = ["--kubeconfig", kubeconfig(t, server), "--context", "test"];
  const args = ["svc/storefront", "-n", "shop", "--node", "node-a", "--family", "ipv4"];
  const { status, out, err } = await runCommand(explain, [...args, ...from]);
  assert.deepEqual({ status, err }, { status: 0, err: "" });
  const manifests = await runCommand(explain, [...args, "-f", "-"], examplesAsJson());
  assert.equal(out, manifests.out);
  assert.deepEqual(new Set(server.requests.map(({ verb }) => verb)), new Set(["list"]));
});

const KUBEADM = `
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: 10.180.0.0/16
`;

test("mode and configuration are those of the cluster's ConfigMap; without one, what is assumed is said", async (t) => {
  const server = await serverWithExamples(t);
  const from = ["--kubeconfig", kubeconfig(t, server), "--context", "test", "--node", "node-a", "--family", "ipv4"];
  const bare = await runCommand(explain, ["shop/storefront", ...from]);
  assert.match(
    bare.out,
    /^shop\/storefront:https TCP, .*, iptables mode \(assumed; pods: the Nodes' podCIDRs\), IPv4\n/,
  );
  const metadata = { namespace: "kube-system", name: "kube-proxy" };
  server.put("configmaps", { metadata, data: { "config.conf": KUBEADM } } as ApiObject);
  const { out, err } = await runCommand(explain, ["shop/storefront", ...from]);
  assert.equal(err, "");
  assert.match(out, /^\S+ TCP, .*, nftables mode \(of the ConfigMap kube-system\/kube-proxy\), IPv4\n/);
  assert.match(out, /another node, clients outside: +answered by any endpoint, which sees the node \(masqueraded\)/);
  const traced = await runCommand(trace, ["--from", "pod", "--to", "shop/storefront:https", ...from.slice(0, -2)]);
  assert.match(
    traced.out,
    /^Rules: {2}the plan of mode nftables \(of the ConfigMap kube-system\/kube-proxy\) for node-a$/m,
  );
});

/** What upstream serves, shortened: reference operation.md §9.2. */
const SERVED = {
  kind: "KubeProxyConfiguration",
  apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
  mode: "nftables",
  clusterCIDR: "10.180.0.0/16",
};

function configz(node: string, config: object): ReadonlyMap<string, string> {
  const path = `/api/v1/nodes/${node}:10249/proxy/configz`;
  return new Map([[path, JSON.stringify({ "kubeproxy.config.k8s.io": config })]]);
}

test("without a ConfigMap the node's proxy is asked, through the API server", async (t) => {
  const server = await serverWithExamples(t);
  const from = ["--kubeconfig", kubeconfig(t, server), "--context", "test", "--family", "ipv4"];
  const asked = async (...more: string[]) => await runCommand(explain, ["shop/storefront", ...from, ...more]);
  server.switches.isAllowed = (_user, _verb, plural) => plural !== "configmaps";
  server.switches.proxied = configz("node-a", SERVED);
  for (const more of [[], ["--node", "node-a"]]) {
    const { out, err } = await asked(...more);
    assert.equal(err, "");
    assert.match(out, /^\S+ TCP, .* on node-a .*nftables mode \(of node-a's \/configz\), IPv4$/m);
  }
  const other = await asked("--node", "node-b");
  assert.match(other.out, /^\S+ TCP, .* on node-b .*iptables mode \(assumed; pods: the Nodes' podCIDRs\), IPv4$/m);
  assert.match(other.err, /^warning: list configmaps: .*: kube-proxy's configuration is not known$/m);
  // Field names of releases that serve the internal form.
  server.switches.proxied = configz("node-a", { Mode: "nftables", ClusterCIDR: "10.180.0.0/16" });
  assert.match((await asked()).out, /iptables mode \(assumed; /);
  // Of all nodes, the first that answers.
  for (const node of ["node-a", "node-b"]) {
    server.switches.proxied = configz(node, SERVED);
    const { out } = await asked("--all-nodes");
    assert.ok(out.includes(`nftables mode (of ${node}'s /configz, taken for all Nodes)`), out);
  }
  // With a configuration no proxy is queried.
  server.requests.length = 0;
  server.put("configmaps", {
    metadata: { namespace: "kube-system", name: "kube-proxy" },
    data: { "config.conf": KUBEADM },
  } as ApiObject);
  server.switches.isAllowed = undefined;
  await asked();
  assert.deepEqual(new Set(server.requests.map(({ verb }) => verb)), new Set(["list"]));
});

test("prove takes the node by rule, and the cluster's configuration", async (t) => {
  const server = await serverWithExamples(t);
  const from = ["--kubeconfig", kubeconfig(t, server), "--context", "test", "--family", "ipv4"];
  const asked = async () => await runCommand(proveCommand, [...from, "--modes", "nftables"]);
  const bare = await asked();
  assert.equal(bare.status, 0, bare.err);
  assert.match(bare.err, /^Seen from node-a, one of 2 Nodes: --node names another\.$/m);
  server.switches.proxied = configz("node-a", { ...SERVED, clusterCIDR: "nonsense" });
  const { status, err } = await asked();
  assert.equal(status, 2);
  assert.match(err, /^Error: the configuration cannot be used: .*"nonsense"/m);
});

test("the daemon of this node says its mode and configuration itself", async (t) => {
  const server = await serverWithExamples(t);
  const choice = { kubeconfig: kubeconfig(t, server), context: "test" };
  const socket = join(mkdtempSync(join(tmpdir(), "kpts-here-")), "s");
  t.after(() => rmSync(dirname(socket), { recursive: true }));
  const { config } = await checkedSettings({ mode: "nftables", node: "node-a" });
  daemonAt(t, socket, [], [], undefined, undefined, { config: { ...config, hostnameOverride: "" } });
  await until("the socket", () => existsSync(socket));
  const read = async (more: ObjectsChoice) =>
    (await readObjects({ ...choice, ...more }, { out: () => {}, err: () => {} }, process.stdin, { socket }))
      .configuration;
  for (const more of [{}, { node: "node-a" }]) {
    const found = await read(more);
    assert.equal(found?.where, "the daemon here");
    const { config: own, origin } = await readChoices({ family: "both" }, found);
    assert.deepEqual({ ...own, hostnameOverride: "" }, { ...config, hostnameOverride: "" });
    assert.deepEqual([own.hostnameOverride, origin], ["node-a", "of the daemon here"]);
  }
  for (const more of [{ node: "node-b" }, { config: "file" }]) {
    assert.equal(await read(more), undefined, JSON.stringify(more));
  }
  const [node] = server.store.objects("nodes").values();
  assert.ok(node);
  for (const name of ["node-a", "node-b"]) server.delete("nodes", { metadata: { name } } as ApiObject);
  server.put("nodes", { ...node.object, metadata: { name: "of-another-cluster" } });
  assert.equal(await read({}), undefined);
});

test("without a configuration, pods are where the Nodes or the endpoints say", async () => {
  const seen = async (
    change: (item: ApiObject & { spec?: { podCIDRs?: string[]; podCIDR?: string } }) => void,
    ...more: string[]
  ) => {
    const list = JSON.parse(examplesAsJson());
    for (const item of list.items) change(item);
    return (await runCommand(explain, ["shop/web", "-f", "-", "--node", "node-a", ...more], JSON.stringify(list))).out;
  };
  const withoutPodCIDRs = (item: { spec?: { podCIDRs?: string[]; podCIDR?: string } }) => {
    delete item.spec?.podCIDRs;
    delete item.spec?.podCIDR;
  };
  const answered =
    /\n {4}a pod here: answered by any endpoint, which sees the client's IP\n {4}this node, another node, clients outside: answered by any endpoint, which sees the node \(masqueraded\)\n/;
  const whole = await seen(() => {});
  assert.match(whole, /^.*iptables mode \(assumed; pods: the Nodes' podCIDRs\), IPv4\n/);
  assert.match(whole, answered);
  assert.match(whole, /\nIPv6: clients meet the same, at [^\n]*\n$/);
  const ofEndpoints = await seen(withoutPodCIDRs);
  assert.match(
    ofEndpoints,
    /^.*\(assumed; pods: in 10\.180\.0\.0\/23 and fd00:10:180::\/\d+, by their endpoints\), IPv4\n/,
  );
  assert.match(ofEndpoints, answered);
  // Where endpoints share their network with Nodes, nothing is known.
  const unknown = await seen(
    (item) => {
      withoutPodCIDRs(item);
      const { status } = item as { status?: { addresses?: { address: string }[] } };
      if (item.kind === "Node" && status !== undefined)
        status.addresses = [{ ...status.addresses?.[0], address: "10.180.0.2" }];
    },
    "--family",
    "ipv4",
  );
  assert.match(unknown, /^.*\(assumed; clusterCIDR is not known\), IPv4\n/);
  assert.match(unknown, /\n {4}another node, clients outside: depends on clusterCIDR, which is not known\n/);
  assert.doesNotMatch(unknown, /dropped|lost/);
});

test("the rights to one namespace are enough for its Services", async (t) => {
  const server = await serverWithExamples(t);
  server.switches.isAllowed = (_user, _verb, plural, namespace) =>
    namespace === "shop" && ["services", "endpointslices"].includes(plural);
  const from = ["--kubeconfig", kubeconfig(t, server), "--context", "test", "--node", "node-a", "--family", "ipv4"];
  for (const what of ["shop/web", "web.shop.svc.cluster.local", "svc/web"]) {
    const { status, out, err } = await runCommand(explain, [what, ...from]);
    assert.equal(status, 0, err);
    assert.match(out, /^shop\/web:http TCP, ClusterIP, on node-a, /);
    assert.equal(
      err,
      "warning: only the services and endpointslices of the namespace shop may be read, and not configmaps, nodes, servicecidrs\n",
    );
  }
  const traced = await runCommand(trace, ["--from", "10.180.0.9", "--to", "shop/web:http", ...from.slice(0, 4)]);
  assert.match(traced.err, /^warning: only the services and endpointslices of the namespace shop may be read, .*\n$/);
  assert.match(traced.out, /Note: {3}Seen from node-a, which has an endpoint; Nodes are not known/);
  // From a node that the slices name.
  const asked = await runCommand(explain, ["shop/web", ...from.slice(0, 4), "--family", "ipv4"]);
  assert.match(asked.out, /^Seen from node-a, which has an endpoint; Nodes are not known\. --node names another\.\n/);
  assert.match(asked.out, /\n {4}a pod here: answered by any endpoint, /);
  assert.doesNotMatch(asked.out, /dropped|lost/);
  // What may not be read is one line for every command; the node that was chosen for it is another matter.
  const limited =
    "warning: only the services and endpointslices of the namespace shop may be read, and not configmaps, nodes, servicecidrs\n";
  const seen = "Seen from node-a, which has an endpoint; Nodes are not known. --node names another.\n";
  const dump = join(mkdtempSync(join(tmpdir(), "kpts-dump-")), "rules");
  t.after(() => rmSync(dirname(dump), { recursive: true }));
  writeFileSync(dump, "*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n*filter\nCOMMIT\n");
  const commands = [
    { command: render, words: [] },
    { command: diff, words: ["--dump", dump] },
    { command: proveCommand, words: [] },
  ];
  for (const { command, words } of commands) {
    const named = await runCommand(command, [...words, ...from]);
    assert.ok(named.err.startsWith(limited), named.err);
    assert.doesNotMatch(named.err.slice(limited.length), /warning|no Node/);
    const unnamed = await runCommand(command, [...words, ...from.slice(0, 4)]);
    assert.ok(unnamed.err.startsWith(`${limited}${seen}`), unnamed.err);
    assert.doesNotMatch(unnamed.err.slice(limited.length), /warning|no Node/);
  }
  assert.match(
    (await runCommand(proveCommand, from)).err,
    /\nError: A proof needs the node's addresses, and the Nodes may not be read: give them with -f\n$/i,
  );
  const { status, err } = await runCommand(explain, ["office/mail", ...from]);
  assert.equal(status, 2);
  assert.doesNotMatch(err, /ClusterRole/);
  assert.match(err, /^The right to list Services and EndpointSlices of its namespace is enough for one Service\.$/m);
});

test("trace plans for a cluster, and asks for the one pod that is no endpoint", async (t) => {
  const server = await serverWithExamples(t);
  server.put("pods", {
    metadata: { name: "client", namespace: "lab" },
    spec: { nodeName: "node-a" },
    status: { podIP: "10.180.0.77" },
  });
  const from = ["--kubeconfig", kubeconfig(t, server), "--context", "test", "--node", "node-a"];
  const { status, out, err } = await runCommand(trace, ["--from", "lab/client", "--to", "10.96.0.10:80", ...from]);
  assert.deepEqual({ status, err }, { status: 0, err: "" });
  assert.match(
    out,
    /^Packet: tcp 10\.180\.0\.77 to 10\.96\.0\.10:80, .*\nRules: {2}the plan of mode iptables \(assumed; pods: the Nodes' podCIDRs\) for node-a\n/,
  );
  assert.match(out, /^ +33\.3 % {2}sent to 10\.180\.0\.11:8080/m);
  server.switches.isAllowed = (_user, _verb, plural) => plural !== "pods";
  const known = await runCommand(trace, ["--from", "shop/web-1", "--to", "10.96.0.10:80", ...from]);
  assert.match(
    known.err,
    /^warning: list pods: .*: only pods that are endpoints of a Service are known by their names$/m,
  );
  assert.match(known.out, /^Packet: tcp 10\.180\.0\.11 to/);
});

test("without the right to read nodes it goes on, and says what is not known; without Services it cannot", async (t) => {
  const server = await serverWithExamples(t);
  const from = ["--kubeconfig", kubeconfig(t, server), "--context", "test", "--node", "node-a"];
  server.switches.isAllowed = (_user, _verb, plural) => plural !== "nodes" && plural !== "servicecidrs";
  const some = await runCommand(explain, ["shop/web", ...from]);
  assert.equal(some.status, 0);
  assert.match(some.err, /warning: list nodes: .*zones and addresses of nodes are not known/);
  server.switches.isAllowed = (_user, _verb, plural) => plural !== "services";
  const none = await runCommand(explain, ["shop/web", ...from]);
  assert.equal(none.status, 2);
  assert.match(none.err, /^Error: list services: /);
  const nowhere = await runCommand(explain, ["shop/web", "--kubeconfig", from[1] ?? ""]);
  assert.equal(nowhere.status, 2);
  assert.match(nowhere.err, /127\.0\.0\.1:1/);
  const unknown = await runCommand(explain, ["shop/web", "--kubeconfig", from[1] ?? "", "--context", "other"]);
  assert.match(unknown.err, /context "other" is not among the contexts/);
});

test("on all nodes: what is the same, and where they differ", async () => {
  const run = (what: string, ...args: string[]) =>
    runCommand(explain, [what, "-f", "-", "--family", "ipv4", "--all-nodes", ...args], examplesAsJson());
  assert.match(
    (await run("shop/web")).out,
    /^The same on every node: node-a, node-b\. Seen from node-a:\nshop\/web:http TCP/,
  );
  const { out } = await run("office/node-agent");
  assert.match(out, /^On node-a:\n/);
  assert.match(
    out,
    /\nOn node-b, other than on node-a:\n {2}from a pod here: now answers at cluster IP 10\.96\.0\.61:9000/,
  );
  const groups = JSON.parse((await run("office/node-agent", "-o", "json")).out);
  assert.deepEqual(
    groups[0].groups.map(({ nodes }: { nodes: string[] }) => nodes),
    [["node-a"], ["node-b"]],
  );
});

/** Finds a plugin as kubectl does: by the first word, with underscores for dashes. */
const KUBECTL = `#!/bin/sh
plugin=kubectl-$(printf %s "$1" | tr - _)
shift
exec "$plugin" "$@"
`;

test("kubectl finds the program as its plugin, also through a link, and it asks the cluster that kubectl would ask", async (t) => {
  const server = await serverWithExamples(t);
  const folder = mkdtempSync(join(tmpdir(), "kpts-plugin-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const kubectl = join(folder, "kubectl");
  writeFileSync(kubectl, KUBECTL, { mode: 0o755 });
  const plugin = fileURLToPath(new URL("../../bin/kubectl-kube_proxy", import.meta.url));
  symlinkSync(plugin, join(folder, "kubectl-kube_proxy"));
  const env = { PATH: `${folder}:${process.env.PATH}`, KUBECONFIG: kubeconfig(t, server) };
  const run = (...args: string[]) => runKubeProxy(["kube-proxy", ...args], { program: kubectl, env });
  const [here, everywhere, unknown] = await Promise.all([
    run("explain", "svc/web", "-n", "shop", "--node", "node-a", "--context", "test"),
    // The default namespace is that of the context.
    run("explain", "svc/web", "--all-nodes", "--context", "test"),
    run("explain", "svc/wbe", "-n", "shop", "--node", "node-a", "--context", "test"),
  ]);
  assert.deepEqual([here.status, here.stderr], [0, ""]);
  assert.match(
    here.stdout,
    /^shop\/web:http TCP, ClusterIP, on node-a \(zone-1\), iptables mode \(assumed; pods: the Nodes' podCIDRs\), IPv4$/m,
  );
  assert.match(everywhere.stdout, /^The same on every node: node-a, node-b\. Seen from node-a:$/m);
  assert.deepEqual([unknown.status, unknown.stdout], [2, ""]);
  assert.match(unknown.stderr, /There is no Service "shop\/wbe"\. Did you mean shop\/web\?\n$/);
});
