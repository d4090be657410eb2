/** `render --mode ipvs`: the input of four tools, and the plan as data. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { render } from "../../src/tools/cli/render.ts";
import { netnsFor, netnsSkip } from "../../testkit/support/netns.ts";
import { runCommand } from "./run-command.ts";

const NODE = {
  apiVersion: "v1",
  kind: "Node",
  metadata: { name: "node-a" },
  status: { addresses: ["192.168.0.2", "fd00:200::2"].map((address) => ({ type: "InternalIP", address })) },
};

const PORTS = [
  { name: "http", protocol: "TCP", port: 80, nodePort: 30080 },
  { name: "diameter", protocol: "SCTP", port: 3868, nodePort: 30868 },
];

const SERVICE = {
  apiVersion: "v1",
  kind: "Service",
  metadata: { name: "web", namespace: "default" },
  spec: {
    type: "LoadBalancer",
    clusterIP: "10.96.0.10",
    clusterIPs: ["10.96.0.10", "fd00:96::10"],
    ipFamilies: ["IPv4", "IPv6"],
    ports: PORTS,
    externalIPs: ["192.168.0.2"],
    sessionAffinity: "ClientIP",
    sessionAffinityConfig: { clientIP: { timeoutSeconds: 600 } },
    loadBalancerSourceRanges: ["192.168.0.0/24", "fd00:200::2/128"],
  },
  status: { loadBalancer: { ingress: [{ ip: "203.0.113.1" }, { ip: "2001:db8::1" }] } },
};

function slice(family: "IPv4" | "IPv6", address: string) {
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: {
      name: `web-${family.toLowerCase()}`,
      namespace: "default",
      labels: { "kubernetes.io/service-name": "web" },
    },
    addressType: family,
    ports: PORTS.map(({ name, protocol, port }) => ({ name, protocol, port: port + 8000 })),
    endpoints: [{ addresses: [address], nodeName: "node-a", conditions: { ready: true } }],
  };
}

const ITEMS = [NODE, SERVICE, slice("IPv4", "10.1.0.5"), slice("IPv6", "fd00:1::5")];

async function rendered(...options: string[]): Promise<string> {
  const args = ["-f", "-", "--mode", "ipvs", "--family", "ipv4", ...options];
  const { status, out, err } = await runCommand(
    render,
    args,
    JSON.stringify({ kind: "List", apiVersion: "v1", items: ITEMS }),
  );
  assert.deepEqual([status, err], [0, ""]);
  return out;
}

test("addresses, as ip takes them: not those that the node has elsewhere", async () => {
  assert.equal(
    await rendered("-o", "ip"),
    "link add kube-ipvs0 type dummy\naddr add 10.96.0.10/32 dev kube-ipvs0\naddr add 203.0.113.1/32 dev kube-ipvs0\n",
  );
});

test("virtual servers, as ipvsadm takes them", async () => {
  assert.equal(
    await rendered("-o", "ipvsadm"),
    [
      "-A --sctp-service 10.96.0.10:3868 -s rr -p 600",
      "-a --sctp-service 10.96.0.10:3868 -r 10.1.0.5:11868 -m -w 1",
      "-A -t 10.96.0.10:80 -s rr -p 600",
      "-a -t 10.96.0.10:80 -r 10.1.0.5:8080 -m -w 1",
      "-A -t 192.168.0.2:30080 -s rr -p 600",
      "-a -t 192.168.0.2:30080 -r 10.1.0.5:8080 -m -w 1",
      "-A --sctp-service 192.168.0.2:30868 -s rr -p 600",
      "-a --sctp-service 192.168.0.2:30868 -r 10.1.0.5:11868 -m -w 1",
      "-A --sctp-service 192.168.0.2:3868 -s rr -p 600",
      "-a --sctp-service 192.168.0.2:3868 -r 10.1.0.5:11868 -m -w 1",
      "-A -t 192.168.0.2:80 -s rr -p 600",
      "-a -t 192.168.0.2:80 -r 10.1.0.5:8080 -m -w 1",
      "-A --sctp-service 203.0.113.1:3868 -s rr -p 600",
      "-a --sctp-service 203.0.113.1:3868 -r 10.1.0.5:11868 -m -w 1",
      "-A -t 203.0.113.1:80 -s rr -p 600",
      "-a -t 203.0.113.1:80 -r 10.1.0.5:8080 -m -w 1",
      "",
    ].join("\n"),
  );
});

test("IPv6, with another scheduler", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-render-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const config = join(folder, "config.yaml");
  const kind = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
  writeFileSync(config, `${kind}mode: ipvs\nipvs: {scheduler: mh}\n`);
  const text = await rendered("-o", "ipvsadm", "--family", "ipv6", "--config", config);
  assert.match(
    text,
    /^-A -t \[fd00:96::10\]:80 -s mh -p 600 -b mh-fallback,mh-port\n-a -t \[fd00:96::10\]:80 -r \[fd00:1::5\]:8080 -m -w 1$/m,
  );
});

test("sets, as ipset takes them", async () => {
  const lines = (await rendered("-o", "ipset")).split("\n");
  assert.equal(lines.filter((line) => line.startsWith("create ")).length, 17);
  const added = lines.filter((line) => line.startsWith("add ") && !line.includes("3868") && !line.includes("30868"));
  assert.deepEqual(added, [
    "add KUBE-LOOP-BACK 10.1.0.5,sctp:11868,10.1.0.5",
    "add KUBE-LOOP-BACK 10.1.0.5,tcp:8080,10.1.0.5",
    "add KUBE-CLUSTER-IP 10.96.0.10,tcp:80",
    "add KUBE-EXTERNAL-IP 192.168.0.2,tcp:80",
    "add KUBE-LOAD-BALANCER 203.0.113.1,tcp:80",
    "add KUBE-LOAD-BALANCER-SOURCE-IP 203.0.113.1,tcp:80,203.0.113.1",
    "add KUBE-LOAD-BALANCER-SOURCE-CIDR 203.0.113.1,tcp:80,192.168.0.0/24",
    "add KUBE-LOAD-BALANCER-FW 203.0.113.1,tcp:80",
    "add KUBE-NODE-PORT-TCP 30080",
    "add KUBE-IPVS-IPS 10.96.0.10",
    "add KUBE-IPVS-IPS 203.0.113.1",
  ]);
});

test("the default is all of it, in the order in which it could be used", async () => {
  for (const [family, restore] of [
    ["ipv4", "iptables-restore"],
    ["ipv6", "ip6tables-restore"],
  ] as const) {
    const text = await rendered("--family", family);
    assert.deepEqual(text.match(/^# .*$/gm), [
      "# ip -batch -",
      "# ipset restore",
      `# ${restore} --noflush`,
      "# ipvsadm -R",
    ]);
    for (const tool of ["ip", "ipset", "iptables", "ipvsadm"]) {
      assert.ok(text.includes(await rendered("--family", family, "-o", tool)), tool);
    }
  }
});

test("as data", async () => {
  const data = JSON.parse(await rendered("-o", "json"));
  assert.deepEqual(Object.keys(data), ["mode", "family", "node", "device", "sets", "virtualServers", "jumps", "rules"]);
  assert.deepEqual(data.virtualServers[1], {
    text: "10.96.0.10:80/TCP",
    address: "10.96.0.10",
    protocol: "TCP",
    port: 80,
    scheduler: "rr",
    flags: 1,
    timeoutSeconds: 600,
    servicePort: "default/web:http",
    realServers: [{ address: "10.1.0.5", port: 8080, weight: 1 }],
  });
  assert.equal(data.jumps.length, 9);
  assert.equal(data.rules[0].text, "KUBE-SERVICES -s 127.0.0.0/8 -j RETURN");
});

for (const [family, prefix] of [
  ["ipv4", "ip"],
  ["ipv6", "ip6"],
] as const) {
  test(`${family}: the tools take what is printed for them`, { skip: netnsSkip }, async (t) => {
    const { exec } = await netnsFor(t, "render");
    const feed = async (tool: string, args: readonly string[], text: string) => {
      const { status, stderr } = await exec(tool, args, { stdin: [text] });
      assert.equal(status, 0, `${tool}: ${stderr}`);
    };
    await feed("ipset", ["restore"], await rendered("--family", family, "-o", "ipset"));
    await feed(`${prefix}tables-restore`, ["--noflush"], await rendered("--family", family, "-o", "iptables"));
  });
}
