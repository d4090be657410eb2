/** `explain`: what it says about the examples, how it finds a target, its forms, and what it says about bad input. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { test } from "node:test";
import { servicePortName } from "../../src/model/service-port-name.ts";
import { makeEndpoint, makeServicePort } from "../../src/model/testing/records.ts";
import { MODES } from "../../src/modes/registry.ts";
import { explain } from "../../src/tools/cli/explain.ts";
import { trace } from "../../src/tools/cli/trace.ts";
import type { PortExplanation } from "../../src/tools/explain/explanation.ts";
import { caseFile } from "../conformance/conformance-case.ts";
import { examplesAsJson, type Ran, runCommand } from "./run-command.ts";

const EXAMPLES = examplesAsJson();
const NODE_A = ["-f", "-", "--node", "node-a", "--family", "ipv4"];

const run = (...args: string[]): Promise<Ran> => runCommand(explain, args, EXAMPLES);
const explained = (what: string, ...args: string[]): Promise<Ran> => run(what, ...NODE_A, ...args);

async function textOf(what: string, ...args: string[]): Promise<string> {
  const { status, out, err } = await explained(what, ...args);
  assert.deepEqual({ status, err }, { status: 0, err: "" });
  return out;
}

async function refusalOf(what: string, ...args: string[]): Promise<string> {
  const { status, out, err } = await explained(what, ...args);
  assert.deepEqual({ status, out }, { status: 2, out: "" });
  return err;
}

test("a Service: what each client meets, and why each endpoint is used or left out", async () => {
  const text = await textOf("shop/storefront", "--mode", "nftables", "--why");
  assert.match(
    text,
    /^shop\/storefront:https TCP, LoadBalancer, on node-a \(zone-1\), nftables mode \(pods: the Nodes' podCIDRs\), IPv4\n/,
  );
  assert.match(
    text,
    /10\.180\.1\.11:8443 +web-3 +node-b +ready +used, 33\.3 % +left out: it is on node-b, not on node-a\n/,
  );
  assert.match(
    text,
    /load balancer 203\.0\.113\.30:443, policy Local\n(?: .*\n)* +this node: +answered by any endpoint/,
  );
  assert.match(text, /health check at node port 31234 gets 200: 2 ready endpoints here/);
  assert.doesNotMatch(text, /In the kernel/);
  const short = await textOf("shop/storefront", "--mode", "nftables");
  assert.doesNotMatch(short, /health check/);
  // A mode alone is not a configuration.
  assert.match(short, /\n {4}this node, another node, clients outside: answered by any endpoint, which sees the node /);
  assert.match(
    await textOf("shop/storefront", "--mode", "nftables", "--rules"),
    /chain in table ip kube-proxy\n +external-XUFH7HGN-shop\/storefront\/tcp\/https\n/,
  );
});

test("on a terminal: an answer of at most 15 lines in every mode, each no wider than it", async () => {
  // With a configuration that tells pods from other clients, as in clusters.
  const config = join(mkdtempSync(join(tmpdir(), "kpts-explain-")), "config.yaml");
  writeFileSync(
    config,
    "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nclusterCIDR: 10.180.0.0/16\n",
  );
  const services: { metadata: { namespace: string; name: string } }[] = JSON.parse(EXAMPLES).items.filter(
    ({ kind, spec }: { kind: string; spec: { clusterIP?: string } }) => kind === "Service" && spec.clusterIP !== "None",
  );
  for (const { name: mode } of MODES) {
    for (const { metadata } of services) {
      let out = "";
      const print = (text: string) => {
        out += text;
      };
      const output = { out: print, err: () => {}, terminal: { hasColour: false, width: 80 } };
      const argv = [`${metadata.namespace}/${metadata.name}`, ...NODE_A, "--mode", mode, "--config", config];
      assert.equal(await explain(argv, output, Readable.from([EXAMPLES])), 0, argv[0] ?? "");
      for (const answer of out.split("\n\n")) {
        const lines = answer.trimEnd().split("\n");
        assert.ok(lines.length <= 15 && lines.every((line) => line.length <= 80), answer);
      }
    }
  }
});

test("on a terminal: what differs in the other family, and no more", async () => {
  const { out } = await run("shop/web", "-f", "-", "--node", "node-a");
  assert.match(
    out,
    /\nIPv6: clients meet the same, at cluster IP \[fd00:10:96::10\]:80; 3 of 3 endpoints are used\.\n$/,
  );
});

for (const { name } of MODES) {
  test(`every service port of the examples can be explained in ${name} mode, and owns something`, async () => {
    for (const what of ["shop/web", "kube-system/kube-dns", "office/node-cache", "office/legacy", "shop/admin"]) {
      const { servicePorts } = JSON.parse(await textOf(what, "--mode", name, "--family", "both", "-o", "json"));
      assert.ok(servicePorts.length > 0);
      for (const port of servicePorts) {
        assert.equal(port.mode, name);
        // HNS has nothing for a Service without endpoints (reference winkernel.md).
        const isUsed = port.endpoints.some(({ cluster, local }: PortExplanation["endpoints"][number]) => {
          return cluster?.used === true || local?.used === true;
        });
        assert.ok(port.kernel.length > 0 || (name === "kernelspace" && !isUsed), port.servicePort);
        for (const part of port.kernel) assert.ok(part.purpose !== "" && part.name !== "", JSON.stringify(part));
      }
    }
  });
}

test("a pod by its name: the Services that it is an endpoint of; a Service of that name goes before it", async () => {
  assert.match(
    await textOf("shop/web-3"),
    /^shop\/web-3 is the pod at 10\.180\.1\.11 and fd00:10:180:0:1::11, on node-b\.\n10\.180\.1\.11 is an endpoint of shop\/admin:http, /,
  );
  assert.match(await textOf("pod/web-3", "-n", "shop"), /^shop\/web-3 is the pod at /);
  assert.match(
    await refusalOf("pod/wbe-3", "-n", "shop"),
    /^Error: no pod "shop\/wbe-3" is known: .*\nDid you mean pod\/shop\/web-3\?\n$/,
  );
  const named = EXAMPLES.replaceAll('"name":"web-3"', '"name":"web"');
  const { out } = await runCommand(explain, ["shop/web", ...NODE_A], named);
  assert.match(out, /^shop\/web:http TCP, ClusterIP/);
});

test("kernelspace mode: load balancers of HNS know no clients, refuse nothing, and do not lead the node's own packets", async () => {
  const mode = ["--mode", "kernelspace"];
  const web = await textOf("shop/web", ...mode);
  assert.match(
    web,
    /a pod here, another node, clients outside: +answered by any endpoint, which sees this node's address, or the source VIP/,
  );
  assert.match(web, /this node: +not taken: HNS does not redirect the node's own packets/);
  for (const word of ["masquerad", "hairpin", "detectLocalMode", "refused"]) assert.ok(!web.includes(word), word);
  const admin = await textOf("shop/admin", ...mode);
  assert.match(admin, /loadBalancerSourceRanges has no effect/);
  assert.ok(!admin.includes("dropped"));
  const legacy = await textOf("office/legacy", ...mode);
  assert.match(legacy, /no endpoint that the policy allows is usable, so the host has no load balancer there/);
  assert.match(legacy, /no load balancer for it|there is no load balancer/);
  const storefront = await textOf("shop/storefront", ...mode, "--why");
  assert.match(storefront, /answered by an endpoint here, which sees the client's IP/);
  assert.match(storefront, /needs direct server return in HNS/);
});

test("addresses, node ports and names in the kernel lead to their Service", async () => {
  const because = async (what: string, ...args: string[]) => (await textOf(what, ...args)).split("\n")[0];
  assert.equal(await because("203.0.113.30:443"), "203.0.113.30:443 is an address of shop/storefront:https.");
  assert.equal(await because("10.200.0.2:30443/tcp"), "30443 is the node port of shop/storefront:https.");
  assert.equal(await because("30443"), "30443 is the node port of shop/storefront:https.");
  assert.equal(
    await because("31234"),
    "31234 is the health-check node port of shop/storefront:https: an HTTP server, no service port.",
  );
  assert.match((await because("10.180.0.25")) ?? "", /^10\.180\.0\.25 is an endpoint of .*office\/mail:smtp/);
  assert.equal(
    await because("KUBE-SEP-HT6O3L6CJ2HMQTAI"),
    "KUBE-SEP-HT6O3L6CJ2HMQTAI belongs to shop/admin:http: it leads to the endpoint 10.180.0.12:8080.",
  );
  assert.match(
    (await because("service-XUFH7HGN-shop/storefront/tcp/https", "--mode", "nftables")) ?? "",
    /belongs to shop\/storefront:https/,
  );
  assert.match(await textOf("KUBE-MARK-MASQ"), /once for all Services.*masqueraded/);
  assert.match(await textOf("KUBE-CLUSTER-IP", "--mode", "ipvs"), /cluster ip \+ port for masquerade/);
  assert.match(await textOf("svc/web", "-n", "shop"), /^shop\/web:http TCP/);
  assert.match(await textOf("[fd00:10:96::10]:80", "--family", "both"), /is an address of shop\/web:http/);
});

for (const { name, loadInspection } of MODES) {
  test(`every name that ${name} mode gives a service port says whose it can be, without the model of all`, async () => {
    const inspection = await loadInspection();
    const port = makeServicePort({ sessionAffinity: "ClientIP" });
    const other = servicePortName("shop", "other", "http", "TCP");
    const endpoints = [makeEndpoint("10.1.0.1"), makeEndpoint("10.1.0.2")];
    for (const own of inspection.namesOf(port, endpoints)) {
      const isOwner = inspection.ownerTest(own.name) ?? (() => false);
      assert.ok(
        isOwner(port.name, () => endpoints.map(({ text }) => text)),
        own.name,
      );
      assert.ok(!isOwner(other, () => endpoints.map(({ text }) => text)), own.name);
    }
    for (const strange of ["KUBE-SEP-", "KUBE-SEP-!!!!", "KUBE-SVC-", "service-", "endpoint-AAAAAAAA-x", ""]) {
      const isOwner = inspection.ownerTest(strange) ?? (() => false);
      assert.ok(!isOwner(port.name, () => ["10.1.0.1:80"]), strange);
    }
  });
}

test("sets of the flat layout whose names end in a number are known", async () => {
  const purpose = (name: string) => textOf(name, "--mode", "nftables");
  assert.match(await purpose("endpoints-3"), /once for all Services.*leads service addresses with 3 slots/);
  assert.match(await purpose("nodeport-endpoints-64"), /leads node ports with 64 slots/);
  assert.match(await purpose("sticky-frontends-10800"), /service addresses with session affinity of 10800 seconds/);
  assert.match(await purpose("clients-60"), /endpoint for 60 seconds/);
});

test("what refuses node ports on loopback addresses is known for that", async () => {
  const config = join(mkdtempSync(join(tmpdir(), "kpts-explain-")), "config.yaml");
  writeFileSync(
    config,
    "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\ncompatibility: v1.38\n",
  );
  const chain = await textOf("localhost-nodeport-reject-tcp", "--config", config);
  assert.match(chain, /once for all Services.*refuses node ports of TCP on loopback addresses/);
  const { servicePorts } = JSON.parse(await textOf("shop/web-node-port", "--config", config, "-o", "json"));
  const parts: PortExplanation["kernel"] = servicePorts[0].kernel;
  const refusing = parts.filter(({ where }) => where.endsWith(" localhost-nodeport-reject-ports"));
  assert.deepEqual(
    refusing.map(({ purpose }) => purpose),
    ["refuses at this node port on loopback addresses"],
  );
});

test("endpoints that no slice has, because the mirrored object was cut", async () => {
  const objects = JSON.parse(EXAMPLES);
  for (const object of objects.items) {
    if (object.kind !== "EndpointSlice") continue;
    object.metadata.annotations = { "endpoints.kubernetes.io/over-capacity": "truncated" };
  }
  const { out } = await runCommand(explain, ["shop/web", ...NODE_A, "--why"], JSON.stringify(objects));
  assert.match(out, /\nPassed over\n {2}shop\/web-\S+: it mirrors an Endpoints object that was cut at 1,000 addresses/);
});

/** How each mode chooses, in the order of the modes. */
const EQUAL = [
  "at random, each with the same chance",
  "by the kernel's scheduler rr",
  "at random, each with the same chance",
].concat("in turn, by the proxy's own process", "by HNS, for each connection", "at random, each with the same chance");
const WEIGHTED = ["at random, by weight", "by the kernel's scheduler wrr", "at random, by weight"].concat(
  "in turn and by weight, by the proxy's own process",
  "by HNS, for each connection",
  "at random, by weight",
);

