/** Colour, width, help and manual pages. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { type TestContext, test } from "node:test";
import { stripVTControlCharacters } from "node:util";
import { manPage, manPages } from "../../scripts/man-pages.ts";
import { COMMANDS } from "../../src/tools/cli/commands.ts";
import { diff } from "../../src/tools/cli/diff.ts";
import { explain } from "../../src/tools/cli/explain.ts";
import { help } from "../../src/tools/cli/help.ts";
import { type Output, painted, terminalOf, UsageError } from "../../src/tools/cli/output.ts";
import { proxyCommand } from "../../src/tools/cli/proxy-command.ts";
import { services } from "../../src/tools/cli/services.ts";
import { takeColour } from "../../src/tools/cli/subcommand-options.ts";
import { tableText } from "../../src/tools/explain/table.ts";
import { manualPages } from "../docs/command-reference.ts";
import { CHECKOUT } from "../docs/markdown.ts";
import { examplesAsJson, runCommand } from "./run-command.ts";

const ESCAPE = "\u001b[";
const COLOURED = { hasColour: true, width: undefined };

test("colour: on a terminal, not for NO_COLOR, a dumb terminal or a pipe; --color goes over all", () => {
  const tty = { isTTY: true, columns: 80 };
  assert.deepEqual(terminalOf(tty, "auto", {}), { hasColour: true, width: 80 });
  assert.deepEqual(terminalOf(tty, "auto", { NO_COLOR: "1" }), { hasColour: false, width: 80 });
  assert.equal(terminalOf(tty, "auto", { NO_COLOR: "" }).hasColour, true);
  assert.equal(terminalOf(tty, "auto", { TERM: "dumb" }).hasColour, false);
  assert.equal(terminalOf(tty, "never", {}).hasColour, false);
  assert.deepEqual(terminalOf({}, "auto", {}), { hasColour: false, width: undefined });
  // A terminal that does not say its width.
  assert.deepEqual(terminalOf({ isTTY: true, columns: 0 }, "auto", {}), { hasColour: true, width: undefined });
  assert.deepEqual(terminalOf({}, "always", { NO_COLOR: "1" }), { hasColour: true, width: undefined });
});

test("--color is taken out of the arguments of any command", () => {
  assert.deepEqual(takeColour(["a", "--color=never", "-o", "json"]), { argv: ["a", "-o", "json"], choice: "never" });
  assert.deepEqual(takeColour(["--color", "always", "a"]), { argv: ["a"], choice: "always" });
  assert.deepEqual(takeColour(["--colorful"]), { argv: ["--colorful"], choice: "auto" });
  for (const wrong of [["--color=red"], ["--color"]]) assert.throws(() => takeColour(wrong), UsageError);
});

test("answers have colour where it is shown, and the same words without", async () => {
  const args = ["shop/storefront", "-f", "-", "--node", "node-a", "--family", "ipv4", "--why"];
  const plain = await runCommand(explain, args, examplesAsJson());
  assert.ok(!plain.out.includes(ESCAPE));
  const text = painted(plain.out, COLOURED);
  assert.ok(
    text.includes(`${ESCAPE}32manswered`) && text.includes(`${ESCAPE}33mleft out`) && text.includes(`${ESCAPE}1mWhy`),
  );
  assert.equal(stripVTControlCharacters(text), plain.out);
  assert.equal(painted("+     ✓ a 1: b", COLOURED), `${ESCAPE}32m+     ✓ a 1: b${ESCAPE}39m`);
  assert.equal(painted("not ready, unused, reused", COLOURED), `${ESCAPE}31mnot ready${ESCAPE}39m, unused, reused`);
});

test("a table is as wide as the terminal, and words stay whole", () => {
  const rows = [
    ["ADDRESS", "WHY"],
    ["10.180.0.11:8080", "left out: it is on node-b, not on node-a"],
    ["[2001:db8:1111:2222:3333:4444:5555:6666]:8080", "used"],
  ];
  const wide = tableText(rows);
  assert.equal(wide.split("\n").length, 4);
  const narrow = tableText(rows, "  ", 70).split("\n");
  assert.equal(narrow[2]?.endsWith("it is on"), false);
  assert.deepEqual(narrow.slice(1, 3), [
    "  10.180.0.11:8080                               left out: it is on",
    "                                                 node-b, not on node-a",
  ]);
  // Narrower than possible: nothing is lost.
  assert.deepEqual(tableText(rows, "  ", 5).match(/\S+/g)?.sort(), wide.match(/\S+/g)?.sort());
});

test("help for every command, with examples; others are named", async () => {
  for (const { name } of COMMANDS) {
    const { status, out } = await runCommand(help, [name]);
    assert.equal(status, 0);
    assert.match(out, /^Examples:\n {2}\S/m, name);
  }
  assert.match((await runCommand(help, [])).out, /^Commands:\n {2}render/m);
  const wrong = runCommand(help, ["explains"]);
  await assert.rejects(
    wrong,
    (error) => error instanceof UsageError && error.hint === "Did you mean kube-proxy help explain?",
  );
});

test("package.json names the manual pages of all commands; otherwise `npm run docs` writes them again", async () => {
  const { man } = JSON.parse(readFileSync(`${CHECKOUT}/package.json`, "utf8"));
  const pages = await manPages();
  assert.deepEqual(man, manualPages());
  assert.deepEqual([...pages.keys()].map((name) => `dist/man/${name}`).sort(), [...man].sort());
  for (const [name, page] of pages) {
    assert.match(page, /^\.TH \S+ 1 .*\n\.SH NAME\nkube\\-proxy\S* \\- \S/, name);
    // A line that begins with a dot or quote is a request: only intended ones occur.
    assert.doesNotMatch(page, /^\.(?!TH|SH|TP|PP|RS|RE|nf|fi|BR)|^'/m, name);
  }
});

const hasFormatter = spawnSync("groff", ["--version"]).error === undefined;

test("manual pages can be shown", { skip: !hasFormatter && "no program groff" }, async () => {
  for (const page of (await manPages()).values()) {
    const args = ["-man", "-Tascii", "-P-cbu", "-ww"];
    const { stdout, stderr } = spawnSync("groff", args, { input: page, encoding: "utf8" });
    assert.match(stdout, /^SEE ALSO$/m);
    assert.doesNotMatch(stderr, /macro|escape/);
  }
});

test("roff obeys no line of a help text", () => {
  const parts = [
    "Usage: x\n\n.SH EVIL\n'evil\n\\fBbold\n\n",
    { "-f, --flag VALUE...": "what it is\n  and more" },
    "\nExamples:\n  .nf\n",
  ];
  const page = manPage({ name: "x", summary: "y", parts, version: "1", seeAlso: [] });
  assert.match(page, /^\\&\.SH EVIL\n\\&'evil\n\\efBbold$/m);
  assert.match(page, /^\.TP\n\\fB\\-f, \\-\\-flag VALUE\\fR\nwhat it is\nand more$/m);
  assert.match(page, /^\.SH EXAMPLES\n\.RS 4\n\.nf\n\\&\.nf\n\.fi\n\.RE$/m);
});

test("a name that makes a table too wide is shortened; addresses and other columns stay as they are", () => {
  const long = `${"a".repeat(60)}/${"b".repeat(60)}:http TCP`;
  const rows = [
    ["SERVICE PORT", "ADDRESS", "ENDPOINT", "SHARE"],
    ["shop/web:http TCP", "10.96.0.10:80", "10.180.0.11:8080", "33.3 %"],
    [long, "[fd00:10:96::10]:9153", "[fd00:10:180::11]:80", "50 %"],
  ];
  const lines = tableText(rows, "", 80).trimEnd().split("\n");
  for (const line of lines) assert.ok(line.length <= 80, line);
  assert.match(lines[1] ?? "", /^shop\/web:http TCP +10\.96\.0\.10:80 +10\.180\.0\.11:8080 +33\.3 %$/);
  assert.match(lines[2] ?? "", /^a+…b+:http +\[fd00:10:96::10\]:9153 +\[fd00:10:180::11\]:80 +50 %$/);
  assert.equal(lines[1]?.indexOf("10.96"), lines[2]?.indexOf("[fd00"));
  assert.ok(tableText(rows).includes(long), "a pipe has all of it");
});

/** Answers of a command, as a terminal of this width shows them. */
async function linesAt(
  width: number,
  command: (argv: readonly string[], output: Output, input: NodeJS.ReadableStream) => Promise<number>,
  ...argv: string[]
): Promise<readonly string[]> {
  let text = "";
  const out = (more: string): void => {
    text += more;
  };
  await command(argv, { out, err: out, terminal: { hasColour: false, width } }, Readable.from([]));
  const lines = text.trimEnd().split("\n");
  // A single word, such as the name of a Service, is not broken.
  const long = lines.filter((line) => line.length > width && line.trim().includes(" "));
  assert.deepEqual(long, [], `${argv.join(" ")} at ${width} columns`);
  return lines;
}

