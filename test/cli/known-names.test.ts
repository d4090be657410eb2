/** Names as pods and people know them, and addresses that are there although nothing leads to them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { explain } from "../../src/tools/cli/explain.ts";
import { trace } from "../../src/tools/cli/trace.ts";
import { examplesAsJson, runCommand } from "./run-command.ts";

const EXAMPLES = examplesAsJson();
const explained = (...words: string[]) => runCommand(explain, [...words, "-f", "-", "--family", "ipv4"], EXAMPLES);

const NAMES = [
  { words: ["web.shop"], finds: /^shop\/web:http TCP/m },
  { words: ["web.shop:80"], finds: /^shop\/web:http TCP/m },
  { words: ["http://web.shop/cart?x=1"], finds: /^shop\/web:http TCP/m },
  { words: ["redis://web.shop:80/0"], finds: /^shop\/web:http TCP/m },
  { words: ["svc/web.shop"], finds: /^shop\/web:http TCP/m },
  { words: ["WEB.shop.svc.cluster.local"], finds: /^shop\/web:http TCP/m },
  { words: ["svc", "web", "-n", "shop"], finds: /^shop\/web:http TCP/m },
  { words: ["pod", "web-1", "-n", "shop"], finds: /^shop\/web-1 is the pod at 10\.180\.0\.11 /m },
  { words: ["web-1"], finds: /^shop\/web-1 is the pod at 10\.180\.0\.11 /m },
  { words: ["web-1.shop"], finds: /^shop\/web-1 is the pod at 10\.180\.0\.11 /m },
  { words: ["10-180-0-11.shop.pod.cluster.local"], finds: /^10\.180\.0\.11 is an endpoint of /m },
  { words: ["localhost:30080"], finds: /^30080 is the node port of shop\/web-node-port:http\.$/m },
  { words: ["node-a:30080"], finds: /^30080 is the node port of shop\/web-node-port:http\.$/m },
  { words: ["node-b:30080/tcp"], finds: /^shop\/web-node-port:http TCP, NodePort, on node-b /m },
  { words: ["10.200.0.3:30080", "--node", "node-a"], finds: /^30080 is the node port of shop\/web-node-port:http\.$/m },
  { words: ["shop/web", "-A", "-o", "wide"], finds: /^shop\/web:http TCP/m },
];

for (const { words, finds } of NAMES) {
  test(`explain ${words.join(" ")}`, async () => {
    const { status, out, err } = await explained(...words);
    assert.equal(status, 0, err);
    assert.match(out, finds);
  });
}

test("trace takes the same names", async () => {
  for (const to of ["web.shop:http", "http://web.shop/", "node-a:30080", "localhost:30080"]) {
    const from = to.startsWith("localhost") ? "node" : "web-1.shop";
    const { status, out, err } = await runCommand(
      trace,
      ["--from", from, "--to", to, "-f", "-", "--node", "node-a"],
      EXAMPLES,
    );
    assert.equal(status, 0, `${to}: ${err}`);
    assert.match(out, /sent to 10\.180\.0\.11:8080/, to);
  }
});

const MISTAKES = [
  { words: ["webb"], says: 'Error: There is no Service "webb". Did you mean shop/web?\n' },
  { words: ["shp/web"], says: 'Error: There is no Service "shp/web". Did you mean shop/web?\n' },
  {
    words: ["shop/web", "--proxy-mode", "nftables"],
    says: "Error: unknown flag: --proxy-mode\nThe daemon's --proxy-mode is --mode here.\n",
  },
  {
    words: ["10.96.0.10/icmp"],
    says: "Error: a Service takes only TCP, UDP and SCTP to its ports, not ICMP\nTo see what happens to it: kube-proxy trace --from pod --to 10.96.0.10/icmp\n",
  },
  {
    words: ["shop/web", "--config", "."],
    says: "Error: cannot use the configuration .: it is a folder\nGive the file, for example /var/lib/kube-proxy/config.conf.\n",
  },
];

test("a mistake is answered with what to type", async () => {
  for (const { words, says } of MISTAKES) {
    const { status, err } = await explained(...words);
    assert.deepEqual({ status, err }, { status: 2, err: says }, words.join(" "));
  }
});

const SERVICE = {
  ...{ apiVersion: "v1", kind: "Service", metadata: { namespace: "a", name: "echo" } },
  spec: {
    ...{ type: "LoadBalancer", clusterIP: "10.96.7.4", clusterIPs: ["10.96.7.4"], selector: { app: "echo" } },
    ...{ ports: [{ name: "http", port: 80, targetPort: "http" }], externalIPs: ["2001:db8::9"] },
  },
  status: { loadBalancer: { ingress: [{ ip: "2001:db8::7" }, { ip: "203.0.113.7" }, { hostname: "lb.example" }] } },
};
const slice = (name: string, labels: object, more: object) => ({
  ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", metadata: { namespace: "a", name, labels } },
  ...{ addressType: "IPv4", ports: [{ name: "http", port: 8080, protocol: "TCP" }], ...more },
});
const OF_ECHO = { "kubernetes.io/service-name": "echo" };
const OBJECTS = JSON.stringify({
  ...{ apiVersion: "v1", kind: "List" },
  items: [
    SERVICE,
    {
      apiVersion: "v1",
      kind: "Node",
      metadata: { name: "n1" },
      status: { addresses: [{ type: "InternalIP", address: "192.168.0.9" }] },
    },
    slice("two", OF_ECHO, { endpoints: [{ addresses: ["10.2.0.11", "10.2.0.51"], nodeName: "n1" }] }),
    slice("none", OF_ECHO, {
      ports: null,
      endpoints: [{ addresses: ["10.2.0.12"], targetRef: { kind: "Pod", name: "p" } }],
    }),
    slice("other", OF_ECHO, { ports: [{ name: "grpc", port: 9 }], endpoints: [{ addresses: ["10.2.0.13"] }] }),
    slice("far", { "multicluster.kubernetes.io/service-name": "echo" }, { endpoints: [{ addresses: ["10.2.0.14"] }] }),
    slice("gone", { "kubernetes.io/service-name": "gone" }, { endpoints: [{ addresses: ["10.2.0.15"] }] }),
  ],
});

const PLACES = [
  [
    "10.2.0.51",
    /in EndpointSlice a\/two, and is not used: of an endpoint's addresses, .* only the first, 10\.2\.0\.11/,
  ],
  ["10.2.0.12", /in EndpointSlice a\/none, of pod a\/p, and is not used: the slice has no ports/],
  ["10.2.0.13", /in EndpointSlice a\/other, and is not used: its ports \(grpc\/TCP\) are none of a\/echo/],
  [
    "10.2.0.14",
    /in EndpointSlice a\/far, and is not used: it has no label kubernetes\.io\/service-name, .* names echo\)/,
  ],
  ["10.2.0.15", /there is no Service "a\/gone"/],
  ["2001:db8::9", /an external IP of a\/echo, and is not used: the Service is IPv4 only/],
  ["[2001:db8::7]:80", /a load-balancer address of a\/echo, and is not used: the Service is IPv4 only/],
  ["192.168.0.9", /an address of the Node n1/],
] as const;

test("an address that is there is never denied: where it is, and why it is not used", async () => {
  for (const [address, says] of PLACES) {
    const { status, err } = await runCommand(explain, [address, "-f", "-"], OBJECTS);
    assert.equal(status, 2);
    assert.match(err, says);
  }
});

test("what is not used of a Service is said", async () => {
  const { out } = await runCommand(explain, ["a/echo", "-f", "-", "--why"], OBJECTS);
  assert.match(out, /The external IP 2001:db8::9 is not used: the Service is IPv4 only\./);
  assert.match(out, /The load-balancer address 2001:db8::7 is not used: the Service is IPv4 only\./);
  assert.match(out, /Its load balancer has a name, too \(lb\.example\): no node takes packets to that\./);
  assert.match(out, /a\/far: it has no label kubernetes\.io\/service-name/);
  assert.match(out, /a\/two: 10\.2\.0\.51: of an endpoint's addresses, kube-proxy takes only the first, 10\.2\.0\.11/);
});

test("of an IPv6 address, IPv6 alone", async () => {
  const { out } = await runCommand(explain, ["[fd00:10:96::10]:80", "-f", "-", "--node", "node-a"], EXAMPLES);
  assert.match(out, /cluster IP \[fd00:10:96::10\]:80/);
  assert.doesNotMatch(out, /10\.96\.0\.10/);
});