test("with weights, no mode is said to choose all equally often", async () => {
  const objects = JSON.parse(EXAMPLES);
  const [slice] = objects.items.filter((item: { metadata: { name: string } }) => item.metadata.name === "web-ipv4");
  const [one, ...others] = slice.endpoints;
  slice.endpoints = others;
  const annotations = { "kube-proxy-ts/weight": "9" };
  objects.items.push({ ...slice, metadata: { ...slice.metadata, name: "web-nine", annotations }, endpoints: [one] });
  const choices = async (text: string) => {
    const argv = (mode: string) => ["shop/web", ...NODE_A, "--why", "--mode", mode];
    const outs = await Promise.all(MODES.map(({ name }) => runCommand(explain, argv(name), text)));
    return outs.map(({ out }) => /Among several endpoints one is chosen (.*)\.\n/.exec(out)?.[1]);
  };
  assert.deepEqual(await choices(JSON.stringify(objects)), WEIGHTED);
  assert.deepEqual(await choices(EXAMPLES), EQUAL);
});

test("an address in slices of different weights: one of them counts, and says where it is", async () => {
  const objects = JSON.parse(EXAMPLES);
  const slice = objects.items.find((item: { metadata: { name: string } }) => item.metadata.name === "web-ipv4");
  const annotations = { "kube-proxy-ts/weight": "9" };
  objects.items.push({ ...slice, metadata: { ...slice.metadata, name: "web-nine", annotations } });
  const { out } = await runCommand(explain, ["shop/web", ...NODE_A, "--why"], JSON.stringify(objects));
  assert.match(out, /^ {2}10\.180\.0\.11:8080 {2}web-1 {2}node-a \(here\) .*\bused, 33\.3 %$/m);
  assert.match(
    out,
    /\nPassed over\n {2}shop\/\S+: 10\.180\.0\.11:8080 is also in shop\/web-\w+, which takes precedence\n/,
  );
});

