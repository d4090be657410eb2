/** What people paste into public reports, rebuilt, and what is right for each (`field-cases/`). */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { diff } from "../../src/tools/cli/diff.ts";
import { explain } from "../../src/tools/cli/explain.ts";
import { proveCommand } from "../../src/tools/cli/prove.ts";
import { render } from "../../src/tools/cli/render.ts";
import { trace } from "../../src/tools/cli/trace.ts";
import { runCommand } from "./run-command.ts";

const fileOf = (name: string) => fileURLToPath(new URL(`field-cases/${name}`, import.meta.url));
const textOf = (name: string) => readFileSync(fileOf(name), "utf8");

/** Notes and fates of `trace`. */
async function traced(packet: string, dumps: readonly string[], input = "") {
  const args = [...packet.split(" "), ...dumps.flatMap((dump) => ["--dump", dump])];
  const { status, out, err } = await runCommand(trace, args, input);
  assert.equal(status, 0, err);
  const notes = [...out.matchAll(/^Note: +(.*)$/gm)].map(([, note]) => note);
  const [, fates = ""] = out.split("What becomes of it:\n");
  if (!args.includes("--all")) assert.ok(out.split("\n").length <= 21, out);
  return {
    notes,
    fates: (fates.split("\n\n")[0] ?? "").split("\n").map((line) => line.trim()),
    out,
  };
}

async function explained(...args: string[]) {
  const { out, err } = await runCommand(explain, args);
  return out + err;
}

const CALICO = fileOf("20-iptables-save-c-calico/dump.txt");

test("Calico with counters: an even choice, and only its two sets ask", async () => {
  const { fates } = await traced("--from 192.168.9.80 --to 10.100.6.77:80 --local 10.0.0.1", [CALICO]);
  const kept = [66, 67].map((last) => `50.0 %  sent to 192.168.9.${last}:80, from 192.168.9.80 (kept)`);
  const masqueraded = kept.map((line) => line.replace("192.168.9.80 (kept)", "the node's address (masqueraded)"));
  const [source, destination] = ["it is in the set cali4-masq-ipam-pools", "it is in the set cali4-all-ipam-pools"];
  const condition = `if ${source}, and ${destination.replace("is in", "is not in")}:`;
  assert.deepEqual(fates, [condition, ...masqueraded, "otherwise:", ...kept]);
});

test("a Weave node's network policies: the answer first, in twenty lines, and all with --all", async () => {
  const packet = "--from 192.168.9.80 --to 10.100.6.77:80 --local 10.0.0.1";
  const weave = [fileOf("weave/dump.txt")];
  const { fates, out } = await traced(packet, weave);
  const ends = ["10.32.0.5", "10.40.0.6"].map(
    (to) => `50.0 %  sent to ${to}:8080, from the node's address (masqueraded)`,
  );
  assert.deepEqual(fates.slice(-3), ["otherwise:", ...ends]);
  assert.match(fates[0] ?? "", /^if it leaves by weave, and .*, and more \(--all names it\):$/);
  assert.match(
    out,
    /KUBE-SERVICES 2 → KUBE-SVC-AAAAAAAAAAAAAAA0 1 → KUBE-SEP-AAAAAAAAAAAAAAA1 2: dnat to 10\.32\.0\.5:8080$/m,
  );
  const whole = await traced(`${packet} --all`, weave);
  assert.match(whole.fates[0] ?? "", /it is not in the set weave-in-kube-node-lease, or if /);
  assert.match(whole.out, /\? it depends on whether it comes in by weave/);
});

test("comments of old releases name the Service of a port without a name", async () => {
  assert.match(await explained("KUBE-SVC-AAAAAAAAAAAAAAA0", "--dump", CALICO), /it is for policy-demo\/nginx\.$/m);
  assert.match(
    await explained("policy-demo/nginx", "--dump", CALICO),
    /^chain KUBE-SEP-AAAAAAAAAAAAAAA1 in IPv4 nat$/m,
  );
});

