/** `kube-proxy prove`: plans and dumps against Services, two dumps, and unusable input. */
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { proveCommand } from "../../src/tools/cli/prove.ts";
import { render } from "../../src/tools/cli/render.ts";
import { DROPPED, type Fate, isSameFate, RANGE_UNKNOWN, UNTOUCHED } from "../../src/tools/prove/fate.ts";
import { caseFile, caseState, SERVICE_CIDR_OBJECT } from "../conformance/conformance-case.ts";
import { examplesAsJson, runCommand } from "./run-command.ts";
import { runKubeProxy } from "./run-kube-proxy.ts";

const EXAMPLES = examplesAsJson();
const directory = mkdtempSync(join(tmpdir(), "kpts-prove-"));
after(() => rmSync(directory, { recursive: true }));

const prove = (...argv: string[]) => runCommand(proveCommand, argv, EXAMPLES);
const onNode = (...argv: string[]) => prove("-f", "-", "--node", "node-a", ...argv);

async function saved(family = "ipv4", mode = "iptables", form = "iptables-save"): Promise<string> {
  const argv = ["-f", "-", "--hostname-override", "node-a", "--mode", mode, "--family", family, "-o", form];
  const { status, out, err } = await runCommand(render, argv, EXAMPLES);
  assert.equal(status, 0, err);
  return out;
}

function file(name: string, content: string): string {
  const path = join(directory, name);
  writeFileSync(path, content);
  return path;
}

test("every mode does what the examples ask for, in both families", async () => {
  const { status, out, err } = await onNode();
  assert.equal(err, "");
  assert.equal(status, 0, out);
  assert.match(
    out,
    /^iptables \(node-a, IPv4\): the rules treat every packet as the Services ask \(\d+ classes of packets, \d+\.\d s\)$/m,
  );
  assert.match(out, /^flat \(node-a, IPv6\): the rules treat every packet as the Services ask \(/m);
});

test("without Nodes, the error says what to give", async () => {
  const items = JSON.parse(EXAMPLES).items.filter(({ kind }: { kind: string }) => kind !== "Node");
  const { status, err } = await runCommand(
    proveCommand,
    ["-f", "-"],
    JSON.stringify({ apiVersion: "v1", kind: "List", items }),
  );
  assert.equal(status, 2);
  assert.match(
    err,
    /\nError: A proof needs the node's addresses, and no Node is among the objects: give its Node with -f\n$/i,
  );
});

test("an object that cannot be used, among good ones: this is said, and nothing is called equal", async () => {
  const { items } = JSON.parse(EXAMPLES);
  const broken = {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name: "web", namespace: "other" },
    spec: { ports: [{ port: 0 }] },
  };
  const objects = JSON.stringify({ apiVersion: "v1", kind: "List", items: [...items, broken] });
  const argv = ["-f", "-", "--node", "node-a", "--family", "ipv4", "--modes", "iptables"];
  const { status, out, err } = await runCommand(proveCommand, argv, objects);
  assert.equal(status, 2, out);
  assert.match(err, /error: .*Service other\/web: items\[34\]\.spec\.ports\[0\]\.port/);
  assert.match(
    out,
    /: cannot be proved: an object cannot be used \(its error is above\), and .*\n {2}Everything else is equal: \d+ classes of packets\./,
  );
});

test("all nodes, as data", async () => {
  const { status, out } = await prove(
    "-f",
    "-",
    "--all-nodes",
    "--modes",
    "nftables",
    "--family",
    "ipv4",
    "-o",
    "json",
  );
  assert.equal(status, 0);
  const answers: readonly { node: string; result: string }[] = JSON.parse(out);
  assert.deepEqual(
    answers.map(({ node, result }) => `${node} ${result}`),
    ["node-a equal", "node-b equal"],
  );
});

