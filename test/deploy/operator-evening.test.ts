/**
 * An operator's evening, from image to rollback, with the commands of the documents as they stand there. What is not here is stood in
 * for: evening-cluster.ts for a cluster of one node, a shell script for the registry and for the way of `kubectl exec` into a pod.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { signalChild } from "../../src/kernel/child-process.ts";
import { NetworkNamespace } from "../../testkit/net/network-namespace.ts";
import { runCommand } from "../../testkit/net/run-command.ts";
import { isOnPath } from "../../testkit/support/tools.ts";
import { CHECKOUT } from "../docs/markdown.ts";
import { buildahHere, imageSkip, openImage } from "./image-under-test.ts";
import { findPromtool } from "./promtool.ts";

const LIMIT_MS = 600_000;
const CLUSTER = fileURLToPath(new URL("./evening-cluster.ts", import.meta.url));
const page = (name: string) => readFileSync(join(CHECKOUT, "docs", name), "utf8");
const operations = page("operations.md");
const install = page("install.md");

/** What stands under a heading, as far as the next one. */
function section(text: string, heading: string): string {
  const [, rest = ""] = text.split(`\n${heading}\n`);
  assert.notEqual(rest, "", heading);
  return rest.split(/\n#{2,4} /)[0] ?? "";
}

/** The one block, or line in the text, that begins like this. */
function command(text: string, beginning: string): string {
  const blocks = [...text.matchAll(/```(?:sh)?\n([^`]*)```/g)].map(([, block = ""]) => block.trim());
  const inline = [...text.replaceAll(/```[^`]*```/g, "").matchAll(/`([^`]+)`/g)].map(([, words = ""]) =>
    words.replaceAll(/\s+/g, " "),
  );
  const found = new Set([...blocks, ...inline].filter((one) => one.startsWith(beginning)));
  assert.equal(found.size, 1, `${beginning}: ${[...found].join("\n")}`);
  return [...found].join("");
}

const IMAGE = command(section(install, "## The image"), "buildah build");
const inPlace = section(install, "### Replacing kubeadm's kube-proxy");
const SET_IMAGE = command(inPlace, "kubectl -n kube-system set image");
const CHECK = command(section(install, "## The image"), "kubectl -n kube-system get configmap");
const PATCH = command(section(install, "### With kubeadm's patches"), "kubectl -n kube-system patch");
const FOLLOW = SET_IMAGE.split("\n")[1] ?? "";
const BACK = command(section(install, "### Back"), "kubectl");
const STATUS = command(section(operations, "## Metrics and alerts"), "kubectl kube-proxy status");
const EXPLAIN = command(section(operations, "### A service does not answer"), "kubectl kube-proxy explain");
const SYSDUMP = command(section(operations, "## Troubleshooting"), "kubectl exec");
const EXPLAIN_DUMP = command(
  section(page("debugging.md"), "## What was this node like when it happened?"),
  "kube-proxy explain",
);

/** The machine's kubectl, but for `exec`, which it leads into the one node's container itself. */
const KUBECTL = `#!/bin/sh
case " $* " in *" exec "*) ;; *) exec "$REAL_KUBECTL" "$@" ;; esac
while [ "$1" != exec ]; do shift; done
shift
while [ "$1" != -- ]; do
  case $1 in kube-proxy-*) pod=$1 ;; esac
  shift
done
shift
exec env -i $IMAGE_ENV "$(command -v nsenter)" --target "$(cat "$FOLDER/$pod")" --mount --pid --root --wd=/ "$@"
`;

test("image, rollout, alert, explain, sysdump, rollback", {
  skip: imageSkip() || (isOnPath("kubectl") ? false : "no kubectl on PATH"),
  timeout: 4 * LIMIT_MS,
}, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-evening-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const bin = join(folder, "bin");
  for (const name of [bin, join(folder, "DUMP")]) mkdirSync(name);
  const pulled = join(folder, "pulled");
  writeFileSync(pulled, "");
  const { storage, build } = await buildahHere();
  const tools = {
    kubectl: KUBECTL,
    buildah: `#!/bin/sh