/** As many as show what thousands would: a fleet of 300 takes a minute here. */
const NODES = 20;

/** Nodes as EC2 names them, and a Service with a long name and an endpoint on each of many of them. */
function fleet(t: TestContext, name: string, port: number, policy = "Cluster"): string {
  const dir = mkdtempSync(join(tmpdir(), "kpts-fleet-"));
  t.after(() => rmSync(dir, { recursive: true }));
  const at = (number: number) => `${number >> 8}.${number & 255}`;
  const names = Array.from({ length: NODES }, (_, number) =>
    number === 0 ? "cp-0" : `ip-10-0-${at(number).replace(".", "-")}.eu-central-1.compute.internal`,
  );
  const nodes = names.map((node, number) => ({
    ...{
      apiVersion: "v1",
      kind: "Node",
      metadata: { name: node },
      spec: { podCIDRs: [`10.128.${number & 255}.0/24`] },
    },
    status: { addresses: [{ type: "InternalIP", address: `10.0.${at(number + 1)}` }] },
  }));
  const metadata = { namespace: "n".repeat(63), name };
  const ports = [{ name: "http", port: 80, protocol: "TCP", nodePort: 30_080 }];
  const endpoints = names.slice(1, 11).map((nodeName, number) => ({
    ...{ addresses: [`10.128.${number}.7`], nodeName, conditions: { ready: true } },
    targetRef: { kind: "Pod", namespace: metadata.namespace, name: `${"p".repeat(50)}-${number}` },
  }));
  const items = [
    ...nodes,
    {
      ...{ apiVersion: "v1", kind: "Service", metadata },
      spec: { type: "NodePort", clusterIP: "10.96.0.10", externalTrafficPolicy: policy, ports },
    },
    {
      ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType: "IPv4", endpoints },
      metadata: { ...metadata, labels: { "kubernetes.io/service-name": name } },
      ports: [{ name: "http", port }],
    },
  ];
  const file = join(dir, "fleet.json");
  writeFileSync(file, JSON.stringify({ apiVersion: "v1", kind: "List", items }));
  return file;
}