test("a Service that asks for a hash: by what it is chosen, and in which modes it is not", async () => {
  const objects = JSON.parse(EXAMPLES);
  const asked = { "shop/web": "SourceHash", "shop/storefront": "FlowHash" };
  for (const { kind, metadata } of objects.items) {
    const wanted = Object.entries(asked).find(([key]) => key === `${metadata.namespace}/${metadata.name}`);
    const asks = { "kube-proxy-ts/leave-unanswered": "true", "kube-proxy-ts/balancing": wanted?.[1] };
    if (kind === "Service" && wanted) metadata.annotations = asks;
  }
  // One address in a slice of more weight.
  const [one] = objects.items.filter((item: { metadata: { name: string } }) => item.metadata.name === "web-ipv4");
  const [endpoint, ...others] = one.endpoints;
  one.endpoints = others;
  const annotations = { "kube-proxy-ts/weight": "198" };
  objects.items.push({ ...one, metadata: { ...one.metadata, name: "web-heavy", annotations }, endpoints: [endpoint] });
  for (const { name, ignoresBalancing, hashes, leavesUnanswered } of MODES) {
    const { out: text } = await runCommand(explain, ["shop/web", ...NODE_A, "--mode", name], JSON.stringify(objects));
    assert.match(text, ignoresBalancing === true ? /\bused, 33\.3 %/ : /\bused, 49 %/);
    assert.equal(/weights of EndpointSlices have no effect in/.test(text), ignoresBalancing === true);
    const cannot = `The Service asks to leave out endpoints that do not answer, which ${name} mode cannot.`;
    assert.equal(text.includes(cannot), leavesUnanswered === undefined);
    const hashed = async (service: string) => {
      const { out } = await runCommand(explain, [service, ...NODE_A, "--mode", name], JSON.stringify(objects));
      return out.split("\n").filter((line) => /chosen by|asks for /.test(line));
    };
    const [web, storefront] = [await hashed("shop/web"), await hashed("shop/storefront")];
    if (ignoresBalancing === true) {
      const none = `  The Service asks for SourceHash, which ${name} mode does not have: it chooses without a hash.`;
      assert.equal(web[0], none);
    } else if (hashes === "in-kernel") {
      // The table of mh depends on the order in which real servers came.
      const own = "with the kernel's own hash (scheduler mh).";
      assert.equal(web[0], `  An endpoint is chosen by the client's address, ${own}`);
      assert.equal(storefront[0], `  An endpoint is chosen by the client's address and port, ${own}`);
    } else {
      const same = "the same pod for the same client through every node.";
      assert.equal(web[0], `  An endpoint is chosen by the client's address: ${same}`);
      const flow = "the same pod for the same flow through every node where the policy is Cluster.";
      assert.equal(storefront[0], `  An endpoint is chosen by the client's address and port: ${flow}`);
    }
  }
});