case $1 in
  build) shift; exec "$REAL_BUILDAH" ${storage.join(" ")} build ${build.join(" ")} "$@" ;;
  push) echo "$2" >> '${pulled}' ;;
esac
`,
  };
  for (const [name, text] of Object.entries(tools)) writeFileSync(join(bin, name), text, { mode: 0o755 });
  for (const name of ["kube-proxy", "kubectl-kube_proxy"]) symlinkSync(join(CHECKOUT, "bin", name), join(bin, name));
  const where = async (name: string) => (await runCommand(["sh", "-c", `command -v ${name}`])).stdout.trim();
  const real = { REAL_KUBECTL: await where("kubectl"), REAL_BUILDAH: await where("buildah") };
  const environment: Record<string, string> = { ...real, FOLDER: folder, PATH: `${bin}:${process.env.PATH}` };
  const shell = (words: string): readonly [string, ...string[]] =>
    [
      ...["env", ...Object.entries(environment).map(([name, value]) => `${name}=${value}`)],
      // Standard output is a pipe then, as /dev/stdout needs it, and no socket.
      ...[
        "bash",
        "--norc",
        "-o",
        "pipefail",
        "-ec",
        `{
${words}
} | cat`,
      ],
    ] as const as readonly [string, ...string[]];

  // The image.
  const tag = /^registry\.example\/\S+$/m.exec(IMAGE.replaceAll(/[ \\]+/g, "\n"))?.[0] ?? "";
  await runCommand(shell(IMAGE), { cwd: CHECKOUT, timeoutMs: LIMIT_MS });
  const image = await openImage(tag);
  t.after(() => image.remove());

  // The cluster, with what stands for upstream's image.
  const namespace = await NetworkNamespace.create(`kpts-evening-${process.pid}`);
  t.after(() => namespace.remove());
  const told = JSON.stringify({ root: image.root, config: image.config });
  const cluster = namespace.spawn([process.execPath, CLUSTER, folder, told, pulled], {
    stdio: ["pipe", "pipe", "pipe"],
  });
  t.after(() => signalChild(cluster));
  let log = "";
  cluster.stderr?.setEncoding("utf8").on("data", (text: string) => {
    log += text;
  });
  assert.ok(cluster.stdout !== null);
  const [line = ""] = await Promise.race([once(createInterface(cluster.stdout), "line"), once(cluster, "exit")]);
  assert.match(String(line), /^\{/, log);
  const kubeconfig = join(folder, "kubeconfig");
  const { url, apiPort } = JSON.parse(String(line)) as { readonly url: string; readonly apiPort: number };
  writeFileSync(kubeconfig, JSON.stringify(kubeconfigFor(url)));
  environment.KUBECONFIG = kubeconfig;
  // As kubelet gives it to each container.
  const kubelets = ["KUBERNETES_SERVICE_HOST=127.0.0.1", `KUBERNETES_SERVICE_PORT=${apiPort}`];
  environment.IMAGE_ENV = [...(image.config.Env as readonly string[]), ...kubelets].join(" ");
  const files = join(folder, "deploy/kubeadm");
  cpSync(join(CHECKOUT, "deploy/kubeadm"), files, { recursive: true });
  const patch = join(files, "kubeproxydaemonset+strategic.yaml");
  // "Write the name of your image into …"
  writeFileSync(patch, readFileSync(patch, "utf8").replace(/image: .*/, `image: ${tag}`));

  /** Names for the words that stand for them in the documents. */
  const names: Record<string, string> = { NODE: "node-a", NAMESPACE: "office", NAME: "node-agent" };
  const run = async (words: string) => {
    const own = words.replaceAll(/\b(?:POD|NODE|NAMESPACE|NAME)\b/g, (word) => names[word] ?? word);
    const result = await namespace.exec(shell(own), { cwd: folder, timeoutMs: LIMIT_MS, allowFailure: true });
    assert.equal(result.status, 0, `${own}\n${result.stdout}${result.stderr}\n${log}`);
    return result.stdout;
  };
  const running = async () => {
    const [pod = "", at = ""] = (
      await run(
        `kubectl -n kube-system get pods -l k8s-app=kube-proxy -o jsonpath='{.items[*].metadata.name} {.items[*].spec.containers[*].image}'`,
      )
    ).split(" ");
    names.POD = pod;
    return at;
  };
  const rules = async () => (await namespace.exec(["iptables-nft-save", "-t", "nat"])).stdout;
  const first = await running();
  assert.match(first, /^registry\.k8s\.io\/kube-proxy:/);

  // The rollout, and back, with the image alone.
  assert.match(await run(CHECK), /^clusterCIDR: 10\.244\.0\.0\/16$/m);
  assert.match(await run(SET_IMAGE), /daemon set "kube-proxy" successfully rolled out/);
  assert.equal(await running(), tag);
  assert.match(await rules(), /KUBE-SVC-/);
  await run(`${BACK}\n${FOLLOW}`);
  assert.equal(await running(), first);

  // Again, with the socket.
  assert.match(await run(`${PATCH}\n${FOLLOW}`), /successfully rolled out/);
  assert.equal(await running(), tag);
  assert.match(await run(STATUS), /node-a/);

  // The alert: a Service has its endpoints elsewhere.
  await firing(folder, "KubeProxyNoLocalEndpoints", await run("curl -sf 127.0.0.1:10249/metrics"));

  // Why.
  assert.match(
    await run(EXPLAIN),
    /^office\/node-agent\S* .* on node-a .*iptables mode \(of the ConfigMap kube-system\/kube-proxy\)/m,
  );
  assert.match(await run(EXPLAIN), /dropped: the policy is Local, and no usable endpoint is on this node/);

  // What another will want to see.
  await run(SYSDUMP);
  await run("tar -xzf node-a.tar.gz -C DUMP --strip-components=1");
  assert.match(await run(EXPLAIN_DUMP), /^shop\/checkout.* on node-a .*\(of the sysdump\)/m);

  // Back.
  await run(`${BACK}\n${FOLLOW}`);
  assert.equal(await running(), first);
  assert.match(await rules(), /KUBE-SVC-/);
});

/** Has Prometheus judge what a node says, said for half an hour. */
async function firing(folder: string, alert: string, metrics: string): Promise<void> {
  const samples = [...metrics.matchAll(/^(kubeproxy_sync_proxy_rules_no_local_endpoints_total)\{([^}]*)\} (\S+)$/gm)];
  assert.ok(samples.length > 0);
  const series = samples.map(([, name, labels, value]) => ({
    series: `${name}{job="kube-proxy", instance="node-a", ${labels}}`,
    values: `${value}x30`,
  }));
  const question = {
    rule_files: [join(CHECKOUT, "deploy/chart/files/rules.yaml")],
    evaluation_interval: "1m",
    tests: [
      {
        interval: "1m",
        input_series: series,
        promql_expr_test: [
          {
            expr: `count(ALERTS{alertname="${alert}", alertstate="firing"})`,
            eval_time: "20m",
            exp_samples: [{ labels: "{}", value: 1 }],
          },
        ],
      },
    ],
  };
  const file = join(folder, "alert.json");
  writeFileSync(file, JSON.stringify(question));
  await runCommand([await findPromtool(), "test", "rules", file]);
}

function kubeconfigFor(url: string): object {
  return {
    apiVersion: "v1",
    kind: "Config",
    "current-context": "evening",
    contexts: [{ name: "evening", context: { cluster: "evening", user: "operator" } }],
    clusters: [{ name: "evening", cluster: { server: url } }],
    users: [{ name: "operator", user: { token: "operator" } }],
  };
}