test("the lines that grep found: what they decide is answered, and the rest is not in the dump", async () => {
  const lines = textOf("20-iptables-save-c-calico/dump.txt")
    .split("\n")
    .filter((line) => line.includes("policy-demo/nginx"));
  const packet = "--from 192.168.9.80 --to 10.100.6.77:80 --local 10.0.0.1";
  const ends = [66, 67].map((last) => `50.0 %  sent to 192.168.9.${last}:80, from 192.168.9.80, or masqueraded`);
  const plain = lines.map((line) => line.replace(/^\[.*?\] /, ""));
  for (const cut of [
    lines,
    plain,
    plain.map((line, at) => `${at + 7}:${line}`),
    ["$ iptables-save | grep nginx", ...plain],
  ]) {
    const { notes, fates } = await traced(packet, ["-"], cut.join("\n"));
    assert.deepEqual(fates, ends, cut[0]);
    assert.match(
      notes.join("\n"),
      /^only a part of the rules was given.*: it is read as nat's, and the rest is not in the dump$/m,
    );
  }
  const text = plain.join("\n");
  const other = await traced(packet.replace("6.77", "6.78"), ["-"], text);
  assert.match(other.fates.join("\n"), /^if a rule that is not in the dump translates it:\n100\.0 % {2}not known/);
  const refused = `-A KUBE-SERVICES -d 10.96.0.5/32 -p tcp -m comment --comment "default/web:http has no endpoints" -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable`;
  const { fates } = await traced("--from node --to 10.96.0.5:80 --local 10.0.0.1", ["-"], refused);
  assert.match(
    fates.at(-1) ?? "",
    /^100\.0 % {2}refused \(icmp-port-unreachable\) by iptables -t filter KUBE-SERVICES/,
  );
  const named = await runCommand(explain, ["10.100.6.77:80", "--dump", "-"], text);
  assert.match(named.out, /it is for policy-demo\/nginx\.$/m);
  assert.match(named.err, /only a part of the rules was given/);
  const objects = fileOf("14-external-ip-is-node-ip/objects.yaml");
  const proved = await runCommand(proveCommand, ["-f", objects, "--mode", "iptables", "--dump", "-"], text);
  assert.match(proved.out, /cannot be proved: not all rules are known: only a part/);
  const compared = await runCommand(diff, ["-f", objects, "--mode", "iptables", "--dump", "-"], text);
  assert.match(compared.err, /has only some rules, without their table: give all that iptables-save prints/);
});