describe("a dump", () => {
  test("that is as the Services ask for", async () => {
    const path = file("same.txt", await saved());
    const { status, out } = await onNode("--family", "ipv4", "--dump", path, "--as", "iptables");
    assert.equal(status, 0, out);
  });

  test("of which one rule leads elsewhere: the packet, both fates, and the way", async () => {
    const path = file(
      "moved.txt",
      (await saved()).replace("--to-destination 10.180.1.11:8080", "--to-destination 10.180.1.99:8080"),
    );
    const { status, out } = await onNode("--family", "ipv4", "--dump", path);
    assert.equal(status, 1);
    assert.match(out, /the rules do NOT treat every packet as the Services ask: \d+ of \d+ classes of packets differ/);
    assert.match(out, /specification: .*10\.180\.1\.11:8080/);
    assert.match(out, /10\.180\.1\.99:8080/);
    assert.match(out, /shop\/\S+, .*TrafficPolicy Cluster, ready endpoints: \d of \d/);
    assert.match(
      out,
      /clients notice: no client reaches 10\.180\.1\.11:8080; some clients reach 10\.180\.1\.99:8080, and none should/,
    );
    assert.match(out, /What becomes of it:/);
  });

  test("with a rule of another program that is not understood", async () => {
    const text = (await saved()).replace("\n-A INPUT", "\n-A INPUT -m u32 --u32 0x0 -j ACCEPT\n-A INPUT");
    const { status, out } = await onNode("--family", "ipv4", "--dump", file("u32.txt", text));
    assert.equal(status, 2);
    assert.match(out, /cannot be proved: .*u32/);
  });

  test("beside kubelet's guard of loopback addresses: the proxy's part is equal, and what kubelet drops is said", async () => {
    const guard =
      "*filter\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:KUBE-FIREWALL - [0:0]\n-A INPUT -j KUBE-FIREWALL\n-A OUTPUT -j KUBE-FIREWALL\n" +
      "-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP\nCOMMIT\n";
    const dumps = [file("plan.json", await saved("ipv4", "nftables", "json")), file("kubelet.txt", guard)];
    const argv = ["--family", "ipv4", ...dumps.flatMap((path) => ["--dump", path])];
    const { status, out } = await onNode(...argv);
    assert.equal(status, 0, out);
    assert.match(
      out,
      /the rules treat every packet as the Services ask .*\n {2}What the rest of the node changes \(classes: \d+; --whole-node\)/,
    );
    assert.match(out, / to 127\.\S+: dropped by kubelet, not by the proxy: iptables -t filter KUBE-FIREWALL rule 1: /);
    const whole = await onNode(...argv, "--whole-node");
    assert.equal(whole.status, 1, whole.out);
    const [{ result, ofOtherPrograms }] = JSON.parse((await onNode(...argv, "-o", "json")).out);
    assert.equal(result, "equal");
    assert.match(ofOtherPrograms.examples[0].by, /KUBE-FIREWALL/);
  });

  test("beside a rule for long datagrams alone: nothing is open, and the packet is shown with its length", async () => {
    const stranger = [
      "table ip f {",
      "chain c {",
      "type filter hook forward priority 1;",
      "udp length >= 3000 drop",
      "tcp flags & (fin | syn | rst | ack) != syn drop",
      "}",
      "}",
    ].join("\n");
    const dumps = [file("plan.json", await saved("ipv4", "nftables", "json")), file("long.txt", stranger)];
    const { status, out } = await onNode("--family", "ipv4", ...dumps.flatMap((path) => ["--dump", path]));
    assert.equal(status, 1, out);
    assert.doesNotMatch(out, /Not proved/);
    assert.match(out, /^ {2}udp from .*, of length \d{4,5}\n(?:.*\n)?.*dropped/m);
    assert.doesNotMatch(out, /^ {2}tcp from /m);
  });

  test("beside a translation without a port: no class for each port that it keeps", async () => {
    const stranger = [
      "table ip f {\n\tchain c {\n\t\ttype nat hook prerouting priority -110; policy accept;",
      "\t\tip daddr != 10.96.0.0/16 dnat to 10.180.0.99\n\t}\n}\n",
    ].join("\n");
    const dumps = [file("plan.json", await saved("ipv4", "nftables", "json")), file("whole.txt", stranger)];
    const { status, out } = await onNode(
      "--family",
      "ipv4",
      ...dumps.flatMap((path) => ["--dump", path]),
      "-o",
      "json",
    );
    assert.equal(status, 1, out);
    const [{ classes, because }] = JSON.parse(out);
    assert.equal(because, null);
    assert.ok(classes < 2_000, `${classes} classes`);
  });

  test("in JSON without nft's version: a table's flags are not believed", async () => {
    const plan = file("plan.json", await saved("ipv4", "nftables", "json"));
    const table = { family: "ip", table: "f", name: "c", type: "filter", hook: "forward", prio: 0, policy: "drop" };
    const stated = async (...heads: object[]) => {
      const objects = [...heads, { table: { family: "ip", name: "f", flags: "dormant" } }, { chain: table }];
      return await onNode(
        "--family",
        "ipv4",
        "--dump",
        plan,
        "--dump",
        file("f.json", JSON.stringify({ nftables: objects })),
      );
    };
    assert.equal((await stated({ metainfo: { version: "1.1.3" } })).status, 0);
    for (const heads of [[], [{ metainfo: { version: "1.0.6" } }]]) {
      const { status, out } = await stated(...heads);
      assert.equal(status, 2, out);
      assert.match(
        out,
        /the table ip f is awake \(nft before 1\.1\.3 prints its flags wrongly in JSON: nft list ruleset has them\)/,
      );
    }
  });

  test("that differs before a rule is met that is not understood", async () => {
    const text = (await saved())
      .replace("--to-destination 10.180.1.11:8080", "--to-destination 10.180.1.99:8080")
      .replace("\n-A FORWARD", "\n-A FORWARD -m u32 --u32 0x0 -j ACCEPT\n-A FORWARD");
    const argv = ["--family", "ipv4", "--dump", file("differs.txt", text)];
    const { status, out } = await onNode(...argv);
    assert.equal(status, 1, out);
    assert.match(
      out,
      /do NOT treat every packet as the Services ask: .*\n {2}Not proved: .*u32.*\n {2}such as .*\n {2}The others were compared: /,
    );
    assert.match(out, /clients notice: no client reaches 10\.180\.1\.11:8080/);
    const [{ result, because }] = JSON.parse((await onNode(...argv, "-o", "json")).out);
    assert.equal(result, "different");
    assert.match(because, /u32/);
  });

  test("of a sysdump, with the addresses that the machine has beside those of its Node object", async () => {
    const own = "addr add 127.0.0.1/8 dev lo\naddr add 10.200.0.2/24 dev eth0\n";
    for (const [mode, forms, addresses] of [
      ["iptables", ["iptables-save"], `${own}addr add 172.17.0.1/16 dev docker0\n`],
      ["ipvs", ["iptables-save", "ipset", "ipvsadm"], own + (await saved("ipv4", "ipvs", "ip"))],
    ] as const) {
      const folder = join(directory, `sysdump-${mode}`);
      mkdirSync(join(folder, "rules"), { recursive: true });
      const write = (name: string, text: string) => writeFileSync(join(folder, "rules", `${name}.txt`), text);
      for (const form of forms) write(form, await saved("ipv4", mode, form));
      write("addresses", addresses);
      const { status, out } = await onNode("--family", "ipv4", "--dump", folder);
      assert.equal(status, 0, out);
    }
  });

  test("of a sysdump for which a tool failed: what it did not read is named", async () => {
    const folder = join(directory, "sysdump-unread");
    mkdirSync(join(folder, "rules"), { recursive: true });
    writeFileSync(join(folder, "rules", "iptables-save.txt"), await saved());
    const argv = ["--family", "ipv4", "--dump", folder];
    const notRead = (name: string) => {
      const index = { notRead: [{ name, why: "it ended with status 1" }] };
      writeFileSync(join(folder, "index.json"), JSON.stringify(index));
    };
    notRead("network/addresses.json");
    assert.equal((await onNode(...argv)).status, 0);
    for (const name of ["rules/nft.json", "rules/iptables-legacy-save.txt"]) {
      notRead(name);
      const { status, out } = await onNode(...argv);
      assert.equal(status, 2, out);
      assert.match(
        out,
        new RegExp(`not all rules are known: ${name} is not in the sysdump \\(it ended with status 1\\)`),
      );
    }
  });

  test("of upstream, without the ServiceCIDR: what is missing is said, the rest is proved, and strangers are found", async () => {
    const { services, slices, node } = caseState("v1.37/cluster-ip");
    const list = (...more: object[]) =>
      JSON.stringify({ kind: "List", apiVersion: "v1", items: [...services, ...slices, node, ...more] });
    const settings = { apiVersion: "kubeproxy.config.k8s.io/v1alpha1", kind: "KubeProxyConfiguration" };
    const config = file(
      "upstream.yaml",
      JSON.stringify({ ...settings, ...JSON.parse(caseFile("v1.37/cluster-ip", "nftables/config.yaml")) }),
    );
    const path = file("upstream.json", caseFile("v1.37/cluster-ip", "nftables/nft.json"));
    const asked = (objects: string, ...more: string[]) =>
      runCommand(
        proveCommand,
        ["-f", "-", "--node", "node-a", "--family", "ipv4", "--config", config, "--dump", path, ...more],
        objects,
      );
    const without = await asked(list());
    assert.equal(without.status, 2, without.out);
    assert.match(
      without.out,
      /cannot be proved: no ServiceCIDR is among the objects \(kubectl get servicecidrs\).*\n {2}such as .* to 10\.96\..*\n {2}Everything else is equal/,
    );
    const whole = await asked(list(SERVICE_CIDR_OBJECT));
    assert.equal(whole.status, 0, whole.out);
    const stranger = file(
      "stranger.nft",
      "table ip f {\n\tchain c {\n\t\ttype filter hook forward priority filter; policy accept;\n\t\tip daddr 198.51.100.0/24 drop\n\t}\n}\n",
    );
    const beside = await asked(list(), "--dump", stranger);
    assert.equal(beside.status, 1, beside.out);
    assert.match(beside.out, /to 198\.51\.100\.\d+/);
    // Rules that leave unused cluster IPs alone.
    const plain = await onNode(
      "--family",
      "ipv4",
      "--dump",
      file("plain.json", await saved("ipv4", "nftables", "json")),
    );
    assert.equal(plain.status, 0, plain.out);
    assert.match(plain.err, /no ServiceCIDR is among the objects/);
  });

  test("without the EndpointSlices or Services: says so, and compares nothing", async () => {
    const { services, slices, node } = caseState("v1.37/cluster-ip");
    for (const [items, missing] of [
      [[...services, node], "EndpointSlice"],
      [[...slices, node], "Service"],
    ] as const) {
      const objects = JSON.stringify({ kind: "List", apiVersion: "v1", items });
      const { status, err } = await runCommand(
        proveCommand,
        ["-f", "-", "--node", "node-a", "--dump", file("rules.txt", await saved())],
        objects,
      );
      assert.equal(status, 2);
      assert.match(err, new RegExp(`there is no ${missing} among the objects.*\nGive what kubectl get services,`));
    }
  });

  test("given twice, of two nodes: named, and nothing is said of packets", async () => {
    const twice = (...texts: string[]) => texts.flatMap((text, at) => ["--dump", file(`twice-${at}.txt`, text)]);
    const rules = await saved();
    const table = await saved("ipv4", "nftables", "text");
    const ipvs = await Promise.all(["iptables-save", "ipset", "ipvsadm"].map((form) => saved("ipv4", "ipvs", form)));
    for (const [texts, named] of [
      [[rules, rules.replace(":8080", ":8081")], /the table \w+ of iptables .*is given twice/],
      [[table, table.replace(":8080", ":8081")], /the table ip kube-proxy is given twice/],
      [[...ipvs, ipvs[1] ?? ""], /the IP set KUBE-\S+ is given twice/],
      [[...ipvs, ipvs[2] ?? ""], /what ipvsadm prints is given twice/],
    ] as const) {
      const { status, out } = await onNode("--family", "ipv4", ...twice(...texts));
      assert.equal(status, 2, out);
      assert.match(out, named);
    }
  });

  test("of ipvs mode without its IP sets: they are named, with what to give", async () => {
    const texts = await Promise.all(["iptables-save", "ipvsadm"].map((form) => saved("ipv4", "ipvs", form)));
    const paths = texts.flatMap((text, at) => ["--dump", file(`sets-${at}.txt`, text)]);
    const { status, out } = await onNode("--family", "ipv4", ...paths);
    assert.equal(status, 2, out);
    assert.match(out, /cannot be proved: the IP set KUBE-\S+ is not in the dump \(give what ipset save prints, too\)/);
  });

  test("of nft that is cut: no difference is claimed of what is missing", async () => {
    const text = await saved("ipv4", "nftables", "text");
    for (let part = 1; part < 12; part += 1) {
      const cut = text.slice(0, Math.floor((text.length * part) / 12));
      const { status, out } = await onNode("--family", "ipv4", "--as", "nftables", "--dump", file("cut.nft", cut));
      assert.equal(status, 2, out);
      assert.match(out, /cannot be proved: not all rules are known: line \d+/);
    }
  });

  test("that is cut", async () => {
    const text = await saved();
    const { status, err } = await onNode("--dump", file("cut.txt", text.slice(0, text.length / 2)), "--family", "ipv4");
    assert.equal(status, 2);
    assert.match(err, /cut/);
  });

  test("that shows no mode: it is judged by the configuration's", async () => {
    const dump = file("none.txt", "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n");
    const head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration";
    const asked = async (mode: string) => {
      const config = file(`${mode}.yaml`, `${head}\nmode: ${mode}\n`);
      const argv = ["-f", "-", "--node", "node-a", "--family", "ipv4", "--dump", dump, "--config", config];
      const { status, err } = await runCommand(proveCommand, argv, examplesAsJson());
      assert.equal(status, 1);
      return /no ServiceCIDR is among the objects/.test(err);
    };
    assert.equal(await asked("nftables"), true, "drops what goes to unused cluster IPs");
    assert.equal(await asked("iptables"), false);
  });

  test("of one family, for both: the other is said to be left out, and the mode is told by the rules", async () => {
    const { status, out, err } = await onNode("--dump", file("one-family.txt", await saved()));
    assert.equal(status, 0, out);
    assert.equal(out.match(/the rules treat every packet as the Services ask/g)?.length, 1);
    assert.match(err, /no rules of IPv6 were given/);
  });

  test("on standard input, of both families", async () => {
    const argv = ["-f", file("cluster.json", EXAMPLES), "--node", "node-a", "--dump", "-"];
    const { status, out } = await runCommand(proveCommand, argv, (await saved()) + (await saved("ipv6")));
    assert.equal(status, 0, out);
    assert.match(out, /\(node-a, IPv4\): the rules treat[\s\S]*\(node-a, IPv6\): the rules treat/);
  });

  for (const mode of ["ipvs", "userspace", "nftables"]) {
    test(`of ${mode} mode, which it shows itself`, async () => {
      const forms = { ipvs: ["iptables-save", "ipset", "ipvsadm"], userspace: ["iptables-save"], nftables: ["json"] }[
        mode
      ];
      const paths: string[] = [];
      for (const form of forms ?? [])
        paths.push("--dump", file(`${mode}-${form}.txt`, await saved("ipv4", mode, form)));
      const { out, err } = await onNode("--family", "ipv4", ...paths);
      if (mode === "userspace") assert.match(err, /rules of userspace mode send packets to the proxy itself/);
      else assert.match(out, /: the rules treat every packet as the Services ask/);
    });
  }

  test("of Windows cannot be proved", async () => {
    const path = file("hns.txt", await saved("ipv4", "kernelspace", "text"));
    const { status, out } = await onNode("--family", "ipv4", "--dump", path);
    assert.equal(status, 2);
    assert.match(out, /cannot be proved: on Windows, HNS has load balancers and no rules/);
  });

  test("beside another dump", async () => {
    const text = await saved();
    const one = file("one.txt", text);
    const local = ["--local", "10.200.0.2", "--local", "127.0.0.1"];
    assert.equal((await prove("--dump", one, "--against", one, ...local)).status, 0);
    const other = file("other.txt", text.replace(/^-A KUBE-SERVICES .*--dport 53 .*$/m, ""));
    const { status, out } = await prove("--dump", one, "--against", other, ...local);
    assert.equal(status, 1);
    assert.match(out, /:53/);
  });
});

