/**
 * The program as a shell sees it: what goes to which stream, and the exit status. Nothing here gets as far as touching the
 * node.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { KUBE_PROXY } from "../../testkit/needs/built-program.ts";
import { caseState } from "../conformance/conformance-case.ts";
import { runKubeProxy } from "./run-kube-proxy.ts";

const VERSION: string = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")).version;

const folder = mkdtempSync(join(tmpdir(), "kpts-cli-"));
process.on("exit", () => rmSync(folder, { recursive: true }));

describe("the command line", { concurrency: 2 }, () => {
  test("--version prints upstream's line and then who this is, with the commit of the checkout", async () => {
    const head = execFileSync("git", ["rev-parse", "HEAD"], { cwd: import.meta.dirname, encoding: "utf8" }).trim();
    const own = `kube-proxy-ts ${VERSION} (commit ${head}, Node.js ${process.version})\n`;
    const all = "compatibility: v1.36, v1.37 or v1.38 (preview)\n";
    for (const flag of ["--version", "--version=true"]) {
      assert.deepEqual(await runKubeProxy([flag]), {
        status: 0,
        stdout: `Kubernetes v1.37.0\n${own}${all}`,
        stderr: "",
      });
    }
    const raw = await runKubeProxy(["--version=raw"]);
    assert.equal(raw.status, 0);
    assert.match(raw.stdout, /^version\.Info\{Major:"1", Minor:"37", .*GitVersion:"v1\.37\.0", .*\}\n/);
    assert.ok(raw.stdout.endsWith(`}\n${own}`), raw.stdout);
  });

  test("the first line of the log is this program's name, version and commit, in the format of the log", async () => {
    const config = (name: string, text: string) => {
      const head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
      writeFileSync(join(folder, name), head + text);
      return ["--config", join(folder, name), "--write-config-to=/dev/null"];
    };
    const first = async (args: readonly string[]) => (await runKubeProxy(args)).stderr.split("\n")[0] ?? "";
    const text = / "Starting kube-proxy-ts" version="\d+\.\d+\.\d+" commit="[0-9a-f]{40}" node="v\d+\..*"$/;
    assert.match(await first(config("plain.yaml", "")), text);
    assert.match(await first(config("unknown-field.yaml", "surprise: 1\n")), text);
    const json: unknown = JSON.parse(await first(config("json.yaml", "mode: nftables\nlogging: { format: json }\n")));
    assert.equal(Object(json).msg, "Starting kube-proxy-ts");
    assert.equal(Object(json).version, VERSION);
  });

  test("a full disk is told", async () => {
    const full = 'exec "$0" help >/dev/full';
    const { status, stderr } = await runKubeProxy(["-c", full, KUBE_PROXY], { program: "/bin/sh" });
    assert.equal(status, 1);
    assert.match(stderr, /^Error: the answer cannot be written: ENOSPC: /);
  });

  test("a version that is not this one's is refused", async () => {
    const { status, stdout, stderr } = await runKubeProxy(["--version=v9"]);
    assert.deepEqual([status, stdout], [1, ""]);
    assert.match(stderr, /^Error: invalid argument "v9" for "--version" flag: .*default version "v1\.37\.0"$/m);
  });

  test("--help describes every flag on standard output", async () => {
    const { status, stdout, stderr } = await runKubeProxy(["--help"]);
    assert.deepEqual([status, stderr], [0, ""]);
    for (const flag of [
      "--config string",
      "--proxy-mode",
      "--manifests ",
      "--write-config-to string",
      "-v, --v Level",
    ]) {
      assert.ok(stdout.includes(flag), flag);
    }
  });

  test("an address of the page that is none ends with status 1 before the node is touched", async () => {
    const args = ["--inspect-bind-address=10260", "--manifests", folder];
    const { status, stderr } = await runKubeProxy(args);
    assert.equal(status, 1);
    assert.match(stderr, /--inspect-bind-address must be IP:port, such as 127\.0\.0\.1:10260; got \\?"10260/);
    assert.doesNotMatch(stderr, /Version info/);
  });

  test("an unknown flag, a bad value and an argument too many end with status 1, the reason and a hint", async () => {
    const cases: readonly (readonly [args: readonly string[], first: string])[] = [
      [["--bogus"], "Error: unknown flag: --bogus"],
      [["-x"], "Error: unknown shorthand flag: 'x' in -x"],
      [["--config"], "Error: flag needs an argument: --config"],
      [
        ["--cleanup=maybe"],
        'Error: invalid argument "maybe" for "--cleanup" flag: strconv.ParseBool: parsing "maybe": invalid syntax',
      ],
      [["render", "--familly=ipv4"], "Error: unknown flag: --familly"],
      [["surprise"], 'Error: "kube-proxy" does not take any arguments, got ["surprise"]'],
    ];
    for (const [args, first] of cases) {
      const { status, stdout, stderr } = await runKubeProxy(args);
      const [line, hint = "", ...rest] = stderr.trimEnd().split("\n");
      assert.deepEqual([status, stdout, line, rest], [1, "", first, []], args.join(" "));
      assert.match(hint, args[0] === "surprise" ? /^$/ : /ee '[a-z -]+ --help'\.$/, args.join(" "));
    }
  });

  test("a configuration that cannot be used ends with status 1 and one log line that names the field", async () => {
    const file = join(folder, "invalid.yaml");
    writeFileSync(
      file,
      "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: telepathy\n",
    );
    const { status, stdout, stderr } = await runKubeProxy([`--config=${file}`]);
    assert.deepEqual([status, stdout], [1, ""]);
    assert.match(
      stderr,
      /^E.*\] "command failed" err=".*KubeProxyConfiguration\.Mode\.ProxyMode: Invalid value: \\"telepathy\\"/m,
    );
    const missing = await runKubeProxy([`--config=${join(folder, "nowhere")}`]);
    assert.equal(missing.status, 1);
    assert.match(missing.stderr, /"command failed" err="failed complete: open \S+nowhere: no such file or directory"/);
  });

  test("--write-config-to writes what it would run with, and reads it back as the same", async () => {
    const [first, second] = [join(folder, "first.yaml"), join(folder, "second.yaml")];
    const flags = [
      "--proxy-mode=iptables",
      "--cluster-cidr=10.180.0.0/16",
      "--iptables-sync-period=7s",
      "--masquerade-all",
    ];
    const written = await runKubeProxy([...flags, `--write-config-to=${first}`]);
    assert.equal(written.status, 0, written.stderr);
    assert.match(written.stderr, new RegExp(`"Wrote configuration" file="${first}"`));
    const text = readFileSync(first, "utf8");
    for (const line of [
      /^ {2}syncPeriod: 7s$/m,
      /^clusterCIDR: 10\.180\.0\.0\/16$/m,
      /^ {2}masqueradeAll: true$/m,
      /^mode: iptables$/m,
    ]) {
      assert.match(text, line);
    }
    assert.equal((await runKubeProxy([`--config=${first}`, `--write-config-to=${second}`])).status, 0);
    assert.equal(readFileSync(second, "utf8"), text);
    const log = join(folder, "log");
    const shell = `(echo before; "$0" --write-config-to=/dev/stdout 2>/dev/null; echo after) >"$1"`;
    execFileSync("sh", ["-c", shell, KUBE_PROXY, log]);
    assert.match(readFileSync(log, "utf8"), /^before\napiVersion: .*\nafter\n$/s);
    const nowhere = join(folder, "nowhere", "config.yaml");
    const failed = await runKubeProxy([`--write-config-to=${nowhere}`]);
    assert.equal(failed.status, 1);
    assert.match(failed.stderr, /"command failed" err=".*nowhere\/config\.yaml/);
    assert.equal(existsSync(nowhere), false);
  });

  test("a reader that stops reading early is no failure", async () => {
    const manifests = join(folder, "large.json");
    const { node, services, slices } = caseState("more-than-1000-endpoints");
    writeFileSync(manifests, JSON.stringify({ apiVersion: "v1", kind: "List", items: [node, ...services, ...slices] }));
    const whole = await runKubeProxy(["render", "-f", manifests, "--mode=iptables"]);
    assert.equal(whole.status, 0, whole.stderr);
    // More than fits into a pipe that nothing reads.
    assert.ok(whole.stdout.length > 256 * 1024, `${whole.stdout.length}`);
    const cut = await runKubeProxy(["render", "-f", manifests, "--mode=iptables"], { readOnly: 1 });
    assert.deepEqual([cut.status, cut.stderr], [0, ""]);
    assert.ok(cut.stdout.length < whole.stdout.length);
  });

  test("render works from any directory, and its errors are one line without a trace", async () => {
    const { status, stdout, stderr } = await runKubeProxy(["render", "-f", "nowhere"], { cwd: folder });
    assert.deepEqual([status, stdout], [1, ""]);
    assert.match(stderr, /^Error: cannot read the manifests in nowhere: .*\n$/);
  });
});
