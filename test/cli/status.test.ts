/** `status` and `services` over the inspect socket as the daemon serves it, in this process. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { promisify } from "node:util";
import { recordingLog } from "../../src/agent/cluster/apiserver/testing/recording-log.ts";
import { serveInspectSocket } from "../../src/agent/daemon/inspect-socket.ts";
import { HEALTHY } from "../../src/agent/server/testing/healthy-verdict.ts";
import { SyncJournal } from "../../src/agent/sync/journal/sync-journal.ts";
import { createServer as createHttpServer } from "../../src/kernel/node-http.ts";
import { services } from "../../src/tools/cli/services.ts";
import { status } from "../../src/tools/cli/status.ts";
import { until } from "../../testkit/support/patience.ts";
import { syncRecord } from "../page/page-daemon.ts";
import { daemonAt } from "./inspected-daemon.ts";
import { runCommand } from "./run-command.ts";

function folder(t: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), "kpts-socket-"));
  t.after(() => rmSync(path, { recursive: true }));
  return path;
}

test("a daemon's state and service table, over a socket for its user alone", async (t) => {
  const path = join(folder(t), "kube-proxy.sock");
  const { end, journal } = daemonAt(t, path);
  for (let index = 100; index > 0; index -= 1)
    journal.add(syncRecord({ stages: { waiting: 0, model: 0, rules: index, kernel: null, after: 0 } }));
  assert.equal(statSync(path).mode & 0o777, 0o600);
  const healthy = await runCommand(status, ["--socket", path]);
  assert.deepEqual([healthy.status, healthy.err], [0, ""]);
  assert.match(
    healthy.out,
    /^kube-proxy-ts 1\.2\.3, nftables mode, on node-a\nhealthy\nup for \d+ (?:s|min), \d+ MB of memory; 100 syncs: median 50 ms, 99 % within 99 ms\nIPv4: \d+ service ports, \d+ endpoints, last sync 2\.0 s ago\n {2}the mode says this of itself\n$/,
  );
  const table = await runCommand(services, ["--socket", path, "--no-traffic"]);
  assert.match(table.out, /^shop\/web:http TCP +10\.96\.0\.10:80 +10\.180\.0\.11:8080 +33\.3 %/m);
  assert.match(
    table.out,
    /^office\/node-agent:grpc TCP +10\.96\.0\.61:9000 \(drop\) +10\.180\.1\.53:9000 +0 % Local$/m,
  );
  const shown = async (...argv: string[]) => {
    const { out } = await runCommand(services, [...argv, "--no-traffic", "--socket", path, "-o", "json"]);
    return new Set(JSON.parse(out).map(({ servicePort }: { servicePort: string }) => servicePort.replace(/:.*/, "")));
  };
  for (const argv of [["shop/web"], ["web"], ["svc/web"], ["web", "-n", "shop"], ["web.shop.svc.cluster.local"]]) {
    assert.deepEqual(await shown(...argv), new Set(["shop/web"]), argv.join(" "));
  }
  assert.deepEqual(
    [...(await shown("-n", "kube-system"))].filter((name) => !String(name).startsWith("kube-system/")),
    [],
  );
  const one = JSON.parse((await runCommand(services, ["shop/storefront", "--socket", path, "-o", "json"])).out);
  assert.deepEqual(
    one.map(({ servicePort }: { servicePort: string }) => servicePort),
    ["shop/storefront:https"],
  );
  await end();
  assert.equal(existsSync(path), false);
});

test("the command loads no HTTP client, child processes or whole node:util, which take longer than the answer", async (t) => {
  const path = join(folder(t), "kube-proxy.sock");
  daemonAt(t, path);
  const script = `
    import { status } from ${JSON.stringify(new URL("../../src/tools/cli/status.ts", import.meta.url))};
    let out = "";
    await status(["--socket", ${JSON.stringify(path)}], { out: (text) => { out += text; }, err() {} });
    console.log(JSON.stringify([out, process.moduleLoadList]));
  `;
  const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", script]);
  const [out, loaded]: [string, string[]] = JSON.parse(stdout);
  assert.match(out, /^kube-proxy-ts 1\.2\.3/);
  // Reading every export of node:util loads `myers_diff`.
  const heavy = ["http", "_http_client", "child_process", "crypto", "internal/assert/myers_diff"];
  assert.deepEqual(
    heavy.filter((name) => loaded.includes(`NativeModule ${name}`)),
    [],
  );
});

