/** The cluster information that a plugin receives, which may differ between the clusters of one kubeconfig. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../../../../async/clock.ts";
import { silentLogger } from "../../../../logging/logger.ts";
import { resolveKubeconfig } from "../connection/kubeconfig.ts";
import { createIdentity } from "./identity.ts";

const apiVersion = "client.authentication.k8s.io/v1";

const kubeconfig = (cluster: object) => ({
  "current-context": "c",
  contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
  clusters: [{ name: "c", cluster: { server: "https://cp.example:6443", ...cluster } }],
  users: [
    {
      name: "u",
      user: { exec: { apiVersion, command: "get-token", interactiveMode: "Never", provideClusterInfo: true } },
    },
  ],
});

async function toldOf(cluster: object): Promise<unknown> {
  const content = kubeconfig(cluster);
  const config = resolveKubeconfig({ files: [{ path: "/etc/kp/kubeconfig", content }], master: "" });
  let told: unknown;
  const run = async (_file: string, _args: readonly string[], env: NodeJS.ProcessEnv): Promise<string> => {
    told = JSON.parse(env.KUBERNETES_EXEC_INFO ?? "").spec.cluster;
    return JSON.stringify({ apiVersion, kind: "ExecCredential", status: { token: "t" } });
  };
  await createIdentity({ config, clock: systemClock, log: silentLogger, run }).current();
  return told;
}

test("a plugin hears what the cluster's extension says to it, and that nothing is compressed", async () => {
  const extensions = [
    { name: "other.example", extension: 7 },
    { name: "client.authentication.k8s.io/exec", extension: { audience: "06e3fbd18de8" } },
  ];
  assert.deepEqual(await toldOf({ extensions, "disable-compression": true }), {
    server: "https://cp.example:6443",
    "disable-compression": true,
    config: { audience: "06e3fbd18de8" },
  });
});

test("a cluster without such an extension says nothing more", async () => {
  assert.deepEqual(await toldOf({}), { server: "https://cp.example:6443" });
});
