/** `kube-proxy page`: the real program, here and as kubectl's plugin, with a kubectl whose pods are local, to a daemon's own socket. */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { serveInspectSocket } from "../../src/agent/daemon/inspect-socket.ts";
import { request } from "../../src/kernel/node-http.ts";
import { silentLogger } from "../../src/logging/logger.ts";
import { browserOf } from "../../src/tools/cli/page.ts";
import { readAssets } from "../../src/tools/page/assets.ts";
import { pageHandler } from "../../src/tools/page/serve-page.ts";
import { KUBE_PROXY } from "../../testkit/needs/built-program.ts";
import { until } from "../../testkit/support/patience.ts";
import { servedPage, syncRecord } from "../page/page-daemon.ts";
import { daemonAt } from "./inspected-daemon.ts";
import { examplesAsJson } from "./run-command.ts";
import { runKubeProxy } from "./run-kube-proxy.ts";

const BIN = fileURLToPath(new URL("../../bin", import.meta.url));

/** `exec` runs the program here, for the socket of that pod; FAILS is what it says instead. */
const KUBECTL = `#!/bin/sh
printf '%s\\n' "$*" >> "$FOLDER/asked"
case " $* " in
  *" get "*) cat "$FOLDER/pods"; exit 0 ;;
esac
while [ "$1" != exec ]; do shift; done
pod=$4
if [ -n "\${FAILS-}" ]; then printf "$FAILS" >&2; exit 1; fi
while [ "$1" != -- ]; do shift; done
shift 2
echo $$ >> "$FOLDER/pids"
unset KUBE_PROXY_TS_PLUGIN
exec "$BIN/kube-proxy" "$@" --socket "$FOLDER/$pod.sock"
`;

function cluster(t: TestContext) {
  const folder = mkdtempSync(join(tmpdir(), "kpts-page-"));
  t.after(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, "pods"), "node-a kp-a kube-proxy\nnode-b kp-b kube-proxy\n");
  writeFileSync(join(folder, "kubectl"), KUBECTL, { mode: 0o755 });
  const env: NodeJS.ProcessEnv = { PATH: `${folder}:${process.env.PATH}`, FOLDER: folder, BIN, SSH_TTY: "" };
  const plugin = join(BIN, "kubectl-kube_proxy");
  const lines = (file: string): readonly string[] => {
    const path = join(folder, file);
    return existsSync(path) ? readFileSync(path, "utf8").trimEnd().split("\n") : [];
  };
  const execs = () => lines("asked").filter((line) => /(?:^| )exec /.test(line));
  return {
    ...{ folder, env, lines, execs },
    refusal: async (args: readonly string[], more: NodeJS.ProcessEnv = {}) => {
      const ended = await runKubeProxy(["page", ...args], { program: plugin, env: { ...env, ...more } });
      assert.deepEqual([ended.status, ended.stdout], [2, ""], ended.stderr);
      return ended.stderr;
    },
    open: (...args: string[]) => opened(t, spawn(plugin, ["page", ...args], { env: { ...process.env, ...env } })),
  };
}

/** Of a page that is served until SIGINT. */
async function opened(t: TestContext, child: ChildProcess) {
  const said = { out: "", err: "" };
  child.stdout?.setEncoding("utf8").on("data", (text: string) => {
    said.out += text;
  });
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    said.err += text;
  });
  const closed = new Promise<number | null>((resolve) => child.once("close", resolve));
  t.after(async () => {
    child.kill("SIGKILL");
    await closed;
  });
  await until("the address", () => said.out.endsWith("\n") && said.err.endsWith("\n"), { evidence: () => said.err });
  const end = async () => {
    child.kill("SIGINT");
    return await closed;
  };
  return { said, end, url: said.out.trimEnd() };
}

/** A daemon's socket with its page. */
async function daemonWithPage(t: TestContext, path: string) {
  const { items } = JSON.parse(examplesAsJson()) as { items: unknown[] };
  const { daemon, journal } = await servedPage(t, { items });
  const stop = new AbortController();
  const page = async () => pageHandler(daemon, await readAssets());
  const closed = serveInspectSocket(path, daemon, { log: silentLogger, signal: stop.signal, page });
  t.after(async () => {
    stop.abort();
    await closed;
  });
  return { journal };
}

function answerTo(url: string, headers: Record<string, string> = {}) {
  return new Promise<{ status: number; location: string | undefined; text: string }>((resolve, reject) => {
    const asking = request(url, { headers, agent: false }, async (response) => {
      let text = "";
      for await (const part of response.setEncoding("utf8")) text += part;
      resolve({ status: response.statusCode ?? 0, location: response.headers.location, text });
    });
    asking.once("error", reject).end();
  });
}

