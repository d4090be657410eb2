/** `diff`: what a change of manifests does, and dumps, ours and upstream's, against the wanted rules. */
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { Readable } from "node:stream";
import { type TestContext, test } from "node:test";
import { diff } from "../../src/tools/cli/diff.ts";
import { explain } from "../../src/tools/cli/explain.ts";
import { proveCommand } from "../../src/tools/cli/prove.ts";
import { render } from "../../src/tools/cli/render.ts";
import { trace } from "../../src/tools/cli/trace.ts";
import { caseFile, caseNames, caseState, SERVICE_CIDR_OBJECT } from "../conformance/conformance-case.ts";
import { examplesAsJson, type Ran, runCommand } from "./run-command.ts";

const EXAMPLES = examplesAsJson();
const NODE_A = ["--node", "node-a", "--family", "ipv4"];

const run = (args: readonly string[], input = EXAMPLES): Promise<Ran> => runCommand(diff, args, input);

/** Files with these contents; removed after the test. */
function filesOf(t: TestContext, ...contents: readonly string[]): string[] {
  const folder = mkdtempSync(join(tmpdir(), "kpts-diff-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return contents.map((content, index) => {
    const file = join(folder, `${index}.json`);
    writeFileSync(file, content);
    return file;
  });
}

async function rendered(mode: string, form: string): Promise<string> {
  const args = ["-f", "-", "--hostname-override", "node-a", "--family", "ipv4", "--mode", mode, "-o", form];
  const { status, out } = await runCommand(render, args, EXAMPLES);
  assert.equal(status, 0);
  return out.replaceAll(/^#.*\n/gm, "");
}

test("a dump that is not there is named, not the objects that a sysdump would have had", async () => {
  for (const command of [diff, proveCommand]) {
    const { status, err } = await runCommand(command, ["--dump", "/nowhere/sysdump.tgz"]);
    assert.equal(status, 2);
    assert.match(err, /^Error: cannot read the dump in \/nowhere\/sysdump\.tgz: there is no such file or folder\n$/i);
  }
});

test("every command names what does not count in the configuration that it is given", async (t) => {
  const config =
    "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nnftables: {layot: Flat}\n";
  const [file = "", old = ""] = filesOf(t, config, EXAMPLES);
  const said = `warning: ${file} is read leniently: strict decoding error: unknown field "nftables.layot"\n`;
  const from = ["-f", "-", ...NODE_A];
  const asked: readonly (readonly [typeof diff, readonly string[]])[] = [
    [explain, ["shop/web", ...from]],
    [render, from],
    [trace, ["--from", "pod", "--to", "shop/web", "-f", "-", "--node", "node-a"]],
    [proveCommand, ["--modes", "nftables", ...from]],
    [diff, [old, old]],
    [diff, ["--dump", filesOf(t, await rendered("iptables", "iptables-save"))[0] ?? "", ...from]],
  ];
  for (const [command, argv] of asked) {
    const { status, err } = await runCommand(command, [...argv, "--config", file], EXAMPLES);
    assert.equal(status, 0, err);
    assert.equal(err.split(said).length, 2, err);
  }
});

test("that nothing changes is not said for sure while a document cannot be used", async (t) => {
  const objects = JSON.parse(EXAMPLES);
  objects.items.push({
    apiVersion: "v1",
    kind: "Service",
    metadata: { namespace: "a", name: "bad" },
    spec: { ports: 1 },
  });
  const [old = "", current = ""] = filesOf(t, EXAMPLES, JSON.stringify(objects));
  for (const sides of [
    [old, current],
    [current, old],
  ]) {
    const { status, out, err } = await run([...sides, "--mode", "nftables"]);
    assert.equal(status, 2);
    assert.match(out, /^Nothing changes, for clients and in the rules, as far as the documents can be used\.$/m);
    assert.match(err, /^error: .*Service a\/bad/m);
  }
  assert.equal((await run([old, old, "--mode", "nftables"])).status, 0);
});

test("a change of manifests, in words: who is no longer answered, on which nodes", async (t) => {
  const changed = EXAMPLES.replaceAll(
    /(\{"addresses":\["10\.180\.1\.11"\],"nodeName":"node-b","conditions":\{"ready":)true/g,
    "$1false",
  );
  const [old = "", current = ""] = filesOf(t, EXAMPLES, changed);
  const { status, out, err } = await run([old, current, "--mode", "nftables"]);
  assert.deepEqual({ status, err }, { status: 1, err: "" });
  assert.match(
    out,
    /shop\/storefront:https TCP\n(?: .*\n)* {2}on node-b, IPv4: from another node, clients outside: no longer answers at load balancer 203\.0\.113\.30:443: dropped: the policy is Local/,
  );
  assert.match(out, / {2}on node-a, node-b, IPv4: endpoint 10\.180\.1\.11:8443 is now left out: not ready\n/);
  assert.match(out, /rules of node-b: \d+ lines more, \d+ fewer/);
  const { out: rules } = await run([old, current, "--mode", "nftables", "--rules", ...NODE_A]);
  assert.match(
    rules,
    /chain service-XUFH7HGN-\S+ in ip kube-proxy \(shop\/storefront:https\) changes\n {2}- .*\n {2}\+ /,
  );
  const data = JSON.parse((await run([old, current, "-o", "json", ...NODE_A])).out);
  assert.deepEqual(
    data.nodes.map(({ node }: { node: string }) => node),
    ["node-a"],
  );
});

test("a Service that comes, goes, or takes another's address; and nothing at all", async (t) => {
  const without = JSON.parse(EXAMPLES);
  without.items = without.items.filter(({ metadata }: { metadata: { name: string } }) => metadata.name !== "admin");
  const [old = "", current = ""] = filesOf(t, EXAMPLES, JSON.stringify(without));
  assert.match(
    (await run([old, current, ...NODE_A])).out,
    /shop\/admin:http TCP\n {2}on node-a, IPv4: is gone from cluster IP 10\.96\.0\.31:80/,
  );
  assert.match((await run([current, old, ...NODE_A])).out, /is new, at cluster IP 10\.96\.0\.31:80/);
  const same = await run([old, old]);
  assert.deepEqual(same, {
    status: 0,
    out: "In iptables mode (assumed; pods: the Nodes' podCIDRs):\nNothing changes, for clients and in the rules.\n",
    err: "",
  });
});

const DUMPS = [
  { mode: "iptables", form: "iptables-save" },
  { mode: "nftables", form: "text" },
  { mode: "ipvs", form: "ipset" },
  { mode: "ipvs", form: "ipvsadm" },
] as const;

for (const { mode, form } of DUMPS) {
  test(`what render prints is no difference, and each line of a service that is missing is named with it: ${mode} ${form}`, async (t) => {
    const dump = await rendered(mode, form);
    const compare = async (text: string) => {
      const [file = ""] = filesOf(t, text);
      return await run(["-f", "-", ...NODE_A, "--mode", mode, "--dump", file]);
    };
    assert.deepEqual(await compare(dump), { status: 0, out: "No differences.\n", err: "" });
    assert.equal((await compare(dump.replaceAll("\n", "\r\n"))).out, "No differences.\n");
    const lines = dump.split("\n");
    const ofCart = lines.filter((line) =>
      /^-[Aa] .*(?:shop\/cart|:30050 -[sr])|^add .*10\.96\.0\.50|^\s.*(?:goto|tcp \. 30050).*shop\/cart/.test(line),
    );
    assert.ok(ofCart.length > 0, "lines of the Service are found");
    for (const line of ofCart.slice(0, 4)) {
      if (line.startsWith("-A ") && mode === "ipvs") continue;
      const { status, out } = await compare(lines.filter((other) => other !== line).join("\n"));
      assert.equal(status, 1, line);
      assert.match(out, /\(shop\/cart:http\)/, line);
    }
  });
}

test("addresses of Services on the ipvs mode's device are none at which node ports answer", async (t) => {
  const [first = ""] = filesOf(t, "");
  const rules = join(dirname(first), "rules");
  mkdirSync(rules);
  for (const form of ["iptables-save", "ipset", "ipvsadm"])
    writeFileSync(join(rules, `${form}.txt`), await rendered("ipvs", form));
  const services = (await rendered("ipvs", "ip")).replace(/^link .*\n/m, "");
  assert.match(services, /^addr add 10\.96\.0\.10\/32 dev kube-ipvs0$/m);
  const own = "addr add 127.0.0.1/8 dev lo\naddr add 10.200.0.2/24 dev eth0\n";
  writeFileSync(join(rules, "addresses.txt"), own + services);
  const { status, out } = await run(["-f", "-", ...NODE_A, "--mode", "ipvs", "--dump", dirname(first)]);
  assert.deepEqual({ status, out }, { status: 0, out: "No differences.\n" });
});

test("virtual servers of other programs are no difference: those in excludeCIDRs, and those of marks", async (t) => {
  const dump = await rendered("ipvs", "ipvsadm");
  const foreign = "-A -t 198.51.100.77:443 -s wlc\n-a -t 198.51.100.77:443 -r 10.9.9.9:443 -g -w 1\n";
  const ofMark = "-A -f 7 -s wlc -p 300\n-a -f 7 -r 10.9.9.9:0 -g -w 1\n";
  const [file = "", ...configs] = filesOf(
    t,
    dump + foreign + ofMark,
    ...["[198.51.100.5/24]", "[]"].map(
      (excluded) =>
        `apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: ipvs\nipvs: {excludeCIDRs: ${excluded}}\n`,
    ),
  );
  const [excluding, ordinary] = await Promise.all(
    configs.map((config) => run(["-f", "-", ...NODE_A, "--config", config, "--dump", file])),
  );
  assert.deepEqual([excluding?.out, excluding?.status], ["No differences.\n", 0]);
  assert.match(ordinary?.out ?? "", /^virtual server 198\.51\.100\.77:443\/TCP in ipvs is there, and should not be$/m);
});

test("upstream's own dumps have no difference to what is wanted", async (t) => {
  for (const name of caseNames()) {
    const { node, services, slices } = caseState(name);
    const items = [node, ...services, ...slices, SERVICE_CIDR_OBJECT];
    const manifests = JSON.stringify({ apiVersion: "v1", kind: "List", items });
    for (const [mode, dumps] of [
      ["iptables", ["iptables.txt", "ip6tables.txt"]],
      ["nftables", ["nft.txt"]],
    ] as const) {
      for (const [index, file] of dumps.entries()) {
        const [config = "", dump = ""] = filesOf(
          t,
          caseFile(name, `${mode}/config.yaml`),
          caseFile(name, `${mode}/${file}`),
        );
        const family = mode === "nftables" ? "both" : index === 0 ? "ipv4" : "ipv6";
        const args = ["-f", "-", "--config", config, "--node", "node-a", "--family", family, "--dump", dump];
        const { status, out } = await run(args, manifests);
        assert.deepEqual({ status, out }, { status: 0, out: "No differences.\n" }, `${name} ${file}`);
      }
    }
  }
});

test("without a configuration the rules' own network of pods is named, in either mode", async (t) => {
  for (const [mode, file] of [
    ["iptables", "iptables.txt"],
    ["nftables", "nft.txt"],
  ] as const) {
    const { node, services, slices } = caseState("cluster-ip");
    const manifests = JSON.stringify({
      apiVersion: "v1",
      kind: "List",
      items: [node, ...services, ...slices, SERVICE_CIDR_OBJECT],
    });
    const [dump = ""] = filesOf(t, caseFile("cluster-ip", `${mode}/${file}`));
    const { status, err } = await run(["-f", "-", "--mode", mode, "--family", "ipv4", "--dump", dump], manifests);
    assert.equal(status, 1);
    assert.match(err, /\(--config\): .*\nThe compared rules take 10\.180\.0\.0\/16 for the pod network: /);
  }
});

test("one file may have what iptables-save and ip6tables-save print", async (t) => {
  const { node, services, slices } = caseState("dual-stack");
  const items = [node, ...services, ...slices, SERVICE_CIDR_OBJECT];
  const [one = "", other = ""] = ["iptables.txt", "ip6tables.txt"].map((file) => {
    return caseFile("dual-stack", `iptables/${file}`);
  });
  const compare = async (text: string) => {
    const [config = "", dump = ""] = filesOf(t, caseFile("dual-stack", "iptables/config.yaml"), text);
    const args = ["-f", "-", "--config", config, "--node", "node-a", "--family", "both", "--dump", dump];
    return await run(args, JSON.stringify({ apiVersion: "v1", kind: "List", items }));
  };
  assert.deepEqual(await compare(`${one}${other}`), { status: 0, out: "No differences.\n", err: "" });
  const { err: cut } = await compare(`${one}${other.replace(/^COMMIT$/m, "what is this")}`);
  assert.match(
    cut,
    new RegExp(`line ${one.split("\n").length + other.split("\n").indexOf("COMMIT")}: "what is this" is not what`),
  );
  const { status, err } = await compare(`${one}${one}`);
  assert.equal(status, 2);
  assert.match(err, /it has the table IPv4 \w+ twice: give what one tool prints/);
});

test("what should not be there, what is moved, and another program's rules", async (t) => {
  const dump = await rendered("iptables", "iptables-save");
  const compare = async (text: string) =>
    await run(["-f", "-", ...NODE_A, "--mode", "iptables", "--dump", filesOf(t, text)[0] ?? ""]);
  const extra = dump.replace(/(\*nat\n)/, "$1:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]\n:OTHER - [0:0]\n");
  assert.match(
    (await compare(extra)).out,
    /^chain KUBE-SVC-AAAAAAAAAAAAAAAA in IPv4 nat is there, and should not be\n1 difference\.\n$/,
  );
  const others = dump.replace(/(\*nat\n(?::.*\n)+)/, "$1-A PREROUTING -p tcp -j ACCEPT\n");
  assert.equal((await compare(others)).status, 0);
  const moved = dump.replace(/(-A KUBE-SVC-\S+ .*\n)(-A KUBE-SVC-\S+ .*--probability.*\n)/, "$2$1");
  assert.match((await compare(moved)).out, /in IPv4 nat \(\S+\) has the right lines in a wrong order\n/);
});

test("a watch goes on after a look at which a tool was refused", async (t) => {
  const [calls = ""] = filesOf(t, "");
  const folder = dirname(calls);
  const script = `#!/bin/sh
echo >>${calls}
case $(wc -l <${calls}) in
1) ;;
2) echo "Error: cache initialization failed: Interrupted system call" >&2; exit 1 ;;
*) printf 'table ip kube-proxy {\\n\\tchain services {\\n\\t}\\n}\\n' ;;
esac
`;
  writeFileSync(join(folder, "nft"), script, { mode: 0o755 });
  const { PATH = "" } = process.env;
  process.env.PATH = `${folder}:${PATH}`;
  t.after(() => {
    process.env.PATH = PATH;
  });
  const stop = new AbortController();
  let [told, complaints] = ["", ""];
  const output = {
    out: (text: string) => {
      told += text;
      if (/^\d{4}-\S+Z$/m.test(told)) stop.abort();
    },
    err: (text: string) => {
      complaints += text;
    },
  };
  const watching = ["-f", "-", ...NODE_A, "--mode", "nftables", "--kernel", "--watch", "--interval", "1"];
  assert.equal(await diff(watching, output, Readable.from([EXAMPLES]), stop.signal), 1);
  assert.match(complaints, /^\S+Z nft list table ip kube-proxy: .*Interrupted system call$/m);
  assert.match(told, /Z\n[\s\S]*chain services in ip kube-proxy is not as it should be/);
});

test("bad input: status 2, and words that help", async (t) => {
  const dump = await rendered("iptables", "iptables-save");
  const refusal = async (args: readonly string[], input?: string) => {
    const { status, out, err } = await run(args, input);
    assert.deepEqual({ status, out }, { status: 2, out: "" });
    return err;
  };
  const against = (text: string, ...args: string[]) =>
    refusal(["-f", "-", ...NODE_A, "--dump", filesOf(t, text)[0] ?? "", ...args]);
  assert.match(await against(dump.slice(0, dump.length / 2)), /is cut/);
  const unreadable = "# Table `nat' is incompatible, use 'nft' tool.\n";
  assert.match(await against(unreadable + dump.slice(0, dump.indexOf("*nat"))), /it lacks a table.*use 'nft' tool/);
  assert.match(
    await against("hello"),
    /is not what iptables-save, nft list ruleset, ipset save, .*or .* prints: it begins with "hello"/,
  );
  assert.match(await against('{"nftables": [', "--mode", "nftables"), /is cut, or no JSON/);
  assert.match(await against("table ip kube-proxy {\n\tchain x {\n", "--mode", "nftables"), /it is cut/);
  assert.match(
    await against(dump, "--mode", "nftables"),
    /is of iptables-save, and mode nftables writes nft: is --mode right\?/,
  );
  assert.match(await against(dump, "--mode", "userspace"), /mode userspace cannot be compared/);
  assert.match(await refusal(["-f", "-"]), /two folders or files/);
  assert.match(await refusal(["a", "b", "--watch"]), /--watch needs --kernel/);
  assert.match(await refusal(["-f", "-", "--dump", "-"]), /standard input can be read only once/);
  assert.match(await refusal(["/nonexistent", "/nonexistent"]), /cannot read the manifests/);
});

test("300 nodes fit a screen: all are named as one, and the rules have one line", async (t) => {
  const fleet = JSON.parse(EXAMPLES);
  const node = fleet.items.find(({ kind }: { kind: string }) => kind === "Node");
  for (let count = 0; count < 40; count += 1) {
    const name = `worker-${count}`;
    fleet.items.push({ ...node, metadata: { ...node.metadata, name, labels: { "kubernetes.io/hostname": name } } });
  }
  const whole = JSON.stringify(fleet);
  const [old = "", current = ""] = filesOf(t, whole, whole.replaceAll('"nodePort":30080', '"nodePort":30099'));
  const { status, out } = await run([old, current, "--family", "ipv4"]);
  assert.equal(status, 1);
  assert.match(out, /^ {2}on all 42 nodes, IPv4: node port 30099 is new$/m);
  assert.match(out, /^rules on all 42 nodes: \d+ lines more, \d+ fewer, in \d+ chains, sets or servers in all$/m);
  assert.ok(
    out.split("\n").every((line) => line.length < 200),
    out,
  );
});

test("rules of another release are named as such", async (t) => {
  const args = ["-f", "-", "--hostname-override", "node-a", "--family", "ipv4", "--mode", "nftables", "-o", "text"];
  const { out: dump } = await runCommand(render, [...args, "--compatibility", "v1.36"], EXAMPLES);
  const [file = ""] = filesOf(t, dump);
  const { status, err } = await run(["-f", "-", ...NODE_A, "--mode", "nftables", "--dump", file]);
  assert.equal(status, 1);
  assert.equal(
    err,
    "With --compatibility v1.36 there are no differences: these are rules as that release makes them.\n",
  );
  assert.equal((await run(["--all-nodes", "-f", "-", "--kernel"])).status, 2);
});

/** A Service that asks for a hash, with pods of these last bytes and weights. */
function hashed(balancing: string | undefined, pods: Readonly<Record<number, string | undefined>>): string {
  const metadata = { name: "web", namespace: "ns" };
  const annotations = balancing === undefined ? {} : { "kube-proxy-ts/balancing": balancing };
  const labels = { "kubernetes.io/service-name": "web" };
  const slices = Object.entries(pods).map(([pod, weight]) => ({
    ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType: "IPv4", ports: [{ port: 8080 }] },
    metadata: {
      name: `web-${pod}`,
      namespace: "ns",
      labels,
      annotations: weight && { "kube-proxy-ts/weight": weight },
    },
    endpoints: [{ addresses: [`10.1.0.${pod}`] }],
  }));
  const spec = { clusterIP: "10.96.0.10", ports: [{ port: 80 }] };
  const service = { apiVersion: "v1", kind: "Service", metadata: { ...metadata, annotations }, spec };
  return JSON.stringify({ apiVersion: "v1", kind: "List", items: [service, ...slices] });
}

test("with a hash, how many clients move: exactly, and none where no endpoint changes", async (t) => {
  const pods = { 1: undefined, 2: undefined, 3: undefined };
  const movedIn = async (before: string, after: string): Promise<string[]> => {
    const [old = "", current = ""] = filesOf(t, before, after);
    const { out } = await run([old, current, "--mode", "userspace"]);
    return out.split("\n").filter((line) => line.includes("chosen") || line.includes("move to"));
  };
  const [one, ...none] = await movedIn(hashed("SourceHash", pods), hashed("SourceHash", { ...pods, 4: undefined }));
  assert.deepEqual(none, []);
  const share = /: ([\d.]+) % of clients move to another endpoint where the policy is Cluster$/.exec(one ?? "");
  assert.ok(Math.abs(Number(share?.[1]) - 25) < 15, one);
  const [flows] = await movedIn(hashed("FlowHash", pods), hashed("FlowHash", { ...pods, 3: "0" }));
  assert.match(flows ?? "", /% of flows move to another endpoint/);
  assert.deepEqual(await movedIn(hashed("SourceHash", pods), hashed("SourceHash", pods)), []);
  assert.deepEqual(await movedIn(hashed(undefined, pods), hashed(undefined, { 1: undefined })), []);
  const [now] = await movedIn(hashed(undefined, pods), hashed("SourceHash", pods));
  assert.match(now ?? "", /endpoints are now chosen by the client's address \(before: without a hash\)$/);
});