test("with session affinity, the hash is for new clients", async () => {
  const objects = JSON.parse(EXAMPLES);
  for (const { kind, metadata, spec } of objects.items) {
    if (kind !== "Service" || metadata.name !== "web") continue;
    metadata.annotations = { "kube-proxy-ts/balancing": "SourceHash" };
    spec.sessionAffinity = "ClientIP";
  }
  const { out } = await runCommand(explain, ["shop/web", ...NODE_A], JSON.stringify(objects));
  assert.match(out, /A new client's endpoint is chosen by the client's address: /);
});

test("a Service whose ready endpoints are all drained says so", async () => {
  const objects = JSON.parse(EXAMPLES);
  for (const object of objects.items) {
    const name = object.metadata.labels?.["kubernetes.io/service-name"];
    if (object.kind === "EndpointSlice" && name === "web")
      object.metadata.annotations = { "kube-proxy-ts/weight": "0" };
  }
  const { out } = await runCommand(explain, ["shop/web", ...NODE_A], JSON.stringify(objects));
  assert.match(out, /Its ready endpoints are drained \(weight 0\): its clients are refused\./);
});

test("an empty dump is called empty", async () => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-empty-"));
  writeFileSync(join(folder, "rules"), "\n");
  const { status, err } = await runCommand(explain, ["10.0.0.1", "--dump", join(folder, "rules")], "");
  rmSync(folder, { recursive: true });
  assert.equal(status, 2);
  assert.match(err, /is empty: where there are no rules, iptables-save prints nothing/);
});

