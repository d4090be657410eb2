/** `kube-proxy trace`: through the plan of every mode, through dumps, and with unusable input. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { MODES } from "../../src/modes/registry.ts";
import { render } from "../../src/tools/cli/render.ts";
import { trace } from "../../src/tools/cli/trace.ts";
import { caseFile } from "../conformance/conformance-case.ts";
import { inWorld, WORLDS } from "../property/node-worlds.ts";
import { examplesAsJson, type Ran, runCommand } from "./run-command.ts";

const EXAMPLES = examplesAsJson();
const directory = mkdtempSync(join(tmpdir(), "kpts-trace-"));
after(() => rmSync(directory, { recursive: true }));

const run = (argv: readonly string[], stdin = "") => runCommand(trace, argv, stdin);

/** The lines below "What becomes of it:". */
function fates({ out }: Ran): string[] {
  const [, text = ""] = out.split("What becomes of it:\n");
  return (text.split("\n\n")[0] ?? "").split("\n").map((line) => line.trim());
}

const inExamples = (mode: string, ...rest: string[]) =>
  run(["-f", "-", "--node", "node-a", "--mode", mode, ...rest], EXAMPLES);

function file(name: string, content: string): string {
  const path = join(directory, name);
  writeFileSync(path, content);
  return path;
}