test("a fleet with long names fits a screen: explain --all-nodes and diff, at 80 columns and at 60", async (t) => {
  const name = "w".repeat(63);
  const [one, other, local] = [fleet(t, name, 8080), fleet(t, name, 9090), fleet(t, name, 8080, "Local")];
  const service = `${"n".repeat(63)}/${name}`;
  for (const width of [80, 60]) {
    const same = await linesAt(width, explain, service, "-f", one, "--all-nodes", "--family", "ipv4");
    assert.ok(same.length <= 24, same.join("\n"));
    assert.match(same.join("\n"), /^The same on all 20 nodes\. Seen from cp-0:$/m);
    const each = await linesAt(width, explain, service, "-f", local, "--all-nodes", "--family", "ipv4");
    assert.ok(each.length <= 48, each.join("\n"));
    assert.match(
      each.join(" ").replaceAll(/ +/g, " "),
      /On ip-10-0-0-1…, ip-10-0-0-2… and 8 more, other than on cp-0:/,
    );
    const changed = await linesAt(width, diff, one, other, "--family", "ipv4");
    assert.ok(changed.length <= 24, changed.join("\n"));
    const words = changed.join(" ").replaceAll(/ +/g, " ");
    assert.match(
      words,
      /on all 20 nodes, IPv4: 10 endpoints are gone: 10\.128\.0\.7:8080, 10\.128\.1\.7:8080 and 8 more/,
    );
    assert.equal(words.match(/rules on all 20 nodes: /g)?.length, 1);
    await linesAt(width, explain, service, "-f", one, "--why", "--family", "ipv4");
  }
});

