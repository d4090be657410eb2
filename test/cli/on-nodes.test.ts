/** `--node` and `--all-nodes`: the real program as kubectl's plugin, with a kubectl whose pods are local. */
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { isForNodes } from "../../src/tools/cli/on-nodes.ts";
import { daemonAt } from "./inspected-daemon.ts";
import { runKubeProxy } from "./run-kube-proxy.ts";

const BIN = fileURLToPath(new URL("../../bin", import.meta.url));

/** `get` prints the pods; `exec` runs the program here, for the socket of that pod; pod kp-c is another program's. */
const KUBECTL = `#!/bin/sh
printf '%s\\n' "$*" >> "$FOLDER/asked"
case " $* " in *" --context=forbidden "*) echo 'Error from server (Forbidden): pods is forbidden: User "me" cannot list' >&2; exit 1;; esac
case " $* " in *" --context=none "*) echo 'error: context "none" does not exist' >&2; exit 1;; esac
case " $* " in *" --context=away "*)
  echo 'E1127 17:06:51.898960   32758 memcache.go:265] "Unhandled Error" err="connection refused"' >&2
  echo 'The connection to the server was refused' >&2; exit 1;;
esac
case " $* " in *" --context=slow "*) kill -9 $$;; esac
while [ $# -gt 0 ]; do
  case $1 in
    kube-proxy) shift; exec "$BIN/kubectl-kube_proxy" "$@" ;;
    get) cat "$FOLDER/pods"; exit 0 ;;
    exec) break ;;
    *) shift ;;
  esac
done
pod=$4
while [ "$1" != -- ]; do shift; done
shift 2
if [ "$pod" = kp-c ]; then echo 'unknown command "status" for "kube-proxy"' >&2; exit 1; fi
command=$1; shift
mkdir -p "$FOLDER/in-$pod" && cd "$FOLDER/in-$pod"
if [ "$pod" = "$FLOOD" ]; then exec cat /dev/zero; fi
case "$command $*" in
  *--export=-*)
    if [ -e "$FOLDER/at-once" ]; then
      : > running; sleep 1; ls "$FOLDER"/in-*/running | wc -l >> "$FOLDER/at-once"; sleep 1; rm running
    fi
    printf '{"flow of":"%s"}\\n' "$pod"; echo "note: lost" >&2; exit 0 ;;
  *--export*) : > written-in-the-pod; exit 0 ;;
esac
if [ "$command" = sysdump ]; then printf 'an archive of %s' "$*"; exit 0; fi
unset KUBE_PROXY_TS_PLUGIN
exec "$BIN/kube-proxy" "$command" --socket "$FOLDER/$pod.sock" "$@"
`;