test("what the specification leaves open is the same whichever side it is", () => {
  const [open, plain] = [RANGE_UNKNOWN, UNTOUCHED].map((way): Fate => new Map([[way, 1]]));
  assert.ok(open && plain && isSameFate(open, plain) && isSameFate(plain, open));
  assert.ok(!isSameFate(open, new Map([[DROPPED, 1]])));
});

test("what modes do otherwise is listed", async () => {
  const { status, out } = await prove("--differences", "--modes", "iptables");
  assert.equal(status, 0);
  assert.match(out, /^iptables:\n {2}loopback-node-ports: node ports answer on IPv4 loopback/);
});

describe("input that cannot be used", () => {
  const cases: readonly (readonly [argv: readonly string[], error: RegExp])[] = [
    [["-f", "-", "--node", "node-x"], /there is no Node "node-x"\nDid you mean node-a\?/],
    [
      ["-f", "-", "--node", "node-a", "--modes", "iptable"],
      /"iptable" is not one of the modes.*\nDid you mean iptables\?/,
    ],
    [["--dump", file("some.txt", "*nat\nCOMMIT\n")], /nothing says what the rules must do/],
    [["--dump", "x", "--against", "y"], /give them with --local/],
    [["--dump", "x", "--against", "y", "--local", "node"], /--local must be an IP address, got "node"/],
    [["--against", "y"], /--against needs --dump/],
    [["-f", "-", "--kernel", "--dump", "x"], /exclude each other/],
    [["-f", "-", "--node", "node-a", "--dump", "/nowhere"], /cannot read the dump in \/nowhere/],
    [["-f", "-", "--dump", "-"], /standard input can be read only once/],
    [["-f", "-", "--as", "ipvs"], /--as is for rules of --dump or --kernel/],
    [["-f", "-", "-o", "yaml"], /--output must be text or json, got "yaml"/],
  ];
  for (const [argv, error] of cases) {
    test(argv.join(" "), async () => {
      const { status, err } = await prove(...argv);
      assert.equal(status, 2);
      assert.match(err, error);
    });
  }
});