test("a Node's name and a pod's are shortened before other cells break", () => {
  const rows = [
    ["ADDRESS", "POD", "NODE", "STATE", "CLUSTER POLICY"],
    ["10.101.0.1:8080", "web-1", "ip-10-0-0-2.eu-central-1.compute.internal (here)", "ready", "used, 50 %"],
    ["10.101.0.2:8080", "p".repeat(63), "node-b", "ready", "used, 50 %"],
  ];
  const lines = tableText(rows, "  ", 90).trimEnd().split("\n");
  assert.ok(
    lines.every((line) => line.length <= 90),
    lines.join("\n"),
  );
  assert.match(lines.at(-1) ?? "", /^ {2}10\.101\.0\.2:8080 +p+…p+ +node-b +ready +used, 50 %$/);
});

test("the proxy's own help fits the terminal, too", async () => {
  let out = "";
  const terminal = { hasColour: false, width: 80 };
  const output = { out: (text: string) => (out += text), err: () => {}, terminal };
  assert.equal(await proxyCommand(["--help"], output), 0);
  const long = out.split("\n").filter((line) => line.length > 80 && !/\S{40}/.test(line));
  assert.deepEqual(long, []);
  assert.match(out, /^ {4,}\S.*\n/m);
});

test("services: at 80 columns, long addresses stand above their endpoints, aligned and whole", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-terminal-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const socket = join(folder, "sock");
  const counts = { open: 12345, counted: 678901 };
  const line = (servicePort: string, address: string, ...endpoints: string[]) => ({
    ...{ servicePort, protocol: "TCP", family: "IPv6" },
    frontends: [{ at: address, kind: "cluster-ip", fate: "serve", ...counts }],
    endpoints: endpoints.map((one) => ({ address: one, cluster: 0.5, local: 1, ...counts })),
  });
  const dns = "kube-system/kube-dns:dns-tcp";
  const [one, other] = ["[fd00:10:180:0:1::53]:1053", "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535"];
  const answer = [line(dns, "[fd00:10:96::53]:53", one, other), line("shop/web", "[fd00:10:96::1]:80")];
  const server = createServer((_, response) => response.end(JSON.stringify(answer)));
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  t.after(() => server.close());
  const args = ["--socket", socket, "--no-traffic"];
  const narrow = await linesAt(80, services, ...args);
  assert.deepEqual(
    narrow.map((text) => text.replaceAll(/ {2,}(?=\S)/g, " | ")),
    [
      "SERVICE PORT | SHARE | OPEN | COUNTED",
      `${dns} TCP`,
      " | [fd00:10:96::53]:53 | 12345 | 678901",
      ` | ${one} | 50 %, 100 % | 12345 | 678901`,
      " | Local",
      `${other} | 50 %, 100 % | 12345 | 678901`,
      " | Local",
      "shop/web TCP",
      " | [fd00:10:96::1]:80 | 12345 | 678901",
      " | none",
    ],
  );
  const places = narrow.flatMap((text) => (text.includes("12345") ? [text.indexOf("12345")] : []));
  assert.equal(new Set(places).size, 1, "aligned");
  assert.match((await linesAt(200, services, ...args)).join("\n"), /^SERVICE PORT +ADDRESS +OPEN +COUNTED +ENDPOINT /);
});