describe("over the plan", () => {
  const endpoints = ["10.180.0.11", "10.180.0.12", "10.180.1.11"];
  /** A load balancer whose ranges exclude the node and its pods, and a cluster IP. */
  const [barred, clusterIP] = ["203.0.113.31:80", "10.96.0.31:80"];

  test("ipvs: the node has the addresses of Services, and sends to them from them", async () => {
    const toBarred = await inExamples("ipvs", "--from", "node", "--to", barred);
    assert.match(toBarred.out, /^Packet: tcp 203\.0\.113\.31 to 203\.0\.113\.31:80, from the node itself/);
    assert.match(toBarred.out, /100\.0 % {2}dropped by iptables -t filter KUBE-IPVS-OUT-FILTER rule 1: /);
    const toClusterIP = await inExamples("ipvs", "--from", "node", "--to", clusterIP);
    assert.match(toClusterIP.out, /sent to 10\.180\.0\.12:8080, from the node's address \(masqueraded\)/);
  });

  test("--compatibility: the rules of the release", async () => {
    const ruleOf = async (release: string) =>
      (
        await inExamples(
          "nftables",
          "--compatibility",
          release,
          "--from",
          "10.180.0.11",
          "--to",
          "10.96.0.40:25",
          "--all",
        )
      ).out;
    assert.match(await ruleOf("v1.36"), /dnat ip to numgen random mod 1 map /);
    assert.match(await ruleOf("v1.37"), /meta l4proto tcp dnat to 10\.180\.0\.25:2525/);
  });

  test("ICMP to a cluster IP is led nowhere, which is said", async () => {
    const whole = /^ {2}100\.0 % {2}(.*)$/gm;
    const met = new Map<string, readonly string[]>();
    for (const { name } of MODES) {
      const { out } = await inExamples(name, "--from", "pod", "--to", "10.96.0.31/icmp");
      met.set(
        name,
        Array.from(out.matchAll(whole), ([, text = ""]) => text.replace(/ by .*$/, "")),
      );
    }
    const notLed =
      "not sent to an endpoint: 10.96.0.31 is an address of shop/admin, and a Service takes only TCP, UDP and SCTP to its ports, " +
      "not ICMP: it leaves";
    const refused = "refused (icmp port-unreachable)";
    assert.deepEqual(Object.fromEntries(met), {
      iptables: [notLed],
      nftables: [refused],
      ebpf: [refused],
      ipvs: ["refused (icmp-port-unreachable)"],
      userspace: [notLed],
      kernelspace: [notLed],
    });
  });

  test("a later packet goes where the first of its connection was led, which no rule says", async () => {
    for (const mode of ["nftables", "iptables"]) {
      const result = await inExamples(mode, "--from", "pod", "--to", "10.96.0.10:80", "--state", "established");
      assert.deepEqual(fates(result), ["100.0 %  not known: the endpoint of the connection's first packet"], mode);
    }
  });

  test("a port that no Service has at its address", async () => {
    const { out } = await inExamples("iptables", "--from", "outside", "--to", "10.96.0.31:81");
    assert.match(
      out,
      /100\.0 % {2}not sent to an endpoint: 10\.96\.0\.31 is an address of shop\/admin, and nothing takes TCP to its port 81: it leaves/,
    );
  });

  for (const { name } of MODES.filter((mode) => "traceForms" in mode)) {
    test(`a pod at a cluster IP, in mode ${name}`, async () => {
      const result = await inExamples(name, "--from", "pod:40000", "--to", "10.96.0.10:80", "--new-client");
      assert.equal(result.status, 0, result.err);
      const isKept = name !== "userspace" && name !== "kernelspace";
      const source = isKept ? "10.180.0.250 (kept)" : "the node's address (masqueraded)";
      assert.deepEqual(
        fates(result),
        endpoints.map((ip) => `33.3 %  sent to ${ip}:8080, from ${source}`),
      );
    });

    test(`IPv6, from outside to a node port, in mode ${name}`, async () => {
      const result = await inExamples(name, "--from", "outside", "--to", "[fd00:200::2]:30080");
      assert.equal(result.status, 0, result.err);
      assert.match(
        result.out,
        /^Packet: tcp 2001:db8::77 to \[fd00:200::2\]:30080, coming in by eth0, connection new$/m,
      );
    });
  }

  describe("over load balancers of HNS, in kernelspace mode", () => {
    const traced = (...argv: string[]) => inExamples("kernelspace", ...argv);
    const cases: readonly (readonly [what: string, argv: readonly string[], way: RegExp, fates: readonly string[]])[] =
      [
        [
          "a cluster IP names the document, and how HNS chooses",
          ["--from", "pod", "--to", "10.96.0.31:80"],
          /load balancer tcp 10\.96\.0\.31:80: \{"HostComputeEndpoints":\["<ID of 10\.180\.0\.12>".*\n +→ one of 2 endpoints, by HNS, for each connection\n +shop\/admin:http cluster-ip tcp/,
          [
            "50.0 %  sent to 10.180.0.12:8080, from the node's address (masqueraded)",
            "50.0 %  sent to 10.180.1.11:8080, from the node's address (masqueraded)",
          ],
        ],
        [
          "where the endpoint answers directly, it sees the client",
          ["--from", "outside", "--to", "10.200.0.2:30081"],
          /→ to its only endpoint\n.*\n +Flags 1: 1 direct server return.*\n +flags of the port 18: 2 at the node's own address; 16 /,
          ["100.0 %  sent to 10.180.0.11:8080, from 203.0.113.77 (kept)"],
        ],
        [
          "affinity goes by the client's address",
          ["--from", "pod", "--to", "10.96.0.50:80", "--seed", "1"],
          /→ one of 3 endpoints, always the same for 10\.180\.0\.250$/m,
          ["100.0 %  sent to 10.180.0.12:8080, from the node's address (masqueraded)"],
        ],
        [
          "the node itself is not led",
          ["--from", "node", "--to", "10.96.0.10:80"],
          /→ not asked: HNS does not redirect packets of the node itself/,
          [
            "100.0 %  not sent to an endpoint: 10.96.0.10 is an address of shop/web, and nothing takes TCP to its port 80: it leaves by the node's routes",
          ],
        ],
        [
          "a later packet goes where its connection goes",
          ["--from", "pod", "--to", "10.96.0.10:80", "--state", "established"],
          /→ HNS keeps connections in a table of flows/,
          ["100.0 %  not known: the endpoint of the connection's first packet"],
        ],
        [
          "a frontend without endpoints has none, and is named",
          ["--from", "pod", "--to", "10.96.0.70:80"],
          /no load balancer has tcp 10\.96\.0\.70:80: office\/legacy:http has no endpoint that HNS can send to$/m,
          [
            "100.0 %  not sent to an endpoint: 10.96.0.70 is an address of office/legacy, and nothing takes TCP to its port 80: it leaves by the node's routes",
          ],
        ],
        [
          "with -v the others are said to be no match",
          ["--from", "pod", "--to", "10.96.0.10:81", "-v"],
          /· load balancer tcp 10\.96\.0\.10:80: .*\n +no: its place is tcp 10\.96\.0\.10:80, IPv4, and the packet is for tcp 10\.96\.0\.10:81$/m,
          [
            "100.0 %  not sent to an endpoint: 10.96.0.10 is an address of shop/web, and nothing takes TCP to its port 81: it leaves by the node's routes",
          ],
        ],
      ];
    for (const [what, argv, way, expected] of cases) {
      test(what, async () => {
        const result = await traced(...argv, "--all");
        assert.equal(result.status, 0, result.err);
        assert.match(result.out, /^virtual switch$/m);
        assert.match(result.out, way);
        assert.deepEqual(fates(result), expected);
      });
    }

    test("the source VIP of an overlay is what endpoints see", async () => {
      const config = file(
        "overlay.yaml",
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nwinkernel: {sourceVip: 10.180.0.2}\n",
      );
      const result = await traced("--from", "outside", "--to", "10.200.0.2:30082", "--config", config, "--all");
      assert.match(result.out, /SourceVIP: the endpoint sees 10\.180\.0\.2$/m);
      assert.deepEqual(fates(result), [
        "50.0 %  sent to 10.180.0.12:8080, from 10.180.0.2 (translated)",
        "50.0 %  sent to 10.180.1.11:8080, from 10.180.0.2 (translated)",
      ]);
    });

    test("as data", async () => {
      const { out } = await traced("--from", "pod", "--to", "10.96.0.70:80", "-o", "json");
      const { trace: way, outcomes } = JSON.parse(out);
      assert.deepEqual(
        way.steps.map(({ kind }: { kind: string }) => kind),
        ["stage", "remark"],
      );
      assert.equal(outcomes[0].fate.kind, "not-led");
    });

    test("what render prints is a dump; where the node's addresses are not known, both is shown", async () => {
      const rendered = await runCommand(
        render,
        ["-f", "-", "--hostname-override", "node-a", "--mode", "kernelspace"],
        EXAMPLES,
      );
      const result = await run(["--from", "203.0.113.9", "--to", "192.0.2.1:30082", "--dump", "-"], rendered.out);
      assert.equal(result.status, 0, result.err);
      assert.deepEqual(fates(result), [
        "if 192.0.2.1 is an address of the node:",
        "50.0 %  sent to 10.180.0.12:8080, from the node's address (masqueraded)",
        "50.0 %  sent to 10.180.1.11:8080, from the node's address (masqueraded)",
        "otherwise:",
        "100.0 %  sent to 192.0.2.1:30082, from 203.0.113.9 (kept)",
      ]);
      const cut = await run(
        ["--from", "203.0.113.9", "--to", "192.0.2.1:30082", "--dump", "-"],
        `${rendered.out.slice(0, 400).replace(/\n[^\n]*$/, "")}\nHcnCreateEndpoint {"Ip}`,
      );
      assert.equal(cut.status, 2);
      assert.match(cut.err, /standard input is cut, or no JSON/);
    });
  });

  describe("what is decided before there is a packet, in ebpf mode", () => {
    const led = (source: string) =>
      ["10.180.0.12", "10.180.1.11"].map((ip) => `50.0 %  sent to ${ip}:8080, from ${source} (kept)`);
    const masqueraded = ["10.180.0.12", "10.180.1.11"].map(
      (ip) => `50.0 %  sent to ${ip}:8080, from the node's address (masqueraded)`,
    );
    const ask = async (from: string, to: string, ...more: string[]) =>
      fates(await inExamples("ebpf", "--from", from, "--to", to, "--new-client", ...more));
    const nodePort = "10.200.0.2:30082";

    test("a socket asks for an endpoint", async () => {
      assert.deepEqual(await ask("pod", clusterIP), led("10.180.0.250"));
      assert.deepEqual(await ask("node", nodePort), led("10.200.0.2"));
      assert.deepEqual(await ask("pod", nodePort), led("10.180.0.250"));
    });

    test("a client outside has no socket here, nor has what comes in by an interface", async () => {
      assert.deepEqual(await ask("outside", nodePort), masqueraded);
      assert.deepEqual(await ask("pod", nodePort, "--in", "cni0"), masqueraded);
    });

    test("where the client's address decides, and where there is nothing, the rules are asked", async () => {
      assert.match(
        (await ask("pod", barred)).join(),
        /^100\.0 % {2}dropped by ip kube-proxy source-check rule \d+: drop/,
      );
      assert.match((await ask("pod", "10.96.0.31:81")).join(), /^100\.0 % {2}refused .* cluster-ips-check/);
    });
  });

  test("what is refused names the rule", async () => {
    const { out } = await inExamples("nftables", "--from", "node", "--to", "10.96.0.10:81");
    assert.match(
      out,
      /^ {2}100\.0 % {2}refused \(icmp port-unreachable\) by ip kube-proxy cluster-ips-check rule 1: ip daddr @cluster-ips reject/m,
    );
  });

  test("affinity makes both ways visible, unless the client is new", async () => {
    const ask = ["--from", "pod", "--to", "10.96.0.50:80"];
    const unknown = await inExamples("nftables", ...ask);
    assert.match(unknown.out, /^ {2}A client that session affinity remembers stays with its endpoint/m);
    const whole = await inExamples("nftables", ...ask, "--all");
    assert.match(whole.out, /\? it depends on whether 10\.180\.0\.250 is in @affinity-/);
    const known = await inExamples("nftables", ...ask, "--all", "--new-client");
    assert.doesNotMatch(known.out, /it depends on|session affinity/);
  });

  test("a seed takes one way, the same each time", async () => {
    const ask = ["--from", "pod", "--to", "10.96.0.10:80", "--seed"];
    const [one, again] = [await inExamples("iptables", ...ask, "7"), await inExamples("iptables", ...ask, "7")];
    assert.equal(one.out, again.out);
    assert.equal(fates(one).length, 1);
    const many = await Promise.all(
      Array.from({ length: 12 }, (_, seed) => inExamples("iptables", ...ask, String(seed))),
    );
    assert.ok(new Set(many.flatMap(fates)).size > 1);
  });

  test("verbose shows what does not match, and why", async () => {
    const { out } = await inExamples("iptables", "--from", "pod", "--to", "10.96.0.10:80", "-v");
    assert.match(out, /no: -m mark ! --mark 0x4000\/0x4000|KUBE-SERVICES: \d+ rules are for other addresses and ports/);
    assert.match(out, /no: -m conntrack --ctstate INVALID, and the connection is NEW/);
  });

  test("as JSON, with every branch and its odds", async () => {
    const { out } = await inExamples("iptables", "--from", "pod", "--to", "10.96.0.10:80", "-o", "json");
    const { outcomes, trace: root, packet } = JSON.parse(out);
    assert.equal(packet.destination, "10.96.0.10");
    assert.equal(outcomes.length, 3);
    const total = outcomes.reduce((sum: number, { odds }: { odds: number }) => sum + odds, 0);
    assert.ok(Math.abs(total - 1) < 1e-9);
    assert.equal(root.branches.length, 2);
  });

  test("as JSON, an address of the node that is not known is none", async () => {
    const { out } = await inExamples("kernelspace", "--from", "pod", "--to", "10.96.0.10:80", "-o", "json");
    const { outcomes, packet } = JSON.parse(out);
    assert.equal(packet.source, "10.180.0.250");
    for (const { packet: end } of outcomes) assert.deepEqual([end.source, end.isMasqueraded], [null, true]);
  });
});

describe("pods by their names", () => {
  const pod = JSON.stringify({
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: "client", namespace: "lab" },
    spec: { nodeName: "node-a" },
    status: { podIPs: [{ ip: "10.180.0.77" }, { ip: "fd00:10:180::77" }] },
  });
  const withPod = EXAMPLES.replace('"items":[', `"items":[${pod},`);
  const ask = (...argv: string[]) => run(["-f", "-", "--node", "node-a", ...argv], withPod);

  test("from a slice or a Pod; of its addresses, the one of the other end's family", async () => {
    const { out } = await ask("--from", "shop/web-1:4000", "--to", "10.96.0.53:53/udp");
    assert.match(out, /^Packet: udp 10\.180\.0\.11:4000 to 10\.96\.0\.53:53, /);
    assert.match(out, /^Note: {3}shop\/web-1 is 10\.180\.0\.11, on node-a$/m);
    const six = await ask("--from", "lab/client", "--to", "[fd00:10:96::53]:53");
    assert.match(six.out, /^Packet: tcp fd00:10:180::77 to \[fd00:10:96::53\]:53, /);
    const both = await ask("--from", "pod/lab/client", "--to", "shop/web-3:8080/tcp");
    assert.match(both.out, /^Packet: tcp 10\.180\.0\.77 to 10\.180\.1\.11:8080, /);
  });

  test("a port by its name, of the Service that has the address", async () => {
    const { out } = await ask("--from", "pod", "--to", "10.96.0.53:dns");
    assert.match(out, /^Packet: udp \S+ to 10\.96\.0\.53:53, /);
    const six = await ask("--from", "pod", "--to", "[fd00:10:96::10]:http/tcp");
    assert.match(six.out, /^Packet: tcp \S+ to \[fd00:10:96::10\]:80, /);
    const refusal = async (to: string) => (await ask("--from", "pod", "--to", to)).err;
    assert.match(
      await refusal("10.96.0.53:http"),
      /Service kube-system\/kube-dns has no port "http", but dns, dns-tcp/,
    );
    assert.match(
      await refusal("192.0.2.1:http"),
      /no Service has the address 192\.0\.2\.1: give the number of the port/,
    );
  });

  test("a pod of this node comes in where its pods do; one of another node anywhere", async () => {
    const config = file(
      "bridge.yaml",
      "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\ndetectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cni0}\n",
    );
    const here = await ask("--config", config, "--from", "lab/client", "--to", "10.96.0.10:80");
    assert.match(here.out, /coming in by cni0,/);
    const there = await ask("--config", config, "--from", "shop/web-3", "--to", "10.96.0.10:80");
    assert.match(there.out, /coming in by an interface that is not known,/);
  });

  test("a Service: its cluster IP, with the number and the protocol of its port", async () => {
    const packetTo = async (to: string, ...more: readonly string[]) =>
      /^Packet: (.*),/m.exec((await ask("--from", "lab/client", "--to", to, ...more)).out)?.[1];
    for (const to of [
      "shop/web",
      "shop/web:http",
      "shop/web:80/tcp",
      "web.shop.svc",
      "web.shop.svc.cluster.local:http",
      "http://web.shop.svc/cart?id=1",
      "http://10.96.0.10/",
      "web:http",
      "svc/web:80/tcp",
    ]) {
      assert.match((await packetTo(to)) ?? "", /^tcp \S+ to 10\.96\.0\.10:80,/, to);
    }
    // As a pod's environment names it.
    assert.match((await packetTo("udp://10.96.0.53:53")) ?? "", /^udp \S+ to 10\.96\.0\.53:53,/);
    assert.match((await packetTo("svc/web", "-n", "shop")) ?? "", /^tcp \S+ to 10\.96\.0\.10:80,/);
    assert.match((await packetTo("kube-system/kube-dns:dns")) ?? "", /^udp \S+ to 10\.96\.0\.53:53,/);
    const several = await ask("--from", "lab/client", "--to", "kube-system/kube-dns");
    assert.match(several.err, /has several ports: --to kube-system\/kube-dns:PORT, which is dns, dns-tcp\n$/);
    const none = await ask("--from", "lab/client", "--to", "shop/web:nope");
    assert.match(none.err, /Service shop\/web has no port "nope", but http\n$/);
    for (const [to, nearest] of [
      ["office/web:http", "shop/web"],
      ["webb:http", "web"],
    ] as const) {
      const { status, err } = await ask("--from", "lab/client", "--to", to);
      assert.deepEqual([status, err.split("\n")[1]], [2, `Did you mean ${nearest}?`], err);
    }
  });

  test("a pod without its namespace, and the host name of a load balancer", async () => {
    const { out } = await ask("--from", "client", "--to", "web:http");
    assert.match(out, /^(?:Note:)? +lab\/client is \S+, on |^Note: +lab\/client is /m);
    const host = await ask("--from", "client", "--to", "eu.elb.example:80");
    assert.match(host.err, /no Service has a load balancer named eu\.elb\.example:80/);
    const service = {
      ...{ apiVersion: "v1", kind: "Service", metadata: { namespace: "lab", name: "lb" } },
      spec: { type: "LoadBalancer", clusterIP: "10.96.1.2", ports: [{ port: 80, nodePort: 30999 }] },
      status: { loadBalancer: { ingress: [{ hostname: "eu.elb.example" }] } },
    };
    const path = file("lb.json", JSON.stringify(service));
    const known = await ask("--from", "client", "--to", "eu.elb.example:80", "-f", path);
    assert.match(known.err, /eu\.elb\.example is the load balancer of lab\/lb: its packets come to a node port/);
  });

  test("an unknown pod: the nearest name; a Service as the client: its cluster IP", async () => {
    const unknown = await ask("--from", "lab/clinet", "--to", "10.96.0.10:80");
    assert.equal(unknown.status, 2);
    assert.match(
      unknown.err,
      /^Error: --from: there is no pod "lab\/clinet" among the objects\nDid you mean lab\/client\?\n$/,
    );
    const service = await ask("--from", "shop/web:80", "--to", "10.96.0.10:80");
    assert.match(service.err, /"shop\/web" is a Service, not a pod\nIts cluster IP: --to 10\.96\.0\.10:80\.\n$/);
    const family = await ask("--from", "office/mail-0", "--to", "[fd00:10:96::53]:53");
    assert.match(family.err, /pod office\/mail-0 has no IPv6 address, but 10\.180\.0\.25/);
    assert.deepEqual([unknown.out, service.out, family.out], ["", "", ""]);
  });
});

describe("over dumps", () => {
  test("of iptables and of nft, by name and from standard input", async () => {
    const saved = file("iptables.txt", caseFile("cluster-ip", "iptables/iptables.txt"));
    const question = ["--from", "10.180.0.9", "--in", "cni0", "--to", "10.96.1.1:80", "--local", "10.200.0.2"];
    const one = await run([...question, "--dump", saved]);
    const other = await run([...question, "--dump", "-"], caseFile("cluster-ip", "nftables/nft.json"));
    assert.deepEqual([one.status, other.status, one.err, other.err], [0, 0, "", ""]);
    assert.deepEqual(fates(one), fates(other));
    assert.equal(fates(one).length, 3);
  });

  test("of nft that prints numbers in place of words, as with -n, or in an image without /etc/protocols", async () => {
    const words = caseFile("cluster-ip", "nftables/nft.json");
    const numbers: Readonly<Record<string, number>> = { tcp: 6, udp: 17, sctp: 132, new: 8, dnat: 32, local: 2 };
    const printed = words.replaceAll(/(?<!"protocol": )"(tcp|udp|sctp|new|dnat|local)"(?!:)/g, (_word, word: string) =>
      String(numbers[word]),
    );
    for (const to of ["10.96.1.1:80", "10.96.1.1:81", "10.96.0.1:443"]) {
      const question = ["--from", "10.180.0.5", "--in", "cni0", "--to", to, "--local", "10.200.0.2", "--dump", "-"];
      const [one, other] = [await run(question, words), await run(question, printed)];
      assert.deepEqual(fates(other), fates(one), to);
      assert.ok(one.out.length > 100);
    }
  });

  test("of the other family are left out, and nothing else is an error", async () => {
    const saved = file("ip6tables.txt", caseFile("cluster-ip", "iptables/ip6tables.txt"));
    const alone = await run(["--from", "10.0.0.1", "--to", "10.96.1.1:80", "--dump", saved]);
    assert.deepEqual(alone, { status: 2, out: "", err: "Error: no dump is of IPv4, which --to asks about\n" });
    const both = await run([
      "--from",
      "10.0.0.1",
      "--to",
      "10.96.1.1:80",
      "--dump",
      saved,
      "--dump",
      file("nft.json", caseFile("cluster-ip", "nftables/nft.json")),
    ]);
    assert.match(both.out, /^Note: {3}\S+ip6tables\.txt is of IPv6: it is left out$/m);
  });

  test("one file may have what several tools printed, with any line ends", async () => {
    const [one, other] = [
      caseFile("cluster-ip", "iptables/iptables.txt"),
      caseFile("cluster-ip", "iptables/ip6tables.txt"),
    ];
    const question = ["--from", "10.180.0.9", "--in", "cni0", "--to", "10.96.1.1:80", "--local", "10.200.0.2"];
    const traced = (name: string, content: string) => run([...question, "--dump", file(name, content)]);
    const alone = await traced("alone.txt", one);
    assert.equal(fates(alone).length, 3);
    for (const text of [one + other, other + one, (other + one).replaceAll("\n", "\r\n")]) {
      const both = await traced("both.txt", text);
      assert.deepEqual([both.status, both.err, fates(both)], [0, "", fates(alone)]);
      assert.match(both.out, /^Note: {3}a part of \S+both\.txt is of IPv6: it is left out$/m);
    }
    const legacy = "# Generated by iptables-save v1.8.9\n*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n";
    assert.deepEqual(fates(await traced("backends.txt", one + legacy)), fates(alone));
  });

  test("with counters, and without the lines that say what printed it", async () => {
    const bare = (text: string) => text.replaceAll(/^#.*\n/gm, "").replaceAll(/^-A/gm, "[12:3456] -A");
    const question = ["--from", "10.180.0.9", "--in", "cni0", "--to", "10.96.1.1:80", "--local", "10.200.0.2"];
    const one = await run([...question, "--dump", "-"], bare(caseFile("cluster-ip", "iptables/iptables.txt")));
    assert.equal(fates(one).length, 3);
    const other = await run([...question, "--dump", "-"], bare(caseFile("cluster-ip", "iptables/ip6tables.txt")));
    assert.equal(other.err, "Error: no dump is of IPv4, which --to asks about\n");
  });

  test("names in a dump cannot reach the terminal as they are", async () => {
    const hostile = caseFile("cluster-ip", "iptables/iptables.txt").replaceAll("cluster IP", "\x1b[2J\u202eIP");
    const { out } = await run(
      ["--from", "10.0.0.1", "--to", "10.96.1.1:80", "--dump", "-", "--local", "10.200.0.2", "--all"],
      hostile,
    );
    assert.match(out, /\\x1b\[2J\\u202eIP/);
    assert.equal(out.includes("\x1b") || out.includes("\u202e"), false);
    const json = await run(["--from", "10.0.0.1", "--to", "10.96.1.1:80", "--dump", "-", "-o", "json"], hostile);
    assert.equal(json.out.includes("\x1b") || json.out.includes("\u202e"), false);
  });
});

describe("input that cannot be used ends with status 2", () => {
  const PACKET = ["--from", "10.0.0.1", "--to", "10.96.1.1:80"];
  const whole = caseFile("cluster-ip", "iptables/iptables.txt");
  const json = caseFile("cluster-ip", "nftables/nft.json");
  const cases: readonly (readonly [string, readonly string[], string, RegExp])[] = [
    [
      "a pod, and nothing to look it up in",
      ["--from", "shop/web-1", "--to", "10.96.1.1:80", "--dump", "-", "--kubeconfig", "/nonexistent"],
      whole,
      /^Error: shop\/web-1 cannot be looked up: .*\nGive its address, or a cluster with --kubeconfig\.$/m,
    ],
    [
      "no client",
      ["--to", "10.96.1.1:80", "--dump", "-"],
      whole,
      /whose packet it is: --from pod, node, outside, an address or a pod/,
    ],
    [
      "the name of a node",
      ["--from", "node-a", "--to", "10.96.1.1:80", "--dump", "-"],
      whole,
      /a known pod, or pod, node, outside; got "node-a"/,
    ],
    ["a Service without a flag", ["shop/web"], "", /got "shop\/web"\nDid you mean --to shop\/web --from pod\?/],
    [
      "a port of another protocol",
      ["--from", "outside", "--to", "shop/web:http/udp", "-f", "-"],
      EXAMPLES,
      /has no port "http\/udp", but http\/tcp\n/,
    ],
    [
      "a Service that is pinged",
      ["--from", "outside", "--to", "shop/web/icmp", "-f", "-"],
      EXAMPLES,
      /has no port "icmp", but http\/tcp\n/,
    ],
    [
      "a misspelt Service",
      ["--from", "outside", "--to", "shop/wbe", "-f", "-"],
      EXAMPLES,
      /there is no Service or pod "shop\/wbe" among the objects\nDid you mean shop\/web\?/,
    ],
    ["both ends without flags", ["pod", "shop/web"], "", /\nDid you mean --to shop\/web --from pod\? Otherwise see/],
    ["a Service and its client", ["shop/web", "node"], "", /\nDid you mean --to shop\/web --from node\? Otherwise see/],
    ["a client alone", ["outside"], "", /got "outside"\nDid you mean --from outside\? Otherwise see/],
    ["its client's flag alone", ["shop/web", "--from", "node"], "", /\nDid you mean --to shop\/web\? Otherwise see/],
    ["a client without a flag", ["shop/a", "--to", "shop/web"], "", /\nDid you mean --from shop\/a\? Otherwise see/],
    [
      "a word too much",
      [...PACKET, "shop/web"],
      "",
      /takes flags only, got "shop\/web"\nSee 'kube-proxy trace --help'/,
    ],
    ["no packet", ["--dump", "-"], whole, /trace needs to know where the packet goes: --to ADDRESS:PORT, or a Service/],
    [
      "two kinds of rules",
      [...PACKET, "-f", "-", "--dump", "-"],
      whole,
      /walks either the plan for manifests \(-f\) or dumps/,
    ],
    [
      "a port that is none",
      ["--from", "10.0.0.1", "--to", "10.96.1.1:80000", "--dump", "-"],
      whole,
      /a port is a number from 1 to 65535/,
    ],
    [
      "no port",
      ["--from", "10.0.0.1", "--to", "fd00::1", "--dump", "-"],
      whole,
      /--to needs a port, as in \[fd00::1\]:80\/tcp/,
    ],
    [
      "an unknown protocol",
      ["--from", "10.0.0.1", "--to", "10.96.1.1:80/tcpp", "--dump", "-"],
      whole,
      /Did you mean tcp\?/,
    ],
    ["an unknown client", ["--from", "nodde", "--to", "10.96.1.1:80", "--dump", "-"], whole, /Did you mean node\?/],
    [
      "families mixed",
      ["--from", "fd00::9", "--to", "10.96.1.1:80", "--dump", "-"],
      whole,
      /are of different families/,
    ],
    [
      "iptables cut",
      [...PACKET, "--dump", "-"],
      whole.slice(0, whole.lastIndexOf("COMMIT")),
      /is cut: the table nat does not end with COMMIT/,
    ],
    ["nft cut", [...PACKET, "--dump", "-"], json.slice(0, 2000), /standard input is cut, or no JSON/],
    [
      "of another tool",
      [...PACKET, "--dump", "-"],
      "Chain INPUT (policy ACCEPT)\n",
      /is not what iptables-save, .* prints: it begins with "Chain INPUT/,
    ],
    ["an unknown flag", [...PACKET, "--dmp", "-"], whole, /Did you mean --dump\?/],
    [
      "a port for a protocol that has none",
      ["--from", "10.0.0.9", "--to", "10.96.0.10:80/icmp", "--dump", "-"],
      whole,
      /^Error: --to: icmp has no ports, got "10\.96\.0\.10:80\/icmp"\nLeave the port out: 10\.96\.0\.10\/icmp$/m,
    ],
    ["a state that is none", [...PACKET, "--dump", "-", "--state", "fresh"], whole, /--state must be new, established/],
  ];
  for (const [name, argv, stdin, expected] of cases) {
    test(name, async () => {
      const { status, out, err } = await run(argv, stdin);
      assert.equal(status, 2);
      assert.equal(out, "");
      assert.match(err, expected);
    });
  }
});

test("beside what others put on every node, the answer has at most 20 lines", async () => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-trace-worlds-"));
  after(() => rmSync(folder, { recursive: true }));
  const saved = caseFile("v1.37/random-003", "iptables/iptables.txt");
  const [, address, port] = /-d (10\.96\S+)\/32 -p tcp .*--dport (\d+) -j KUBE-SVC/.exec(saved) ?? [];
  for (const [label, world] of Object.entries(WORLDS)) {
    const texts = inWorld(saved, { ...world, nft: "" }, true).map((dump) =>
      dump.kind === "iptables" ? dump.text : "",
    );
    const files = [texts.join(""), world.nft?.trimStart() ?? ""].flatMap((text, at) => {
      const path = join(folder, `${at}.txt`);
      writeFileSync(path, text);
      return text === "" ? [] : ["--dump", path];
    });
    for (const from of [["outside"], ["10.180.0.9", "--in", "cni0"], ["node"]]) {
      const argv = [...files, "--local", "10.200.0.2", "--to", `${address}:${port}`, "--from", ...from];
      const { status, out, err } = await runCommand(trace, argv);
      assert.equal(status, 0, err);
      assert.match(out, /^What becomes of it:$/m);
      const lines = out.split("\n").length - 1;
      assert.ok(lines <= 20, `${label}, from ${from[0]}: ${lines} lines`);
    }
  }
});