function cluster(t: TestContext) {
  const folder = mkdtempSync(join(tmpdir(), "kpts-nodes-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const pods = "node-b kp-b kube-proxy\nnode-a kp-a other kube-proxy\nnode-c kp-c kube-proxy\n";
  writeFileSync(join(folder, "pods"), pods);
  writeFileSync(join(folder, "kubectl"), KUBECTL, { mode: 0o755 });
  symlinkSync(join(BIN, "kubectl-kube_proxy"), join(folder, "kubectl-kube_proxy"));
  daemonAt(t, join(folder, "kp-a.sock"));
  daemonAt(t, join(folder, "kp-b.sock"), [{ subject: "shop/web:http", reason: "the kernel refuses it" }]);
  const env: Record<string, string> = { PATH: `${folder}:${process.env.PATH}`, FOLDER: folder, BIN };
  const run = (...args: string[]) =>
    runKubeProxy(["kube-proxy", ...args], { program: join(folder, "kubectl"), env, cwd: folder });
  return { folder, run, env };
}

test("one node's daemon is asked in its pod, with the command's own exit status", async (t) => {
  const { run } = cluster(t);
  const [well, refused, json] = await Promise.all([
    run("status", "--node", "node-a"),
    run("status", "--node=node-b"),
    run("services", "shop/web", "--node", "node-a", "-o", "json", "--no-traffic"),
  ]);
  assert.deepEqual([well.status, well.stderr], [0, ""]);
  assert.match(well.stdout, /^kube-proxy-ts 1\.2\.3, nftables mode, on node-a\nhealthy\n/);
  assert.equal(refused.status, 1);
  assert.match(refused.stdout, /^refused: shop\/web:http: the kernel refuses it$/m);
  assert.equal(JSON.parse(json.stdout)[0].servicePort, "shop/web:http");
});

test("flags for kubectl go to kubectl, and all others to the command in the pod, in their order", async (t) => {
  const { folder, run } = cluster(t);
  await run("flows", "--state", "NONE", "shop/web", "--context", "lab", "-o", "json", "--node", "node-a", "--stale");
  const asked = readFileSync(join(folder, "asked"), "utf8").split("\n");
  const exec = asked.find((line) => line.includes(" exec "));
  const get = asked.find((line) => line.includes(" get pods "));
  assert.match(
    get ?? "",
    /^--context=lab get pods .* --field-selector status\.phase=Running --output jsonpath=\{range /,
  );
  assert.match(exec ?? "", /^--context=lab exec --namespace kube-system kp-a --container kube-proxy -- /);
  assert.match(exec ?? "", / flows --state NONE shop\/web -o json --stale$/);
});

test("diff --kernel looks in the pods, with the configuration there; between manifests it stays here", async (t) => {
  const { folder, run } = cluster(t);
  const asked = () =>
    readFileSync(join(folder, "asked"), "utf8")
      .split("\n")
      .filter((line) => line.startsWith("exec "));
  await run("diff", "a", "b", "--node", "node-a");
  assert.deepEqual(asked(), []);
  await run("diff", "--kernel", "--all-nodes");
  assert.equal(asked().length, 3);
  assert.match(
    asked().join("\n"),
    /kp-a .* diff --config=\/var\/lib\/kube-proxy\/config\.conf --kubeconfig=\S+ --node=node-a --kernel$/m,
  );
});

test("prove looks from here where objects or rules are given, however the flag is written", () => {
  const isInPods = (...argv: string[]) => isForNodes("prove", [...argv, "--node", "n"], { KUBE_PROXY_TS_PLUGIN: "1" });
  assert.equal(isInPods(), true);
  for (const argv of [["-f", "examples"], ["-fexamples"], ["--filename=examples"], ["--dump", "x"]])
    assert.equal(isInPods(...argv), false, argv.join(" "));
});

test("of all nodes one line each, what is wrong first; a node that cannot answer hides no other", async (t) => {
  const { run } = cluster(t);
  const { status, stdout } = await run("status", "--all-nodes");
  assert.equal(status, 1);
  const lines = stdout.split("\n");
  assert.match(lines[0] ?? "", /^ *NODE +MODE +STATE +PORTS +LAST SYNC +WHAT IS WRONG$/);
  assert.match(
    lines[1] ?? "",
    /^ *node-b +nftables +healthy +\d+ +\d+\.\d s ago +shop\/web:http: the kernel refuses it$/,
  );
  assert.match(lines[2] ?? "", /^ *node-c +\? +no answer +unknown command "status" for "kube-proxy"$/);
  assert.match(lines[3] ?? "", /^ *node-a +nftables +healthy/);
  assert.equal(lines[4], "healthy nodes: 1 of 3");
  const json = JSON.parse((await run("status", "--all-nodes", "-o", "json")).stdout);
  assert.deepEqual(
    json.map(({ node, mode }: { node: string; mode?: string }) => [node, mode]),
    [
      ["node-a", "nftables"],
      ["node-b", "nftables"],
      ["node-c", undefined],
    ],
  );
});

test("a node that is not there is named with the nearest, and missing rights with what it takes", async (t) => {
  const { run } = cluster(t);
  const none = await run("status", "--node", "node-e");
  assert.equal(none.status, 2);
  assert.match(none.stderr, /^Error: no pod of kube-proxy runs on node "node-e" \(.*\)\nDid you mean node-[abc]\?\n$/);
  const forbidden = await run("status", "--all-nodes", "--context", "forbidden");
  assert.equal(forbidden.status, 2);
  assert.match(
    forbidden.stderr,
    /is forbidden.*\nThis needs the rights to list pods and to create pods\/exec in the namespace kube-system\.\n$/,
  );
  const noContext = await run("status", "--all-nodes", "--context", "none");
  assert.equal(noContext.stderr, 'Error: kubectl get pods: error: context "none" does not exist\n');
  const away = await run("status", "--all-nodes", "--context", "away");
  assert.equal(away.stderr, "Error: kubectl get pods: The connection to the server was refused\n");
  // kubectl is killed, as at the limit.
  const silent = await run("status", "--all-nodes", "--context", "slow");
  assert.deepEqual([silent.status, silent.stderr], [2, "Error: kubectl get pods: no answer within 30 s\n"]);
  const both = await run("status", "--all-nodes", "--node", "node-a");
  assert.equal(both.status, 2);
  assert.match(both.stderr, /exclude each other/);
});

test("archives of all nodes become files; elsewhere --node stays the node that is looked from", async (t) => {
  const { folder, run } = cluster(t);
  const { status, stdout } = await run("sysdump", "--all-nodes");
  assert.equal(stdout, "kube-proxy-sysdump-node-a.tar.gz\nkube-proxy-sysdump-node-b.tar.gz\n");
  assert.equal(status, 1);
  assert.ok(existsSync(join(folder, "kube-proxy-sysdump-node-a.tar.gz")));
  assert.equal(existsSync(join(folder, "kube-proxy-sysdump-node-c.tar.gz")), false, "it has not been fetched");
});

test("flows --export adds lines to the file here, of one node or of all, not in the pods", async (t) => {
  const { folder, run } = cluster(t);
  const [a, b] = ["kp-a", "kp-b"].map((pod) => `{"flow of":"${pod}"}\n`);
  const read = () => readFileSync(join(folder, "flows.jsonl"), "utf8");
  const one = await run("flows", "shop/web", "--node", "node-a", "--export", "flows.jsonl");
  assert.deepEqual([one, read()], [{ status: 0, stdout: "", stderr: "note: lost\n" }, a]);
  const all = await run("flows", "--all-nodes", "--export=flows.jsonl", "--watch");
  assert.deepEqual([all.status, all.stdout], [1, ""], "kp-c is another program's");
  assert.match(all.stderr, /^node-b: note: lost$/m);
  assert.ok([`${a}${a}${b}`, `${a}${b}${a}`].includes(read()), read());
  const refused = await run("flows", "--node", "node-a", "--export", "none/flows.jsonl");
  assert.deepEqual([refused.status, refused.stdout], [2, ""]);
  assert.match(refused.stderr, /^Error: cannot write to none\/flows\.jsonl: ENOENT/);
  assert.equal(existsSync(join(folder, "in-kp-a", "written-in-the-pod")), false);
  const withFiles = await run("flows", "--all-nodes", "-f", "pods");
  assert.equal(withFiles.status, 2);
  assert.match(withFiles.stderr, /^Error: -f reads files here, but flows runs in the pod: leave -f out\n$/);
});

test("flows --export of many nodes asks some at a time", async (t) => {
  const { folder, run } = cluster(t);
  const pods = Array.from({ length: 20 }, (_, at) => `node-${at} kp-${at} helper kube-proxy\n`);
  writeFileSync(join(folder, "pods"), pods.join(""));
  writeFileSync(join(folder, "at-once"), "");
  const { status } = await run("flows", "--all-nodes", "--export", "flows.jsonl");
  const read = (name: string) => readFileSync(join(folder, name), "utf8").trimEnd().split("\n");
  assert.deepEqual([status, new Set(read("flows.jsonl")).size], [0, 20]);
  const most = Math.max(...read("at-once").map(Number));
  assert.ok(most <= 16, `${most} at once`);
});

test("an archive of a node is written where -o says, here, and over no file that is there without --force", async (t) => {
  const { folder, run } = cluster(t);
  const read = (name: string) => readFileSync(join(folder, name), "utf8");
  const named = await run("sysdump", "--node", "node-a", "-o", "a.tar.gz", "--log", "7");
  assert.deepEqual([named.status, named.stdout], [0, "a.tar.gz\n"]);
  assert.match(read("a.tar.gz"), /^an archive of --output=- .* --log 7$/);
  const piped = await run("sysdump", "--node=node-a", "--output=-");
  assert.deepEqual([piped.status, piped.stdout], [0, read("a.tar.gz").replace(" --log 7", "")]);
  const each = await run("sysdump", "--all-nodes", "-o", "all.tar.gz");
  assert.deepEqual([each.status, existsSync(join(folder, "all.tar.gz"))], [2, false]);

  // Another user has put a link there, which must not be followed.
  writeFileSync(join(folder, "mine"), "mine");
  symlinkSync("mine", join(folder, "kube-proxy-sysdump-node-a.tar.gz"));
  const refused = await run("sysdump", "--all-nodes");
  assert.equal(refused.status, 2);
  assert.match(refused.stderr, /^Error: kube-proxy-sysdump-node-a\.tar\.gz already exists$/m);
  assert.match(refused.stdout, /^kube-proxy-sysdump-node-b\.tar\.gz$/m, "it hides no other node");
  assert.equal(read("mine"), "mine");
  const replaced = await run("sysdump", "--node", "node-b", "--force");
  assert.deepEqual([replaced.status, replaced.stdout], [0, "kube-proxy-sysdump-node-b.tar.gz\n"]);
});

test("a node that never stops answering has one line, and the other nodes' answers stay", async (t) => {
  const { folder, run, env } = cluster(t);
  env.FLOOD = "kp-a";
  const why = /node-a.*the answer cannot be used: it is larger than 32 MiB/;
  const services = await run("services", "--all-nodes", "--no-traffic");
  assert.match(services.stderr, why);
  assert.match(services.stdout, /node-b:\n.*shop\/web/s);
  const states = await run("status", "--all-nodes");
  assert.match(states.stdout, why);
  assert.match(states.stdout, /node-b +nftables/);
  // A line that never ends, of a command whose output is passed on.
  const one = await run("services", "--node", "node-a");
  assert.deepEqual([one.status, one.stdout], [2, ""]);
  assert.match(one.stderr, /^Error: the answer cannot be used: it is larger than 32 MiB\n/);
  const exported = await run("flows", "--all-nodes", "--export", "lines");
  assert.match(exported.stderr, why);
  assert.match(readFileSync(join(folder, "lines"), "utf8"), /"flow of":"kp-b"/);
  const archives = await run("sysdump", "--all-nodes");
  assert.match(archives.stderr, /Error: .*it is larger than 32 MiB/);
  assert.equal(existsSync(join(folder, "kube-proxy-sysdump-node-a.tar.gz")), false);
  assert.equal(existsSync(join(folder, "kube-proxy-sysdump-node-b.tar.gz")), true);
});