test("what would change", async () => {
  const text = await textOf("shop/web", "--what-if", "internalTrafficPolicy=Local");
  assert.match(text, /^With internalTrafficPolicy=Local:\n/);
  assert.match(
    text,
    /shop\/web:http TCP on node-a, IPv4: from a pod here: cluster IP 10\.96\.0\.10:80 is now answered by an endpoint here/,
  );
  assert.match(text, /endpoint 10\.180\.1\.11:8080 is now left out: it is on node-b, not on node-a/);
  assert.equal(
    await textOf("shop/web", "--what-if", "spec.externalTrafficPolicy=Local"),
    "With spec.externalTrafficPolicy=Local, nothing would be different for clients.\n",
  );
  assert.match(
    await textOf("shop/web", "--what-if", "mode=userspace"),
    /now answered by any endpoint, which sees the node /,
  );
});

test("SCTP in userspace mode: a node port's packets are the node's own, others leave by its routes", async () => {
  // Seen with raw packets: at 10.200.0.2:30868 the node answers with ICMP 3/2, as at any other port.
  const metadata = { name: "sig", namespace: "shop" };
  const ports = [{ port: 3868, nodePort: 30868, protocol: "SCTP" }];
  const objects = [{ apiVersion: "v1", kind: "Service", metadata, spec: { clusterIP: "10.96.0.9", ports } }];
  const sctp = JSON.stringify({ apiVersion: "v1", kind: "List", items: objects });
  const { out } = await runCommand(explain, ["shop/sig", ...NODE_A, "--mode", "userspace"], sctp);
  assert.match(out, /cluster IP 10\.96\.0\.9:3868\n {4}any client: not taken: userspace mode does not serve SCTP\n/);
  assert.match(out, /node port 30868 .*\n {4}any client: not taken: .*: the node itself refuses it, unless /);
});

test("every form", async () => {
  const json = JSON.parse(await textOf("shop/web", "-o", "json"));
  assert.deepEqual([json.what, json.servicePorts[0].frontends[0].clients.length], ["shop/web", 4]);
  assert.match(await refusalOf("shop/web", "-o", "mermaid"), /--output must be text or json, got "mermaid"/);
  assert.match(await refusalOf("shop/web", "-o", "svg"), /must be text or json, got "svg"\nPictures are on the page /);
});

test("a name that all Services share: what it does", async () => {
  assert.match(await textOf("KUBE-POSTROUTING"), /is there once for all Services: it masquerades packets that carry /);
  assert.match(await textOf("kube-ipvs0", "--mode", "ipvs"), /all Services: it has the service addresses, so that /);
});

test("a name that several Services have is none that was perhaps meant", async () => {
  const service = (namespace: string, clusterIP: string) => ({
    ...{ apiVersion: "v1", kind: "Service", metadata: { namespace, name: "web" } },
    spec: { clusterIP, ports: [{ port: 80 }] },
  });
  const items = [service("a", "10.96.1.1"), service("b", "10.96.1.2")];
  const manifests = JSON.stringify({ apiVersion: "v1", kind: "List", items });
  const { status, err } = await runCommand(explain, ["web", "-f", "-", "--node", "node-a"], manifests);
  assert.equal(status, 2);
  assert.match(err, /^Error: several Services have the name web: a\/web, b\/web; add the namespace\n$/m);
  assert.doesNotMatch(err, /Did you mean/);
});

test("a dump that is not there, or is none, is named", async () => {
  for (const [dump, why] of [
    ["/nowhere/rules", /^Error: cannot read the dump in \/nowhere\/rules: there is no such file or folder\n$/],
    ["/nowhere/sysdump.tgz", /there is no such file or folder\n$/],
    [
      import.meta.filename,
      /explain\.test\.ts is not what iptables-save, nft list ruleset, ipset save, .* prints: it begins with "/,
    ],
  ] as const) {
    const { status, err } = await runCommand(explain, ["KUBE-SVC-X", "--dump", dump]);
    assert.equal(status, 2);
    assert.match(err, why);
  }
});

