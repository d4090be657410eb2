/** Inputs as people have them: an archive unopened, pipes, a ConfigMap as the configuration, PowerShell's UTF-16. */
// A process of its own: the reader of archives leaves process.once("SIGINT") to the end of the process.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { diff } from "../../src/tools/cli/diff.ts";
import { explain } from "../../src/tools/cli/explain.ts";
import { proveCommand } from "../../src/tools/cli/prove.ts";
import { render } from "../../src/tools/cli/render.ts";
import { settingsParts } from "../../src/tools/cli/sysdump/settings.ts";
import { trace } from "../../src/tools/cli/trace.ts";
import { examplesAsJson, runCommand } from "./run-command.ts";

const MAIN = fileURLToPath(new URL("../../src/tools/cli/main.ts", import.meta.url));
const CONFIGURATION = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: 10.180.0.0/16
`;
const indented = CONFIGURATION.replace(/^/gm, "    ").trimEnd();
const configMap = (key: string, name = "kube-proxy"): string => `apiVersion: v1
kind: ConfigMap
metadata: {name: ${name}, namespace: kube-system}
data:
  kubeconfig.conf: |-
    apiVersion: v1
    kind: Config
  ${key}: |-
${indented}
`;
const ANSWER = /^shop\/web:http TCP, ClusterIP, on node-a \(zone-1\), nftables mode/m;
const ABOUT_WEB = ["shop/web", "-f", "examples", "--node", "node-a"];

function folder(t: TestContext): string {
  const at = mkdtempSync(join(tmpdir(), "files-"));
  t.after(() => rmSync(at, { recursive: true }));
  return at;
}

const utf16 = (text: string, isBig: boolean): Buffer => {
  const bytes = Buffer.from(`\uFEFF${text}`, "utf16le");
  return isBig ? bytes.swap16() : bytes;
};

for (const [what, text] of [
  ["kubeadm's ConfigMap", configMap("config.conf")],
  ["EKS's ConfigMap", configMap("config", "kube-proxy-config")],
  [
    "a ConfigMap as JSON",
    JSON.stringify({ apiVersion: "v1", kind: "ConfigMap", data: { "config.conf": CONFIGURATION } }),
  ],
  [
    "a List with it",
    JSON.stringify({
      apiVersion: "v1",
      kind: "List",
      items: [
        { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "coredns" }, data: { Corefile: "." } },
        {
          apiVersion: "v1",
          kind: "ConfigMap",
          metadata: { name: "kube-proxy" },
          data: { "config.conf": CONFIGURATION },
        },
      ],
    }),
  ],
] as const) {
  test(`--config takes ${what}, in any encoding, and a sysdump keeps what is in it`, async (t) => {
    const file = join(folder(t), "config.yaml");
    for (const content of [Buffer.from(text), utf16(text, false), utf16(text, true)]) {
      writeFileSync(file, content);
      const { out, err } = await runCommand(explain, [...ABOUT_WEB, "--config", file]);
      assert.match(out, ANSWER, err);
    }
    const part = settingsParts(file, undefined).find(({ name }) => name === "config/kube-proxy.json");
    assert.equal(JSON.parse((await part?.read()) ?? "{}").clusterCIDR, "10.180.0.0/16");
  });
}

test("a ConfigMap without a configuration is an error that says where it usually is", async (t) => {
  const file = join(folder(t), "cm.yaml");
  writeFileSync(file, "apiVersion: v1\nkind: ConfigMap\ndata: {Corefile: x}\n");
  const { err } = await runCommand(explain, [...ABOUT_WEB, "--config", file]);
  assert.match(
    err,
    /cannot use the configuration .*cm\.yaml: .*the ConfigMap has no KubeProxyConfiguration.*config\.conf/,
  );
});

/** Runs the program in a shell, as a user would. */
function shell(command: string, input?: string) {
  const script = `kp() { '${process.execPath}' '${MAIN}' "$@"; }; ${command}`;
  const { stdout, stderr } = spawnSync("bash", ["-c", script], {
    input,
    encoding: "utf8",
    cwd: join(MAIN, "../../.."),
  });
  return { out: stdout, err: stderr };
}

test("/dev/stdin and <(…) are read for objects, configuration and dumps", {
  skip: process.platform === "win32",
}, (t) => {
  const at = folder(t);
  writeFileSync(join(at, "objects.json"), examplesAsJson());
  writeFileSync(join(at, "config.yaml"), CONFIGURATION);
  const about = "kp explain shop/web --node node-a";
  for (const [command, input] of [
    [`cat ${at}/config.yaml | ${about} -f <(cat ${at}/objects.json) --config /dev/stdin`, undefined],
    // Standard input is a socket.
    [`${about} -f /dev/stdin --config <(cat ${at}/config.yaml)`, examplesAsJson()],
  ] as const) {
    const { out, err } = shell(command, input);
    assert.match(out, ANSWER, `${command}: ${err}`);
  }
});

async function saved(): Promise<string> {
  const planned = ["--mode", "iptables", "--node", "node-a", "-o", "iptables-save", "--family", "ipv4"];
  return (await runCommand(render, ["-f", "-", ...planned], examplesAsJson())).out;
}

/** The files of a sysdump of node-a whose kernel has what the examples ask for. */
async function sysdumpFolder(at: string): Promise<string> {
  const dump = join(at, "kube-proxy-sysdump-node-a");
  for (const [name, text] of [
    ["rules/iptables-save.txt", await saved()],
    ["rules/addresses.txt", "addr add 127.0.0.1/8 dev lo\naddr add 10.200.0.2/24 dev eth0\n"],
    ["objects/cluster.json", examplesAsJson()],
    ["config/kube-proxy.json", JSON.stringify({ mode: "iptables" })],
    ["index.json", JSON.stringify({ node: "node-a" })],
  ] as const) {
    mkdirSync(join(dump, name, ".."), { recursive: true });
    writeFileSync(join(dump, name), text);
  }
  return dump;
}

const leftFolders = (): string[] => readdirSync(tmpdir()).filter((name) => name.startsWith("kube-proxy-dump-"));

test("an archive is read unopened, with its objects: explain, trace, diff, prove", async (t) => {
  const at = folder(t);
  const dump = await sysdumpFolder(at);
  const archive = join(at, "x.tgz");
  execFileSync("tar", ["-czf", archive, "-C", at, "kube-proxy-sysdump-node-a"]);
  const ipv4 = ["--family", "ipv4"];
  for (const path of [archive, dump]) {
    const explained = await runCommand(explain, ["shop/web", "--dump", path, ...ipv4]);
    assert.match(
      explained.out,
      /^shop\/web:http TCP, ClusterIP, on node-a .*iptables mode \(of the sysdump\)/,
      explained.err,
    );
    const packet = ["--from", "10.200.0.9", "--to", "shop/web:http"];
    const traced = await runCommand(trace, [...packet, "--dump", path]);
    assert.match(traced.out, /33\.3 % {2}sent to 10\.180\.0\.11:8080/, traced.err);
    assert.doesNotMatch(traced.out, /kube-proxy-dump-/, "the name is the user's");
    const compared = await runCommand(diff, ["--dump", path, ...ipv4]);
    assert.deepEqual([compared.out, compared.status], ["No differences.\n", 0], compared.err);
    const proved = await runCommand(proveCommand, ["--dump", path, ...ipv4]);
    assert.match(proved.out, /\(node-a, IPv4\): the rules treat every packet/, proved.err);
    assert.doesNotMatch(proved.out, /kube-proxy-dump-/);
  }
  const left = leftFolders();
  assert.match(shell(`kp explain shop/web --dump ${archive}`).out, /^shop\/web:http/);
  // As a browser saves it that takes the compression away.
  shell(`gunzip -k ${archive}`);
  assert.match(shell(`kp explain shop/web --dump ${archive.replace(/\.gz$/, "")}`).out, /^shop\/web:http/);
  assert.deepEqual(leftFolders(), left, "nothing stays");
});

test("what is compressed, but no sysdump, is named; a name in it cannot lead elsewhere", async (t) => {
  const at = folder(t);
  const path = join(at, "x.gz");
  for (const content of [
    gzipSync("*nat\nCOMMIT\n"),
    gzipSync("x".repeat(100_000)).subarray(0, 60),
    Buffer.from([0x1f, 0x8b]),
    Buffer.from(`${"x".repeat(257)}ustar`),
  ]) {
    writeFileSync(path, content);
    const { err } = await runCommand(explain, ["shop/web", "--dump", path]);
    assert.match(err, /cannot read .*x\.gz: it is (?:compressed|a tar archive), but is no whole sysdump/);
  }
  mkdirSync(join(at, "in"));
  writeFileSync(join(at, "out.txt"), "*nat\nCOMMIT\n");
  execFileSync("tar", ["-czPf", join(at, "evil.tgz"), "-C", join(at, "in"), "../out.txt"]);
  rmSync(join(at, "out.txt"));
  await runCommand(explain, ["shop/web", "--dump", join(at, "evil.tgz")]);
  assert.ok(!readdirSync(at).includes("out.txt"));
});

test("a dump of PowerShell's is read as any other", async (t) => {
  const file = join(folder(t), "rules.txt");
  for (const isBig of [false, true]) {
    writeFileSync(file, utf16((await saved()).replaceAll("\n", "\r\n"), isBig));
    const traced = await runCommand(trace, [
      "--from",
      "10.200.0.9",
      "--to",
      "10.96.0.10:80",
      "--local",
      "10.200.0.2",
      "--dump",
      file,
    ]);
    assert.match(traced.out, /33\.3 % {2}sent to 10\.180\.0\.11:8080/, traced.err);
    const compared = await runCommand(
      diff,
      ["-f", "-", "--node", "node-a", "--mode", "iptables", "--family", "ipv4", "--dump", file],
      examplesAsJson(),
    );
    assert.equal(compared.out, "No differences.\n", compared.err);
  }
});

test("a flag and its value in one word, and a node name that is a variable, are named by the commands", async () => {
  const inOneWord = await runCommand(explain, ["shop/web", "--filename examples"]);
  assert.match(
    inOneWord.err,
    /"--filename examples" is a flag and its value in one word: write "--filename=examples", or two words/,
  );
  await assert.rejects(runCommand(render, ["-f examples"]), /write "-fexamples", or two words/);
  const unreplaced = await runCommand(explain, ["shop/web", "-f", "examples", "--node", "$(NODE_NAME)"]);
  assert.deepEqual([unreplaced.status, unreplaced.out], [2, ""]);
  assert.match(unreplaced.err, /the name of the node, \$\(NODE_NAME\), is a variable that nothing has replaced/);
});
