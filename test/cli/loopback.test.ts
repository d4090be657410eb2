/**
 * Node ports at loopback addresses: what `explain` and `trace` say, compared with the tables of KEP-6032 and of upstream's other
 * modes (docs/reference: releases.md, iptables.md, ipvs.md §2).
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { explain } from "../../src/tools/cli/explain.ts";
import { trace } from "../../src/tools/cli/trace.ts";
import { runCommand } from "./run-command.ts";

const folder = mkdtempSync(join(tmpdir(), "kpts-loopback-"));
after(() => rmSync(folder, { recursive: true }));

/** One Service with node port 30053 for each protocol, one endpoint of each family, and a node with both families. */
const OBJECTS = JSON.stringify({
  apiVersion: "v1",
  kind: "List",
  items: [
    {
      ...{ apiVersion: "v1", kind: "Node", metadata: { name: "n" } },
      status: {
        addresses: ["192.0.2.1", "2001:db8::1"].map((address) => ({ type: "InternalIP", address })),
      },
    },
    {
      ...{ apiVersion: "v1", kind: "Service", metadata: { namespace: "a", name: "dns" } },
      spec: {
        ...{ type: "NodePort", clusterIP: "10.96.0.53", clusterIPs: ["10.96.0.53", "fd00::53"] },
        ipFamilies: ["IPv4", "IPv6"],
        ports: ["TCP", "UDP", "SCTP"].map((protocol) => ({
          ...{ name: protocol.toLowerCase(), protocol, port: 53, nodePort: 30053 },
        })),
      },
    },
    ...(["IPv4", "IPv6"] as const).map((addressType) => ({
      ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType },
      metadata: {
        ...{ namespace: "a", name: `dns-${addressType.toLowerCase()}` },
        labels: { "kubernetes.io/service-name": "dns" },
      },
      ports: ["TCP", "UDP", "SCTP"].map((protocol) => ({ name: protocol.toLowerCase(), protocol, port: 5353 })),
      endpoints: [{ addresses: [addressType === "IPv4" ? "10.1.0.9" : "fd01::9"] }],
    })),
  ],
});

type Met = "answered" | "refused" | "not served";
/** In the order TCP, UDP, SCTP. */
type Row = readonly [Met, Met, Met];

const NOT: Row = ["not served", "not served", "not served"];
const REFUSED: Row = ["refused", "refused", "refused"];
const TCP: Row = ["answered", "refused", "refused"];
const ALL: Row = ["answered", "answered", "answered"];
const GATE = "featureGates: {KubeProxyNFTablesLocalhostNodePorts: true}";

const CASES: readonly (readonly [modes: readonly string[], config: string, IPv4: Row, IPv6: Row])[] = [
  [["nftables", "ebpf"], "", NOT, NOT],
  [["nftables", "ebpf"], "nodePortAddresses: [primary, localhost]", NOT, NOT],
  [["nftables", "ebpf"], GATE, REFUSED, REFUSED],
  [["nftables", "ebpf"], `${GATE}\nnodePortAddresses: [all]`, REFUSED, REFUSED],
  [["nftables", "ebpf"], `${GATE}\nnodePortAddresses: [primary, localhost]`, TCP, TCP],
  [["nftables", "ebpf"], `${GATE}\nnodePortAddresses: [all, localhost]`, TCP, TCP],
  [["nftables", "ebpf"], `${GATE}\nnodePortAddresses: [primary, 127.0.0.1/32]`, TCP, REFUSED],
  [["nftables", "ebpf"], `${GATE}\nnodePortAddresses: ["::1/128"]`, REFUSED, TCP],
  [["nftables", "ebpf"], `${GATE}\nnodePortAddresses: [126.0.0.0/7]`, REFUSED, REFUSED],
  // Removed: it is accepted and has no effect.
  [["nftables", "ebpf"], "nodePortAddresses: [primary, localhost]\nnftables: {localhostNodePorts: Extended}", NOT, NOT],
  [["iptables"], "", ALL, NOT],
  [["iptables"], "iptables: {localhostNodePorts: false}", NOT, NOT],
  [["iptables"], "nodePortAddresses: [primary]", NOT, NOT],
  [["iptables"], "nodePortAddresses: [primary, localhost]", ALL, NOT],
  [["ipvs"], "nodePortAddresses: [primary, localhost]", NOT, NOT],
];

for (const [modes, config, ...rows] of CASES) {
  for (const mode of modes) {
    test(`${mode} mode, ${config.replaceAll("\n", ", ") || "nothing set"}`, async () => {
      const file = join(folder, "config.yaml");
      const head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration";
      writeFileSync(file, `${head}\nmode: ${mode}\n${config}\n`);
      const argv = ["-f", "-", "--config", file];
      for (const [index, place] of ["127.0.0.1:30053", "[::1]:30053"].entries()) {
        const { out, err } = await runCommand(explain, [place, ...argv], OBJECTS);
        assert.ok(!out.includes(index === 0 ? "IPv6" : "IPv4"), `${place}: its own family alone`);
        for (const [at, protocol] of ["tcp", "udp", "sctp"].entries()) {
          const met = rows[index]?.[at] ?? "not served";
          const where = `${place}/${protocol} must be ${met}`;
          const told = out.split("\n").find((line) => line.startsWith(`${place} (${protocol.toUpperCase()}) is `));
          assert.match(told ?? "", new RegExp(`^\\S+ \\S+ is ${met}( in ${mode} mode)?: `), where + err);
          const traced = await runCommand(trace, ["--from", "node", "--to", `${place}/${protocol}`, ...argv], OBJECTS);
          const fate = { answered: "sent to ", refused: "refused", "not served": "delivered to a process" }[met];
          assert.match(
            traced.out.split("What becomes of it:\n")[1] ?? "",
            new RegExp(`^ *100\\.0 % {2}${fate}`),
            where,
          );
          assert.match(traced.out, new RegExp(`^Note: {3}\\S+ \\S+ is ${met}`, "m"), where);
        }
      }
    });
  }
}
