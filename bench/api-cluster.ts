/** The tests' API server with the cluster of cluster.ts, and a kube-proxy that follows it, both in this process's namespace. */
import type { LayoutName } from "../src/modes/nftables/layout-name.ts";
import { ApiDaemon, PROGRAM } from "../test/apiserver/api-daemon.ts";
import { node, serviceCidr } from "../test/apiserver/example-objects.ts";
import { CONFIG_CONF } from "../test/apiserver/kubeadm-files.ts";
import { RESOURCE_TYPES } from "../test/apiserver/resource-types.ts";
import { TestApiServer } from "../test/apiserver/test-api-server.ts";
import { PROTOBUF_WIRE } from "../test/apiserver/wire-format.ts";
import { apiService, apiSlice } from "./api-objects.ts";
import type { ClusterSize } from "./driver.ts";

/** Simulates a server started in a cluster that already had all objects, with both formats at hand. */
export async function startApiServer(
  { services, endpointsEach }: ClusterSize,
  address: string,
): Promise<TestApiServer> {
  const server = await TestApiServer.start();
  server.put("nodes", node("node-a", address));
  server.put("servicecidrs", serviceCidr());
  for (let index = 0; index < services; index += 1) {
    server.put("services", apiService(index));
    server.put("endpointslices", apiSlice(index, endpointsEach, 0, Date.now()));
  }
  server.store.restart();
  for (const plural of ["services", "endpointslices"] as const) {
    const { [plural]: type } = RESOURCE_TYPES;
    for (const version of server.store.objects(plural).values()) PROTOBUF_WIRE.event("ADDED", type, version);
  }
  return server;
}

export interface DaemonTask {
  readonly mode: string;
  /** Only this program has layouts. @default the mode's default */
  readonly layout?: LayoutName;
  /** The absolute path of any kube-proxy. @default this one, as built */
  readonly program?: string;
  readonly contentType?: string;
}

export function startDaemon(
  { url, authority }: TestApiServer,
  { mode, layout, program, contentType = "" }: DaemonTask,
): ApiDaemon {
  const layoutLine = layout === undefined ? "" : `\n  layout: ${layout}`;
  const config = CONFIG_CONF.replace('mode: ""', `mode: ${mode}`)
    .replace("nftables:", `nftables:${layoutLine}`)
    .replace('contentType: ""', `contentType: "${contentType}"`);
  const started = program === undefined ? PROGRAM : [program];
  return new ApiDaemon({ url, ca: authority.certificate, config, program: started, args: ["-v=2"] });
}

export const hasEnded = ({ child }: ApiDaemon): boolean => child.exitCode !== null || child.signalCode !== null;