test("an answer that is cut is told from one of another program", async (t) => {
  const path = join(folder(t), "kube-proxy.sock");
  const server = createServer((socket) => {
    // Reads the request, so that the end of the connection is noticed.
    socket.resume();
    socket.end('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"mode":');
  }).listen(path);
  t.after(() => server.close());
  const { status: code, err } = await runCommand(status, ["--socket", path]);
  assert.equal(code, 2);
  assert.match(err, /^Error: the answer at \S+ is incomplete: the daemon ended meanwhile\n$/);
});

test("an answer in which any list is none is not of a daemon", async (t) => {
  for (const wrong of ["failures", "families", "limits"]) {
    const path = join(folder(t), "kube-proxy.sock");
    const report = { mode: "nftables", failures: [], families: [], limits: [], [wrong]: "none" };
    const server = createHttpServer((_request, response) => void response.end(JSON.stringify(report))).listen(path);
    t.after(() => server.close());
    const { status: code, err } = await runCommand(status, ["--socket", path]);
    assert.deepEqual([code, err.startsWith("Error: ")], [2, true], `${wrong}: ${err}`);
  }
});

test("what was refused makes the status 1, and is safe to print", async (t) => {
  const path = join(folder(t), "kube-proxy.sock");
  daemonAt(t, path, [{ subject: "shop/web:http", reason: "no \u001b[31mspace" }]);
  const { status: code, out } = await runCommand(status, ["--socket", path]);
  assert.equal(code, 1);
  assert.match(out, /refused: shop\/web:http: no \\x1b\[31mspace\n$/);
});

test("connections that the daemon carries itself are those of its endpoints", async (t) => {
  const path = join(folder(t), "kube-proxy.sock");
  daemonAt(t, path, [], [], () => new Map([["10.180.0.11:8080", 3]]));
  const { out } = await runCommand(services, ["shop/web", "--no-traffic", "--socket", path, "-o", "json"]);
  const [line]: { endpoints: { address: string; open: number }[] }[] = JSON.parse(out);
  assert.deepEqual(
    line?.endpoints.map(({ address, open }) => [address, open]),
    [
      ["10.180.0.11:8080", 3],
      ["10.180.0.12:8080", 0],
      ["10.180.1.11:8080", 0],
    ],
  );
});

test("what the node cannot do is said, and leaves the status 0", async (t) => {
  const path = join(folder(t), "kube-proxy.sock");
  daemonAt(t, path, [], [{ what: "IPv6 services", why: "the kernel has no \u001b[31msupport" }]);
  const { status: code, out } = await runCommand(status, ["--socket", path]);
  assert.equal(code, 0);
  assert.match(out, /^not possible: IPv6 services: the kernel has no \\x1b\[31msupport$/m);
  const { out: json } = await runCommand(status, ["--socket", path, "-o", "json"]);
  assert.equal(JSON.parse(json).limits.length, 1);
});

test("how long the API server has been silent is said, and what it does not tell", async (t) => {
  const path = join(folder(t), "kube-proxy.sock");
  const failures = [{ subject: "watch of services", reason: "nothing listens there" }];
  const verdict = () => ({ ...HEALTHY, silentMs: 420_000, failures });
  daemonAt(t, path, [], [], undefined, undefined, { verdict });
  const { out } = await runCommand(status, ["--socket", path]);
  assert.match(
    out,
    /^API server: last heard about the quietest resource 7 min ago \(up to 10 min is usual\)\nfails: watch of services: nothing listens there$/m,
  );
});

test("a mode that is not set is said", async (t) => {
  const path = join(folder(t), "kube-proxy.sock");
  daemonAt(t, path, [], [], undefined, undefined, { isModeSet: false });
  const { status: code, out } = await runCommand(status, ["--socket", path]);
  assert.equal(code, 0);
  assert.match(out, /^no mode is set, and Kubernetes plans nftables as the default from v1\.40 on: /m);
});

test("a socket that was left behind is replaced, a file is not; the daemon goes on without", async (t) => {
  const at = folder(t);
  const left = join(at, "left.sock");
  // As a killed process leaves it: Node.js itself would remove the name that it has bound.
  const bound = join(at, "bound.sock");
  const server = createServer().listen(bound);
  await once(server, "listening");
  renameSync(bound, left);
  server.close();
  await once(server, "close");
  daemonAt(t, left);
  await until("an answer", async () => (await runCommand(status, ["--socket", left])).status === 0);
  const file = join(at, "file");
  writeFileSync(file, "mine");
  const log = recordingLog();
  const families = [] as const;
  const verdict = () => HEALTHY;
  const journal = new SyncJournal();
  const daemon = {
    program: "",
    mode: "",
    node: "",
    zone: () => undefined,
    families,
    verdict,
    journal,
    limits: () => [],
  };
  await serveInspectSocket(file, daemon, { log, signal: new AbortController().signal });
  assert.ok(existsSync(file));
  assert.match(JSON.stringify(log.lines), /Cannot open the inspect socket/);
});

test("bad input: status 2, and words that help", async (t) => {
  const refusal = async (command: typeof status, ...args: string[]) => {
    const { status: code, out, err } = await runCommand(command, args);
    assert.deepEqual({ code, out }, { code: 2, out: "" });
    return err;
  };
  assert.match(await refusal(status), /no answer at \/run\/kube-proxy\/inspect\.sock/);
  assert.match(
    await refusal(status, "--socket", "/nonexistent"),
    /no answer at \/nonexistent: .*\nIs the daemon running with --inspect-socket/,
  );
  const path = join(folder(t), "kube-proxy.sock");
  daemonAt(t, path);
  assert.match(await refusal(services, "shop/nothing", "--socket", path), /the daemon has no Service "shop\/nothing"/);
  for (const [argv, error] of [
    [["shop/wbe"], /no Service "shop\/wbe"\nDid you mean shop\/web\?/],
    [["nothing", "-n", "shop"], /no Service "shop\/nothing"/],
    [["-n", "nowhere"], /no Service in the namespace "nowhere"/],
  ] as const) {
    assert.match(await refusal(services, ...argv, "--socket", path), error);
  }
});

test("a daemon of another version is named as such, and what it does not say is not made up", async (t) => {
  const path = join(folder(t), "other.sock");
  const answers = new Map<string, readonly [status: number, text: string]>();
  const server = createHttpServer((request, response) => {
    const [code, text] = answers.get((request.url ?? "").replace(/\?.*/, "")) ?? [404, '{"error":"ask GET /status"}'];
    response.writeHead(code).end(text);
  });
  await new Promise<void>((resolve) => server.listen(path, resolve));
  t.after(() => server.close());
  const refusal = async (command: typeof status) => {
    const { status: code, out, err } = await runCommand(command, ["--socket", path]);
    assert.deepEqual({ code, out }, { code: 2, out: "" });
    return err;
  };
  assert.match(await refusal(status), /does not know \/status: it is of another version\nUse the kube-proxy program/);
  answers.set("/status", [200, "<html>"]);
  assert.match(await refusal(status), /is not a daemon of this program, or is of another version/);
  answers.set("/status", [200, '["no state"]']);
  assert.match(await refusal(status), /did not answer with its state: it is of another version/);
  for (const strange of ["{}", '[{"servicePort":"a/b"}]', "[null]"]) {
    answers.set("/services", [200, strange]);
    assert.match(await refusal(services), /did not answer with a list of services: it is of another version/);
  }
  const later = { program: "kube-proxy-ts 9.0.0", mode: "quantum", isHealthy: true, families: [{ family: "IPv4" }] };
  answers.set("/status", [200, JSON.stringify(later)]);
  assert.equal(
    (await runCommand(status, ["--socket", path])).out,
    "kube-proxy-ts 9.0.0, quantum mode, on not known\nhealthy\nIPv4: ? service ports, ? endpoints, not synced yet\n",
  );
  answers.set("/services", [
    200,
    '[{"servicePort":"a/b","protocol":"TCP","family":"IPv4","frontends":[],"endpoints":[]}]',
  ]);
  const table = await runCommand(services, ["--socket", path]);
  assert.deepEqual(
    [table.status, table.err],
    [0, `note: Counters and connections are not known: the daemon's mode "quantum" is not known here.\n`],
  );
});

test("a daemon that hangs is named after five seconds, and given up after fifteen", async (t) => {
  const path = join(folder(t), "hung.sock");
  const server = createServer((socket) => {
    socket.on("error", () => {});
    // Nothing is read, so that the client's end is not noticed.
    t.after(() => socket.destroy());
  });
  server.listen(path);
  await once(server, "listening");
  t.after(() => server.close());
  const beganMs = Date.now();
  const { status: code, out, err } = await runCommand(status, ["--socket", path]);
  assert.deepEqual([code, out], [2, ""]);
  assert.match(
    err,
    /^The daemon has not answered for 5 s: .*\nError: the daemon at \S+ does not answer: nothing within 15 seconds\nIt hangs, or the node is too busy for it\.\n$/,
  );
  assert.ok(Date.now() - beganMs >= 14_000);
});