test("bad input: status 2, and words that help", async () => {
  assert.match(await refusalOf("shop/web", "--all-nodes"), /--node and --all-nodes exclude each other/);
  assert.match(await refusalOf("shop/wbe"), /There is no Service "shop\/wbe"\. Did you mean shop\/web\?/);
  assert.match(
    await refusalOf("svc/kube-dns"),
    /There is no Service "default\/kube-dns"\. Did you mean kube-system\/kube-dns\?\n$/,
  );
  assert.match(await textOf("web.shop.svc.cluster.local:http"), /^shop\/web:http TCP, /);
  for (const url of ["http://web.shop.svc/cart?id=1", "http://10.96.0.10/"]) {
    assert.match(await textOf(url), /^shop\/web:http TCP, /m);
  }
  assert.match(await refusalOf("https://10.96.0.10"), /no service port answers at 10\.96\.0\.10:443/);
  assert.match(await refusalOf("shop/web:htp"), /has no port "htp", but http, 80\nDid you mean http\?/);
  assert.match(await refusalOf("shop/db"), /Service shop\/db is headless \(clusterIP None\): DNS gives out its pods/);
  assert.match(await refusalOf("db"), /^Error: Service shop\/db is headless \(clusterIP None\)/);
  assert.match(await refusalOf("192.0.2.1:80"), /192\.0\.2\.1:80 is neither an address nor an endpoint of a Service/);
  assert.match(
    await refusalOf("10.96.0.10:81"),
    /no service port answers at 10\.96\.0\.10:81; 10\.96\.0\.10 has 80\/TCP \(shop\/web:http\)/,
  );
  assert.match(await refusalOf("30099"), /no Service has the node port 30099/);
  assert.match(
    await refusalOf("KUBE-SVC-AAAAAAAAAAAAAAAA"),
    /no Service, chain or set of iptables mode has the name KUBE-SVC-AAAAAAAAAAAAAAAA/,
  );
  assert.match(
    await refusalOf("shop/web", "--what-if", "externalTrafficPolcy=Local"),
    /Did you mean externalTrafficPolicy\?/,
  );
  assert.match(await refusalOf("shop/web", "--what-if", "externalTrafficPolicy=local-ish"), /must be Cluster or Local/);
  assert.match(await refusalOf("shop/web", "shop/admin"), /one thing at a time/);
  assert.match(
    await refusalOf("why is 10.96.0.10:80 silent?"),
    /needs one name or address, got "why is 10\.96\.0\.10:80 /,
  );
  for (const text of ["10.96.0.999", "10.96.0", "fd00::zz"])
    assert.match(await refusalOf(text), /is not an IP address/);
  for (const text of ["node-b", "node/node-b"])
    assert.match(
      await refusalOf(text),
      /^Error: node-b is a Node\nTo look from it: .* explain SERVICE --node node-b\n$/,
    );
  for (const text of ["shop", "ns/shop"])
    assert.match(
      await refusalOf(text),
      /^Error: shop is a namespace, with shop\/admin, .* more\nFor one of its Services: kube-proxy explain shop\/admin\n$/,
    );
  assert.match(await refusalOf("ns/node-b"), /There is no Service "ns\/node-b"/);
  assert.match(await refusalOf("99999"), /"99999" is not a Service, pod, address, port or name/);
  assert.match(
    await refusalOf("shop/web", "--mode", "iptable"),
    /--mode must be iptables, ipvs, nftables, userspace, kernelspace, ebpf, got "iptable"\nDid you mean iptables\?/,
  );
  assert.match(
    await refusalOf("shop/web", "--what-if", "mode=ebp"),
    /--what-if mode=… must be .*\nDid you mean ebpf\?/,
  );
  for (const args of [[], ["shop/web"], ["shop/web", "-f", "/nonexistent"], ["shop/web", "--no-such-flag"]]) {
    const { status, out, err } = await run(...args);
    assert.deepEqual({ status, out }, { status: 2, out: "" });
    assert.match(err, /^Error: /);
  }
});

test("nothing hostile reaches the terminal", async () => {
  const evil = "\u001b[31m\u202e";
  const objects = {
    kind: "List",
    apiVersion: "v1",
    items: [
      {
        apiVersion: "v1",
        kind: "Service",
        metadata: { namespace: "a", name: "b" },
        spec: { clusterIP: "10.0.0.1", ports: [{ port: 80 }] },
      },
      {
        apiVersion: "discovery.k8s.io/v1",
        kind: "EndpointSlice",
        metadata: { namespace: "a", name: "b-1", labels: { "kubernetes.io/service-name": "b" } },
        addressType: "IPv4",
        ports: [{ port: 80 }],
        endpoints: [
          { addresses: ["10.1.0.1"], nodeName: `x${evil}`, hints: { forZones: [{ name: `z${evil}` }] } },
          { addresses: [`1${evil}`] },
        ],
      },
    ],
  };
  for (const form of ["text", "json"]) {
    const { out, err } = await runCommand(
      explain,
      ["a/b", "-f", "-", "--node", "n", "-o", form],
      JSON.stringify(objects),
    );
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be there
    assert.doesNotMatch(out + err, /[\u0000-\u0009\u000b-\u001f\u202e]/, form);
  }
  const { err } = await run(`shop/we${evil}`, ...NODE_A);
  assert.match(err, /\\x1b/);
});