const isRunning = (pid: string | undefined): boolean => pid !== undefined && existsSync(`/proc/${pid}`);

test("page --node: the page of that node's daemon, at an address with a secret, over one exec; Ctrl-C ends all of it", async (t) => {
  const { folder, open, lines, execs } = cluster(t);
  await daemonWithPage(t, join(folder, "kp-a.sock"));
  const { url, said, end } = await open("--node", "node-a", "--context", "lab");
  assert.match(url, /^http:\/\/127\.0\.0\.1:\d+\/[\w-]{22}\/$/);
  assert.equal(said.err, "The page of node-a; Ctrl-C ends it.\n");
  const document = await answerTo(url);
  assert.match(document.text, /^<!doctype html>/i);
  const asked = ["main.js", "style.css", "api/state", "api/front", "api/services?search=web"];
  const answers = await Promise.all(asked.map((path) => answerTo(`${url}${path}`)));
  assert.deepEqual(
    answers.map(({ status }) => status),
    asked.map(() => 200),
  );
  assert.equal(JSON.parse(answers[2]?.text ?? "").status.node, "node-a");
  assert.equal((await answerTo(`${url}api/nothing`)).status, 404);
  assert.equal(execs().length, 1);
  assert.match(execs()[0] ?? "", /^--context=lab exec --namespace kube-system kp-a --container kube-proxy --stdin -- /);
  const { origin } = new URL(url);
  for (const path of ["/", "/api/state", "/main.js"])
    assert.equal((await answerTo(`${origin}${path}`)).status, 404, path);
  assert.equal((await answerTo(url, { host: "rebound.example" })).status, 421);
  assert.equal((await answerTo(`${url}api/state`, { "sec-fetch-site": "cross-site" })).status, 403);
  assert.equal(await end(), 0);
  await until("the end of the program in the pod", () => !isRunning(lines("pids")[0]));
  await assert.rejects(answerTo(url));
});

test("a connection that breaks is told in one sentence, and the next question opens another", async (t) => {
  const { folder, open, lines, execs } = cluster(t);
  await daemonWithPage(t, join(folder, "kp-a.sock"));
  const { url, said, end } = await open("--node", "node-a");
  process.kill(Number(lines("pids")[0]), "SIGKILL");
  await until("the end of the first", () => !isRunning(lines("pids")[0]));
  await until("an answer", async () => (await answerTo(`${url}api/state`)).status === 200);
  assert.equal(execs().length, 2);
  // The pod is gone for good.
  writeFileSync(join(folder, "pods"), "");
  process.kill(Number(lines("pids")[1]), "SIGKILL");
  await until("the end of the second", () => !isRunning(lines("pids")[1]));
  await until("no answer", async () => (await answerTo(`${url}api/state`)).status === 502);
  const { text } = await answerTo(`${url}api/state`);
  assert.match(JSON.parse(text).error, /^no pod of kube-proxy runs on node "node-a"/);
  assert.equal(
    said.err.match(/^no pod of kube-proxy runs on node "node-a".*; the page tries again\.$/gm)?.length,
    1,
    said.err,
  );
  assert.equal(await end(), 0);
});

test("a question that the daemon holds ends for the next one, as there is one connection, and for a reader who leaves", async (t) => {
  const { folder, open, execs } = cluster(t);
  const { journal } = await daemonWithPage(t, join(folder, "kp-a.sock"));
  t.mock.method(process.memoryUsage, "rss", () => 5e7);
  const { url, end } = await open("--node", "node-a");
  const first = await fetch(`${url}api/state`);
  await first.text();
  const headers = { "if-none-match": String(first.headers.get("etag")) };
  const hold = (signal?: AbortSignal) => fetch(`${url}api/state?after=0&hold`, { headers, ...(signal && { signal }) });
  const isHeld = () => until("it is held", () => journal.readers === 1);
  const held = hold();
  await isHeld();
  assert.equal((await answerTo(`${url}api/services`)).status, 200);
  assert.equal((await held).status, 304);
  const left = new AbortController();
  const leaving = hold(left.signal);
  await isHeld();
  left.abort();
  await assert.rejects(leaving);
  await until("nobody waits", () => journal.readers === 0);
  const told = hold();
  await isHeld();
  journal.add(syncRecord());
  assert.equal((await told).status, 200);
  assert.equal((await answerTo(`${url}api/services`)).status, 200);
  assert.equal(execs().length, 1);
  assert.equal(await end(), 0);
});