test("too little memory is said, with how far it came, before V8 ends the process", async () => {
  const items: object[] = [
    {
      ...{ apiVersion: "v1", kind: "Node", metadata: { name: "node-a" } },
      status: { addresses: [{ type: "InternalIP", address: "192.168.1.2" }] },
    },
  ];
  for (let number = 0; number < 1_500; number += 1) {
    const clusterIP = `10.96.${Math.floor(number / 250)}.${(number % 250) + 1}`;
    const labels = { "kubernetes.io/service-name": `s-${number}` };
    items.push(
      {
        ...{ apiVersion: "v1", kind: "Service", metadata: { name: `s-${number}`, namespace: "ns" } },
        spec: { clusterIP, clusterIPs: [clusterIP], ports: [{ port: 80, protocol: "TCP" }] },
      },
      {
        ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType: "IPv4", ports: [{ port: 80 }] },
        metadata: { name: `s-${number}-x`, namespace: "ns", labels },
        endpoints: [1, 2, 3, 4, 5].map((last) => ({ addresses: [`10.180.${number % 250}.${last}`] })),
      },
    );
  }
  const list = file("many.json", JSON.stringify({ apiVersion: "v1", kind: "List", items }));
  const { status, stdout, stderr } = await runKubeProxy(
    ["prove", "-f", list, "--node", "node-a", "--family", "ipv4", "--modes", "nftables"],
    { env: { NODE_OPTIONS: "--max-old-space-size=64" } },
  );
  assert.match(
    `${stdout}${stderr}`,
    /cannot be proved: it needs more memory than \d+ MB: it came through \d+ classes of packets, to \d+ Services/,
  );
  assert.equal(status, 2);
});

test("so many rules of another program that one packet's way needs too much memory: that is said, too", async () => {
  const rules = Array.from(
    { length: 6_000 },
    (_, at) => `ip saddr 10.9.${at >> 8}.${at & 255} tcp dport ${at + 1} drop`,
  );
  const chain = `chain c {\n type filter hook forward priority 0; policy accept;\n${rules.join("\n")}\n}`;
  const dump = file("strangers.txt", `table ip f {\n${chain}\n}\n`);
  const list = file("examples.json", examplesAsJson());
  const { status, stdout, stderr } = await runKubeProxy(
    ["prove", "-f", list, "--node", "node-a", "--family", "ipv4", "--dump", dump],
    { env: { NODE_OPTIONS: "--max-old-space-size=128" } },
  );
  assert.match(`${stdout}${stderr}`, /it needs more memory than \d+ MB: it came through \d+ classes of packets/);
  assert.ok(status === 1 || status === 2, `${status}`);
});