test("a Service whose endpoints are all the other nodes", async () => {
  const node = (name: string, address: string) => ({
    apiVersion: "v1",
    kind: "Node",
    metadata: { name },
    status: { addresses: [{ type: "InternalIP", address }] },
  });
  const items = [
    node("a", "10.200.0.2"),
    node("b", "10.200.0.3"),
    {
      ...{ apiVersion: "v1", kind: "Service", metadata: { namespace: "default", name: "kubernetes" } },
      spec: { clusterIP: "10.96.0.1", clusterIPs: ["10.96.0.1"], ports: [{ name: "https", port: 443 }] },
    },
    {
      ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType: "IPv4" },
      metadata: {
        ...{ namespace: "default", name: "kubernetes" },
        labels: { "kubernetes.io/service-name": "kubernetes" },
      },
      ports: [{ name: "https", port: 6443 }],
      endpoints: [{ addresses: ["10.200.0.3"], nodeName: "b" }],
    },
  ];
  const argv = ["default/kubernetes", "-f", "-", "--node", "a", "--family", "ipv4"];
  const { status, out, err } = await runCommand(
    explain,
    argv,
    JSON.stringify({ apiVersion: "v1", kind: "List", items }),
  );
  assert.equal(status, 0, err);
  assert.match(out, /another node.*: +answered by/);
});

test("a port of an address by its name, and a node port as `services` has it", async () => {
  assert.match(await textOf("10.96.0.31:HTTP"), /^10\.96\.0\.31:http is an address of shop\/admin:http\.\n/);
  assert.match(await textOf("10.180.0.12:http/tcp"), /^10\.180\.0\.12:http is an endpoint of .*, shop\/web:http\.\n/);
  assert.match(await textOf("*:30082"), /^30082 is the node port of shop\/admin:http\.\n/);
  assert.match(await refusalOf("10.96.0.31:https"), /no service port answers at 10\.96\.0\.31:https; .* has 80\/TCP/);
});

test("a ping is led nowhere, and trace says what becomes of it", async () => {
  for (const what of ["10.96.0.31/icmp", "[fd00:10:96::31]/icmpv6"]) {
    const said = await refusalOf(what);
    assert.equal(said.split("\n")[0], "Error: a Service takes only TCP, UDP and SCTP to its ports, not ICMP");
    assert.equal(said.split("\n")[1], `To see what happens to it: kube-proxy trace --from pod --to ${what}`);
  }
});

test("an address that the load balancer answers itself", async () => {
  const service = {
    ...{ apiVersion: "v1", kind: "Service", metadata: { namespace: "istio-system", name: "gateway" } },
    spec: { type: "LoadBalancer", clusterIP: "10.96.1.2", clusterIPs: ["10.96.1.2"], ports: [{ port: 80 }] },
    status: { loadBalancer: { ingress: [{ ip: "192.0.2.12", ipMode: "Proxy" }] } },
  };
  const { status, err } = await runCommand(explain, ["192.0.2.12:80", "-f", "-"], JSON.stringify(service));
  assert.equal(status, 2);
  assert.match(err, /192\.0\.2\.12 is the load balancer of istio-system\/gateway with ipMode Proxy: /);
});

/** A Service that this proxy does not serve, or that has no usable endpoint, with the only cause that is given. */
const LEFT_ALONE: readonly (readonly [what: string, service: object, said: RegExp])[] = [
  ["headless", { spec: { clusterIP: "None", ports: [{ port: 80 }] } }, /Error: Service a\/b is headless/],
  [
    "another proxy's",
    {
      metadata: { labels: { "service.kubernetes.io/service-proxy-name": "cilium" } },
      spec: { clusterIP: "10.96.1.2", ports: [{ port: 80 }] },
    },
    /Error: Service a\/b is another proxy's \(label service\.kubernetes\.io\/service-proxy-name=cilium\)/,
  ],
  ["ExternalName", { spec: { type: "ExternalName", externalName: "a.example" } }, /Error: .* is an ExternalName/],
  ["without an address yet", { spec: { clusterIP: "", ports: [{ port: 80 }] } }, /Error: .* has no cluster IP yet/],
  [
    "with a selector and no slice",
    { spec: { clusterIP: "10.96.1.2", selector: { app: "web" }, ports: [{ port: 80 }] } },
    /has no endpoints: its clients are refused\.\n {2}No IPv4 EndpointSlice for it is among the objects; a cluster keeps one for each selector/,
  ],
  [
    "without a selector",
    { spec: { clusterIP: "10.96.1.2", ports: [{ port: 80 }] } },
    /has no endpoints: .*\n {2}It has no selector, and there is no EndpointSlice for it with endpoints\.\n/,
  ],
  [
    "behind a name",
    {
      spec: { type: "LoadBalancer", clusterIP: "10.96.1.2", ports: [{ port: 80 }] },
      status: { loadBalancer: { ingress: [{ hostname: "lb.example" }] } },
    },
    /load balancer has a name and no address \(lb\.example\): no node takes packets to it/,
  ],
];

