/**
 * An API server with the cluster and the daemon that follows it, both in the namespace of this process. Arguments: the size
 * as JSON, the node's address, the proxy mode. Says `ready` after the first sync; then reads lines `NUMBER ADDRESS`, adds the service with
 * this number and endpoint, and writes when it did, in nanoseconds of `process.hrtime`.
 */
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { ApiDaemon } from "../test/apiserver/api-daemon.ts";
import { CONFIG_CONF } from "../test/apiserver/kubeadm-files.ts";
import { TestApiServer } from "../test/apiserver/test-api-server.ts";
import { type ClusterSize, clusterObjects, nodeObject, serviceObjects } from "./connection-cluster.ts";

const KUBE_PROXY = fileURLToPath(new URL("../bin/kube-proxy", import.meta.url));
const START_LIMIT_MS = 120_000;

const [size = "", address = "", mode = ""] = process.argv.slice(2);
const server = await TestApiServer.start();
const put = ({ service, slice }: ReturnType<typeof serviceObjects>): void => {
  server.put("services", service);
  server.put("endpointslices", slice);
};
server.put("nodes", nodeObject(address));
for (const objects of clusterObjects(JSON.parse(size) as ClusterSize)) put(objects);
const config = CONFIG_CONF.replace('mode: ""', `mode: ${mode}`);
async function hasSynced(): Promise<boolean> {
  const metrics = await fetch("http://127.0.0.1:10249/metrics").then(
    (answer) => answer.text(),
    () => "",
  );
  return metrics.includes('kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"}');
}

const daemon = new ApiDaemon({ url: server.url, ca: server.authority.certificate, config, program: [KUBE_PROXY] });
try {
  await daemon.until("the first sync", hasSynced, START_LIMIT_MS);
  process.stdout.write("ready\n");
  for await (const line of createInterface({ input: process.stdin })) {
    const [number, endpoint = ""] = line.split(" ");
    const objects = serviceObjects(Number(number), [endpoint]);
    const startNs = process.hrtime.bigint();
    put(objects);
    process.stdout.write(`${startNs}\n`);
  }
} finally {
  await daemon.dispose();
  await server.close();
}