test("what iptables -S prints is read as its table, and -L is refused by name", async () => {
  const listed = textOf("20-iptables-save-c-calico/dump.txt")
    .replace(/COMMIT.*/s, "")
    .replace(/^#.*\n|^\*nat\n|^\[\d+:\d+\] /gm, "")
    .replace(/^:(\S+) ACCEPT.*$/gm, "-P $1 ACCEPT")
    .replace(/^:(\S+) -.*$/gm, "-N $1");
  const { notes, fates } = await traced("--from 192.168.9.80 --to 10.100.6.77:80 --local 10.0.0.1", ["-"], listed);
  assert.deepEqual([notes, fates.length], [[], 6]);
  const table = "Chain PREROUTING (policy ACCEPT)\ntarget     prot opt source               destination\n";
  const refused = await runCommand(trace, ["--from", "10.0.0.9", "--to", "10.96.0.1:80", "--dump", "-"], table);
  assert.match(refused.err, /; iptables -L leaves out parts of rules: give iptables-save/);
});

test("tables of iptables-legacy beside the dump are missing, and no rule for Services is in it", async () => {
  const dump = "24-mixed-legacy-warning/dump.txt";
  const { notes, out } = await traced("--from node --to 10.96.0.1:443 --local 10.0.0.1", [fileOf(dump)]);
  const legacy = "tables of iptables-legacy are not in the dump: give what iptables-legacy-save prints, too";
  assert.deepEqual(notes, [legacy, "no rule for Services is in the dump"]);
  assert.match(out, /^Rules: .*24-mixed-legacy-warning\/dump\.txt, and some are missing$/m);
  const both = await traced("--from node --to 10.100.6.77:80 --local 10.0.0.1", [fileOf(dump), CALICO]);
  assert.deepEqual(both.notes, []);
  const objects = fileOf("14-external-ip-is-node-ip/objects.yaml");
  const proved = await runCommand(proveCommand, ["-f", objects, "--dump", fileOf(dump)]);
  assert.match(proved.out, /cannot be proved: not all rules are known: tables of iptables-legacy/);
  const compared = await runCommand(diff, ["-f", objects, "--mode", "iptables", "--dump", fileOf(dump)]);
  assert.match(compared.err, new RegExp(legacy));
  assert.match(await explained("KUBE-FIREWALL", "--dump", fileOf(dump)), new RegExp(legacy));
});

test("a table that iptables cannot print is missing", async () => {
  const text = "# Table `nat' is incompatible, use 'nft' tool.\n";
  for (const rest of ["*filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n", "# Table `raw' is incompatible, use 'nft' tool.\n"]) {
    const { notes } = await traced("--from 10.0.0.9 --to 10.96.0.1:80 --local 10.0.0.1", ["-"], `${text}${rest}`);
    assert.match(
      notes[0] ?? "",
      /^the table nat is not in the dump, for it was made by nft: give what nft list ruleset prints, too$/,
    );
  }
});

test("a listing of nftables mode with handles, cut at its end", async () => {
  const dump = fileOf("25-nft-a-handles-partial/dump.txt");
  const { notes, fates } = await traced("--from 10.244.3.4 --to 10.255.36.158:8000 --local 10.0.0.1", [dump]);
  assert.deepEqual(
    fates.map((line) => /10\.244\.1\.\d+/.exec(line)?.[0]),
    ["10.244.1.71", "10.244.1.72"],
  );
  assert.match(notes.join("\n"), /the table ip kube-proxy does not end: it is cut there/);
});

test("iptables-nft in a listing of nft: iptables-save is asked for, and no comment makes a fork", async () => {
  for (const name of ["dump-json.txt", "dump.txt"]) {
    const dump = fileOf(`26-nft-list-of-iptables-nft/${name}`);
    const { notes, out } = await traced("--from 10.9.9.9 --to 10.96.0.1:443 --local 10.0.0.1", [dump]);
    assert.match(
      notes.join("\n"),
      /nft does not print all that iptables has in ip filter, ip nat: give the output of iptables-save, too/,
    );
    assert.doesNotMatch(out, /depends on .*comment/);
    const answer = await explained("KUBE-SVC-TCOU7JCQXEZGVUNU", "--dump", dump);
    assert.match(answer, /^chain KUBE-SVC-TCOU7JCQXEZGVUNU in ip nat$/m);
    assert.match(answer, /give the output of iptables-save, too/);
  }
});

test("the VPC CNI's connection marks make no fork, and its SNAT is walked", async () => {
  const dump = fileOf("41-eks-connmark/dump.txt");
  const nodePort = await traced("--from 198.51.100.7 --in ens5 --to 10.0.1.205:30080 --local 10.0.1.205", [dump]);
  assert.deepEqual(nodePort.fates, ["100.0 %  sent to 10.0.2.17:8080, from the node's address (masqueraded)"]);
  const out = await traced("--from 10.0.2.17 --in eni12 --to 8.8.8.8:443 --local 10.0.1.205", [dump]);
  assert.deepEqual(out.fates, [
    ...["if it leaves by vlan+:", "100.0 %  sent to 8.8.8.8:443, from 10.0.2.17 (kept)"],
    ...["otherwise:", "100.0 %  sent to 8.8.8.8:443, from 10.0.1.205 (translated)"],
  ]);
});

test("rules of ipvs mode without its virtual servers", async () => {
  const [rules, servers] = ["iptables.txt", "ipvs.txt"].map((name) =>
    fileOf(`43-kubeadm-ipvs-dump-without-ipset/${name}`),
  );
  assert.ok(rules !== undefined && servers !== undefined);
  const missing = "virtual servers of ipvs are not in the dump";
  for (const local of ["10.0.0.1", "10.96.0.1"]) {
    const { notes, fates } = await traced(`--from node --to 10.96.0.1:443 --local ${local}`, [rules]);
    assert.deepEqual(notes, [`${missing}: give what ipvsadm -S -n prints, too`]);
    assert.deepEqual([...new Set(fates.filter((line) => line.includes("%")))], [`100.0 %  not known: ${missing}`]);
  }
  const outside = await traced("--from 10.9.9.9 --to 10.96.0.1:443 --local 10.0.0.1", [rules]);
  assert.ok(outside.fates.includes(`100.0 %  not known: ${missing}`));
  const whole = await traced("--from node --to 10.96.0.1:443 --local 10.0.0.1", [rules, servers]);
  assert.deepEqual(whole.notes, []);
  const objects = fileOf("14-external-ip-is-node-ip/objects.yaml");
  const proved = await runCommand(proveCommand, ["-f", objects, "--dump", rules]);
  assert.match(proved.out, new RegExp(`cannot be proved: not all rules are known: ${missing}`));
});

test("addresses that are there and not used: it is said why", async () => {
  const cases: readonly (readonly [name: string, words: string[], answer: RegExp])[] = [
    ["11-slice-without-ports", ["10.2.0.12"], /is in EndpointSlice sk\/foo-p9d2m.*the slice has no ports/],
    ["12-two-addresses", ["192.168.216.51"], /kube-proxy takes only the first, 192\.168\.216\.50/],
    [
      "12-two-addresses",
      ["guests/router", "--why"],
      /192\.168\.216\.51: of an endpoint's addresses, kube-proxy takes only the first/,
    ],
    ["13-submariner-slices", ["10.1.0.7"], /it has no label kubernetes\.io\/service-name/],
    ["31-k3s-servicelb-families", ["[fd7c:53a5:aef5::242:ac11:2]:80"], /and is not used: the Service is IPv4 only/],
    [
      "31-k3s-servicelb-families",
      ["kube-system/traefik", "--why"],
      /fd7c:53a5:aef5::242:ac11:2 is not used: the Service is IPv4 only/,
    ],
    ["33-ipv6-cluster-ipv4-external", ["198.51.100.9"], /and is not used: the Service is IPv6 only/],
  ];
  for (const [name, words, answer] of cases) {
    assert.match(await explained(...words, "-f", fileOf(`${name}/objects.yaml`)), answer, name);
  }
});

test("in ipvs mode, an external IP that is another Node's is named by explain and render, and not bound", async () => {
  const objects = fileOf("14-external-ip-is-node-ip/objects.yaml");
  const taken = (address: string, node: string) =>
    `${address} is the address of Node ${node}, so kube-ipvs0 does not take it here: packets to it go to that Node.`;
  const answer = await explained("default/nginx", "--node", "master", "--mode", "ipvs", "--why", "-f", objects);
  const own = await explained("default/nginx", "--node", "worker1", "--mode", "ipvs", "--why", "-f", objects);
  assert.ok(answer.replaceAll(/\s+/g, " ").includes(taken("10.128.149.177", "worker1")), answer);
  assert.ok(own.includes("10.128.149.199") && !own.includes("10.128.149.177 is the address of"), own);
  assert.match(answer, /any client: not taken: the address is another Node's, and packets to it go there/);
  const { out, err } = await runCommand(render, ["--node", "master", "--mode", "ipvs", "-o", "ip", "-f", objects]);
  assert.doesNotMatch(out, /10\.128\.149/);
  const proved = await runCommand(proveCommand, ["--node", "master", "--mode", "ipvs", "-f", objects]);
  assert.match(proved.out, /^ipvs \(master, IPv4\): the rules treat every packet as the Services ask/);
  assert.match(err, /default\/nginx: 10\.128\.149\.199 is the address of Node worker2/);
  assert.doesNotMatch(
    await explained("default/nginx", "--node", "master", "--mode", "iptables", "--why", "-f", objects),
    /kube-ipvs0/,
  );
});

test("nodePortAddresses of loopback alone in ipvs mode: no node port, for IPVS has none there", async () => {
  const config = fileOf("36-nodeportaddresses-mixed-loopback/config.yaml");
  const objects = fileOf("31-k3s-servicelb-families/objects.yaml");
  const answer = await explained("31112", "--node", "n1", "--why", "--config", config, "-f", objects);
  assert.match(
    answer,
    /node port 31112 at no address of the node\n {4}any client: not taken: no address of this node takes node ports$/m,
  );
  assert.match(
    answer,
    /127\.0\.0\.1:31112 \(TCP\) is not served in ipvs mode: IPVS has no virtual server at loopback addresses\./,
  );
  assert.doesNotMatch(answer, /no endpoint is usable/);
});

function folderOf(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "field-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

const MAIN = fileURLToPath(new URL("../../src/tools/cli/main.ts", import.meta.url));

/** What the daemon says of its flags; it writes its configuration and ends. */
function daemonSays(...flags: string[]): string {
  const { stdout, stderr } = spawnSync(process.execPath, [MAIN, ...flags], { encoding: "utf8", timeout: 60_000 });
  return stdout + stderr;
}

test("the daemon's flags: two words in one, a name that is a variable, one without effect beside --config", (t) => {
  const folder = folderOf(t);
  const written = [`--write-config-to=${join(folder, "written.yaml")}`];
  for (const word of ["--kubeconfig /var/lib/kubelet/kubeconfig.yml", "--config /etc/kube-proxy.yaml"])
    assert.match(daemonSays(word), /is a flag and its value in one word: write "--\w+=\/.*", or two words/);
  for (const name of ["$(NODE_NAME)", "$" + "{NODE_NAME}"])
    assert.match(
      daemonSays(`--hostname-override=${name}`, ...written),
      /"The node's name is a variable that nothing has replaced/,
    );
  const beside = ["--config", fileOf("07-eks-metrics-flag/config.yaml"), ...written];
  const silent = daemonSays(...beside, "--hostname-override=n1", "--v=2");
  assert.doesNotMatch(silent, /without effect/);
  const named = daemonSays(...beside, "--metrics-bind-address=0.0.0.0", "--cluster-cidr=10.0.0.0/8");
  const flags = /"Flags without effect beside --config: .*" flags=\["--cluster-cidr","--metrics-bind-address"\]/;
  assert.equal(named.match(new RegExp(flags, "g"))?.length, 1, named);
});

test("kubeadm's ConfigMap is taken as the configuration", async () => {
  const config = fileOf("08-configmap-as-config/config.yaml");
  const objects = fileOf("31-k3s-servicelb-families/objects.yaml");
  const answer = await explained("kube-system/traefik", "--node", "n1", "--config", config, "-f", objects);
  assert.match(answer, /^kube-system\/traefik:web TCP, LoadBalancer, on n1, nftables mode, IPv4$/m);
});

/** What is wrong in the files that kubectl does not read either. */
const UNREADABLE = new Map([
  ["dup-key.yaml", /dup-key\.yaml:27: .*Map keys must be unique/],
  ["nbsp.yaml", /nbsp\.yaml:21: .*it is indented with no-break spaces, as web pages have: use spaces/],
  ["quoted-port.yaml", /:22: .*spec\.ports\[0\]\.port must be a whole number from 1 to 65535, got "80"/],
  ["shell-prompt.yaml", /:1: .*it has a command between its lines: remove it/],
  ["tab.yaml", /:21: .*Tabs are not allowed as indentation/],
]);

test("files as people have them: what kubectl reads is read, and the rest is named by line", async (t) => {
  const folder = folderOf(t);
  const names = readdirSync(fileOf("34-crlf-bom-tabs"));
  assert.ok(names.length > 15);
  for (const stored of names) {
    const name = stored.replace(/\.txt$/, "");
    copyFileSync(fileOf(`34-crlf-bom-tabs/${stored}`), join(folder, name));
    const answer = await explained("kube-system/traefik", "-f", join(folder, name));
    const wrong = UNREADABLE.get(name);
    if (wrong !== undefined) assert.match(answer, wrong, name);
    else {
      assert.match(answer, /^ {2}cluster IP 10\.43\.167\.89:80$/m, name);
      assert.match(answer, /^ {2}10\.42\.0\.8:8000 .* used, 100 %$/m, name);
    }
  }
});

test("manifests by YAML 1.1, as kubectl reads them", async (t) => {
  const answer = await explained("default/y", "-f", fileOf("37-yaml-1.1-words/objects.yaml"));
  assert.match(answer, /^ {2}cluster IP 10\.96\.9\.8:80$/m);
  assert.match(answer, /10\.42\.0\.9:8080 .* ready +used, 100 %/);
  const folder = folderOf(t);
  const file = join(folder, "written.yaml");
  daemonSays("--config", fileOf("37-yaml-1.1-words/config.yaml"), `--write-config-to=${file}`);
  assert.match(readFileSync(file, "utf8"), /masqueradeAll: true\n {2}masqueradeBit: 14\n/);
});

test("ipvs with scheduler mh goes to another endpoint while one ends", async (t) => {
  const config = join(folderOf(t), "config.yaml");
  writeFileSync(config, `${textOf("36-nodeportaddresses-mixed-loopback/config.yaml")}ipvs: { scheduler: mh }\n`);
  const objects = fileOf("31-k3s-servicelb-families/objects.yaml");
  const { out, err } = await runCommand(render, ["-f", objects, "--node", "n1", "--config", config, "-o", "ipvsadm"]);
  assert.match(out, /-A -t 10\.43\.167\.89:80 -s mh -b mh-fallback,mh-port$/m, err);
});
