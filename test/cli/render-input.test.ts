/** What `render` reads and how much of it is shown: standard input, pipes, nothing usable, both families, one Service. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { describe, type TestContext, test } from "node:test";
import { promisify } from "node:util";
import { UsageError } from "../../src/tools/cli/output.ts";
import { render } from "../../src/tools/cli/render.ts";
import { KUBE_PROXY } from "../../testkit/needs/built-program.ts";
import { examplesAsJson } from "./run-command.ts";

const EXAMPLES = examplesAsJson();
const NODE_A = ["--hostname-override", "node-a", "--mode", "iptables"];
const GOOD = `apiVersion: v1
kind: Service
metadata: { name: good, namespace: ns }
spec: { clusterIP: 10.96.0.2, ports: [{ port: 80 }] }
`;
const BAD = GOOD.replace("good", "bad").replace("port: 80", "port: 0");

interface Rendered {
  readonly status: number;
  readonly out: string;
  readonly err: string;
  readonly error: UsageError | undefined;
}

async function run(args: readonly string[], input = ""): Promise<Rendered> {
  const out: string[] = [];
  const err: string[] = [];
  let error: UsageError | undefined;
  const output = { out: (text: string) => void out.push(text), err: (text: string) => void err.push(text) };
  const status = await render(args, output, Readable.from([input])).catch((reason: unknown) => {
    if (!(reason instanceof UsageError)) throw reason;
    error = reason;
    return 1;
  });
  return { status, out: out.join(""), err: err.join(""), error };
}

function scratch(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "kpts-render-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

describe("input", () => {
  test("standard input is read as a file is, YAML or JSON", async (t) => {
    const list = { apiVersion: "v1", kind: "List", items: [{ apiVersion: "v1", kind: "Service" }] };
    assert.match((await run(["-f", "-", ...NODE_A], JSON.stringify(list))).err, /^error: standard input: document 1: /);
    const file = join(scratch(t), "services.yaml");
    writeFileSync(file, GOOD);
    const fromFile = await run(["-f", file, ...NODE_A]);
    assert.match(fromFile.out, /ns\/good has no endpoints/);
    assert.equal((await run(["-f", "-", ...NODE_A], GOOD)).out, fromFile.out);
    const { stdout } = await promisify(execFile)("bash", [
      "-c",
      `'${KUBE_PROXY}' render -f <(cat '${file}') ${NODE_A.join(" ")}; '${KUBE_PROXY}' render -f - ${NODE_A.join(" ")} <'${file}'`,
    ]);
    assert.equal(stdout, fromFile.out + fromFile.out);
    assert.match((await run(["-f", "-", "-f", "-"])).error?.message ?? "", /given more than once/);
  });

  test("where no document can be used, nothing is printed but the reasons, and the status is 1", async (t) => {
    const empty = scratch(t);
    const cases: readonly (readonly [args: readonly string[], input: string, reason: RegExp])[] = [
      [["-f", "-"], BAD, /^error: standard input:4: document 1: Service ns\/bad: spec\.ports\[0\]\.port must be /],
      [["-f", "-"], "", /^$/],
      [["-f", "-"], "{", /^error: standard input.*cannot be parsed/],
      [["-f", empty], "", /^$/],
      [["-f", "-"], "apiVersion: apps/v1\nkind: Deployment\nmetadata: { name: web }\n", /^$/],
    ];
    for (const [args, input, reason] of cases) {
      const { status, out, err, error } = await run([...args, ...NODE_A], input);
      assert.deepEqual([status, out], [1, ""], input);
      assert.match(err, reason);
      assert.match(
        error?.message ?? "",
        reason.source === "^$" ? /^there is no Service, EndpointSlice or Node in \S+/ : /^no Service, .* can be used$/,
      );
    }
    assert.match((await run(["-f", "", ...NODE_A])).error?.message ?? "", /^-f needs the name of a folder or a file/);
    const nowhere = join(empty, "nowhere");
    assert.match(
      (await run(["--kubeconfig", nowhere])).error?.message ?? "",
      /^cannot read the kubeconfig: ENOENT.*nowhere'$/,
    );
    const { status, out } = await run(["-f", "-", ...NODE_A], `${GOOD}---\n${BAD}`);
    assert.equal(status, 1);
    assert.match(out, /ns\/good/);
  });
});

describe("both families", () => {
  const only = async (family: string, ...args: string[]) =>
    (await run(["-f", "-", ...NODE_A, "--family", family, ...args], EXAMPLES)).out;
  const both = async (...args: string[]) => (await run(["-f", "-", ...NODE_A, ...args], EXAMPLES)).out;

  test("texts stand one after the other, each with what reads it", async () => {
    for (const [mode, ipv4, ipv6] of [
      ["iptables", "# iptables-restore\n", "# ip6tables-restore\n"],
      ["userspace", "# iptables-restore\n", "# ip6tables-restore\n"],
      ["ipvs", "# IPv4\n", "# IPv6\n"],
      ["nftables", "", ""],
    ] as const) {
      const parts = [ipv4, await only("ipv4", "--mode", mode), ipv6, await only("ipv6", "--mode", mode)];
      assert.equal(await both("--mode", mode), parts.join(""), mode);
    }
  });

  test("data is one document: a list, or for nftables a ruleset of two tables", async () => {
    for (const mode of ["iptables", "ipvs", "userspace"]) {
      const json = ["--mode", mode, "-o", "json"];
      const parts = [JSON.parse(await only("ipv4", ...json)), JSON.parse(await only("ipv6", ...json))];
      assert.deepEqual(JSON.parse(await both(...json)), parts, mode);
    }
    const { nftables } = JSON.parse(await both("--mode", "nftables", "-o", "json"));
    assert.deepEqual(
      nftables.flatMap((object: { table?: { family: string } }) => object.table?.family ?? []),
      ["ip", "ip6"],
    );
  });
});

describe("one Service", () => {
  const shown = async (mode: string, ...args: string[]) =>
    await run(["-f", "-", ...NODE_A, "--mode", mode, "--service", "shop/web", "--family", "ipv4", ...args], EXAMPLES);

  test("every line of the part is in the whole, and no other Service is in it", async () => {
    for (const [mode, form] of [
      ["iptables", "text"],
      ["iptables", "iptables-save"],
      ["nftables", "text"],
      ["ipvs", "text"],
      ["userspace", "text"],
      ["userspace", "iptables-save"],
    ] as const) {
      const { status, out, err } = await shown(mode, "-o", form);
      assert.deepEqual([status, err], [0, ""], mode);
      const whole = (await run(["-f", "-", ...NODE_A, "--mode", mode, "--family", "ipv4", "-o", form], EXAMPLES)).out;
      // An element of a set has a line to itself, except for brackets and comma.
      const words = (line: string) => line.replace(/^elements = \{ /, "").replace(/( \}|,)$/, "");
      const known = new Set(whole.split("\n").map((line) => words(line.trim())));
      for (const line of out.split("\n")) assert.ok(known.has(words(line.trim())), `${mode}: ${line}`);
      assert.match(out, /10\.96\.0\.10\b/, mode);
      assert.doesNotMatch(out, /shop\/(?!web[:"/ ])|office|kube-system/, mode);
    }
  });

  test("as data, there are its ports", async () => {
    const { servicePorts, jumps, rules } = JSON.parse((await shown("iptables", "-o", "json")).out);
    assert.deepEqual([servicePorts.length, servicePorts[0].name, jumps, rules], [1, "shop/web:http", [], []]);
    const ipvs = JSON.parse((await shown("ipvs", "-o", "json")).out);
    assert.deepEqual([ipvs.virtualServers.length, ipvs.device.addresses], [1, ["10.96.0.10"]]);
  });

  test("an address that another Service has by right is not this one's", async () => {
    const two = ["aaa", "zzz"].map((name) => GOOD.replace("good", name)).join("---\n");
    for (const mode of ["nftables", "ipvs"]) {
      const of = async (name: string) =>
        (await run(["-f", "-", "--mode", mode, "--family", "ipv4", "--service", `ns/${name}`], two)).out;
      assert.match(await of("aaa"), /10\.96\.0\.2 . tcp . 80|-A -t 10\.96\.0\.2:80/);
      assert.doesNotMatch(await of("zzz"), /10\.96\.0\.2 . tcp . 80|-A -t 10\.96\.0\.2:80/);
    }
  });

  test("one that is not there, or that a proxy has nothing to do for, is told", async () => {
    const headless = await run(["-f", "-", ...NODE_A, "--service", "db"], EXAMPLES);
    assert.match(headless.error?.message ?? "", /^Service shop\/db is headless /);
    const missing = await run(["-f", "-", ...NODE_A, "--service", "shop/wep"], EXAMPLES);
    assert.deepEqual([missing.out, missing.error?.hint], ["", "Did you mean shop/web?"]);
    assert.match(missing.error?.message ?? "", /^there is no Service "shop\/wep"$/);
    const [whole, ...others] = await Promise.all(
      ["shop/web", "web", "svc/web", "web.shop.svc.cluster.local"].map(
        async (name) => (await run(["-f", "-", ...NODE_A, "--service", name], EXAMPLES)).out,
      ),
    );
    for (const out of others) assert.equal(out, whole);
    const ipv6 = await run(["-f", "-", ...NODE_A, "--family", "ipv6", "--service", "ns/good"], GOOD);
    assert.match(
      ipv6.err,
      /^warning: Service ns\/good has no cluster IP of this family: a proxy does nothing for it$/m,
    );
  });
});

test("names in problems reach no terminal unescaped", async () => {
  // A one-character control sequence, and one that reverses the direction of writing.
  const hostile = BAD.replace("name: bad", 'name: "bad\\u009b31m\\u202e"');
  const { err } = await run(["-f", "-", ...NODE_A], `${GOOD}---\n${hostile}`);
  assert.match(err, /bad\\u009b31m\\u202e/);
  assert.doesNotMatch(err, /[\u009b\u202e]/);
});