for (const [what, { metadata = {}, ...service }, said] of LEFT_ALONE as readonly (readonly [
  string,
  { metadata?: object },
  RegExp,
])[]) {
  test(`one cause for a Service ${what}`, async () => {
    const object = { apiVersion: "v1", kind: "Service", ...service };
    const text = JSON.stringify({ ...object, metadata: { namespace: "a", name: "b", ...metadata } });
    const { out, err } = await runCommand(explain, ["a/b", "-f", "-", "--node", "n"], text);
    assert.match(out + err, said);
  });
}

test("a selector that matches nothing, with the slice that the cluster keeps for it: without ports and endpoints", async () => {
  const cluster = JSON.parse(EXAMPLES);
  for (const one of cluster.items) {
    if (one.metadata.name === "web") one.spec.selector = { app: "wbe" };
    if (/^web-ipv/.test(one.metadata.name)) [one.ports, one.endpoints] = [null, []];
  }
  const { out } = await runCommand(explain, ["shop/web", ...NODE_A], JSON.stringify(cluster));
  assert.match(out, /^ {2}No pod matches its selector app=wbe, or none has an address yet\.$/m);
  assert.doesNotMatch(out, /EndpointSlice shop/);
});

test("a port of a slice that has another name than the Service's", async () => {
  const { out } = await runCommand(
    explain,
    ["shop/web", ...NODE_A],
    EXAMPLES.replaceAll('"name":"http","port":8080', '"name":"htp","port":8080'),
  );
  assert.match(out, /EndpointSlice shop\/web-\S+: it has no port with the name "http" and TCP, but htp\/TCP\./);
});

test("a load balancer by its host name", async () => {
  const service = {
    ...{ apiVersion: "v1", kind: "Service", metadata: { namespace: "shop", name: "web" } },
    spec: { type: "LoadBalancer", clusterIP: "10.96.1.2", ports: [{ port: 80, nodePort: 30080 }] },
    status: { loadBalancer: { ingress: [{ hostname: "a1b2.elb.eu-central-1.amazonaws.com" }] } },
  };
  const host = "a1b2.elb.eu-central-1.amazonaws.com";
  for (const what of [host, `${host}:80`]) {
    const { out, err } = await runCommand(explain, [what, "-f", "-", "--node", "n"], JSON.stringify(service));
    assert.match(out, /^a1b2\.elb\.eu-central-1\.amazonaws\.com is the load balancer of shop\/web: /, err);
  }
  const other = await runCommand(explain, [`${host}:81`, "-f", "-", "--node", "n"], JSON.stringify(service));
  assert.match(other.err, /^Error: Service shop\/web has no port "81", but 80$/m);
});

test("what is neither a Service nor a pod is no namespace", async () => {
  assert.match(await refusalOf("deployment/other"), /^Error: deployment\/other is neither a Service nor a pod\n/);
});

test("a cluster IP with the number of another Service's node port, by which ipvs mode masquerades", async () => {
  const cluster = JSON.parse(EXAMPLES);
  for (const { kind, metadata, spec } of cluster.items) {
    if (kind === "Service" && metadata.name === "web") spec.ports[0].port = 30080;
  }
  const text = JSON.stringify(cluster);
  const NODE = ["-f", "-", "--node", "node-a", "--mode", "ipvs"];
  const traced = await runCommand(trace, ["--from", "pod", "--to", "10.96.0.10:30080", ...NODE], text);
  assert.match(traced.out, /sent to 10\.180\.1\.11:8080, from the node's address \(masqueraded\)/);
  const { out } = await runCommand(explain, ["shop/web", ...NODE, "-o", "json"], text);
  const [explanation]: PortExplanation[] = JSON.parse(out).servicePorts;
  const [pod] = explanation?.frontends[0]?.clients ?? [];
  assert.deepEqual([pod?.position, pod?.source], ["pod", "masqueraded"]);
});

test("a name in a file that has what both tools of iptables printed", async () => {
  const text = caseFile("cluster-ip", "iptables/iptables.txt") + caseFile("cluster-ip", "iptables/ip6tables.txt");
  const [chain = ""] = /KUBE-SVC-\w{16}/.exec(text) ?? [];
  const { status, out, err } = await runCommand(explain, [chain, "--dump", "-"], text);
  assert.deepEqual([status, err], [0, ""]);
  assert.match(out, new RegExp(`^${chain}: by names and comments, it is for \\w+/\\w+`));
});