test("why there is no page, in one sentence each", async (t) => {
  const { folder, refusal } = cluster(t);
  assert.equal(await refusal(["--all-nodes"]), "Error: page shows one node: name it with --node\n");
  assert.match(await refusal(["--node", "node-x"]), /^Error: no pod of kube-proxy runs on node "node-x" \(.*\)\nDid/);
  assert.match(
    await refusal(["--node", "node-a"]),
    /^Error: the connection to node-a has ended: no answer at \S+kp-a\.sock: there is no such file or folder\n$/,
  );
  // What a kube-proxy of this program says that is older, and Kubernetes' own.
  const older = "Error: unknown flag: --stdio\\nSee 'kube-proxy --help'.\\ncommand terminated with exit code 1\\n";
  const hasNone = "Error: the kube-proxy on node-a has no page: it is of an older version, or another program\n";
  assert.equal(await refusal(["--node", "node-a"], { FAILS: older }), hasNone);
  const forbidden = "Error from server (Forbidden): pods is forbidden: User me cannot create pods/exec\\n";
  assert.match(await refusal(["--node", "node-a"], { FAILS: forbidden }), /\nThis needs the rights to list pods and/);
  // A daemon that runs on after its program was replaced.
  daemonAt(t, join(folder, "kp-b.sock"));
  const old = "Error: the daemon on node-b has no page: it is of an older version\n";
  assert.equal(await refusal(["--node", "node-b"]), old);
  // All that the program's own script runs.
  mkdirSync(join(folder, "tools"));
  for (const path of ["/usr/bin/find", "/bin/find"].filter(existsSync).slice(0, 1))
    symlinkSync(path, join(folder, "tools", "find"));
  const missing = await refusal(["--node", "node-a"], { PATH: join(folder, "tools") });
  assert.equal(missing, "Error: kubectl cannot be started: spawn kubectl ENOENT\n");
});

test("without --node it is the daemon of this host; a port that is in use is named", async (t) => {
  const { folder, env, refusal } = cluster(t);
  const socket = join(folder, "own.sock");
  assert.match(
    await refusal(["--socket", socket]),
    /^Error: no answer at \S+: there is no such file or folder\nIs the/,
  );
  assert.match(await refusal(["--port", "70000"]), /^Error: --port must be a number up to 65535, got "70000"\n/);
  await daemonWithPage(t, socket);
  const taken = createServer().listen(0, "127.0.0.1");
  t.after(() => taken.close());
  await until("the server", () => taken.listening);
  const { port } = taken.address() as { port: number };
  assert.match(
    await refusal(["--socket", socket, "--port", String(port)]),
    /^Error: the page cannot be served: .*in use/,
  );
  const { url, end } = await opened(
    t,
    spawn(KUBE_PROXY, ["page", "--socket", socket], { env: { ...process.env, ...env } }),
  );
  assert.match((await answerTo(url)).text, /^<!doctype html>/i);
  assert.equal(await end(), 0);
});

test("the browser is opened on a terminal with a display, at an address that leads to the page once", async (t) => {
  const { folder, env, lines } = cluster(t);
  const socket = join(folder, "own.sock");
  await daemonWithPage(t, socket);
  writeFileSync(join(folder, "xdg-open"), `#!/bin/sh\necho "$1" > "$FOLDER/opened"\n`, { mode: 0o755 });
  const terminal = "--import=data:text/javascript,process.stdout.isTTY=true;process.stdout.columns=80";
  const main = fileURLToPath(new URL("../../src/tools/cli/main.ts", import.meta.url));
  const child = spawn(process.execPath, [terminal, main, "page", "--socket", socket], {
    env: { ...process.env, ...env, SSH_CONNECTION: "", DISPLAY: ":0" },
  });
  const { url, end } = await opened(t, child);
  await until("the browser", () => lines("opened").length === 1);
  const [entry = ""] = lines("opened");
  assert.notEqual(entry, url);
  const { status, location } = await answerTo(entry);
  assert.deepEqual([status, new URL(location ?? "", url).href], [302, url]);
  assert.equal((await answerTo(entry)).status, 404);
  assert.equal(await end(), 0);
});

test("where there is a browser to see", () => {
  assert.deepEqual(browserOf("linux", { DISPLAY: ":0" }), ["xdg-open"]);
  assert.deepEqual(browserOf("linux", { WAYLAND_DISPLAY: "wayland-0", SSH_TTY: "" }), ["xdg-open"]);
  assert.deepEqual(browserOf("darwin", {}), ["open"]);
  assert.deepEqual(browserOf("win32", {})[0], "cmd");
  for (const env of [
    {},
    { DISPLAY: "" },
    { DISPLAY: ":10", SSH_CONNECTION: "x" },
    { DISPLAY: ":10", SSH_TTY: "/dev/pts/1" },
  ])
    assert.deepEqual(browserOf("linux", env), []);
});
