/** What the configuration says of the host, with the environment and upstream's defaults. Reference windows.md §1.1, §1.3. */
import { splitHostPort } from "../../config/bind-address.ts";
import type { KubeProxyConfig } from "../../config/config.ts";
import { ROOT_ENDPOINT_NAME } from "./config.ts";

/** The HNS network of the pods; empty when neither the configuration nor the environment names one. */
export function networkNameOf(config: KubeProxyConfig | undefined, env: NodeJS.ProcessEnv = process.env): string {
  return config?.winkernel.networkName || (env.KUBE_NETWORK ?? "");
}

/** The HNS endpoint of the node itself. Pure. */
export function rootEndpointNameOf({ winkernel }: KubeProxyConfig): string {
  return winkernel.rootHnsEndpointName || ROOT_ENDPOINT_NAME;
}

/** The port of the proxy's own health server; 0 when there is none. Pure. */
export function healthPortOf({ healthzBindAddress }: KubeProxyConfig): number {
  const port = Number(splitHostPort(healthzBindAddress)?.port ?? 0);
  return Number.isInteger(port) ? port : 0;
}
