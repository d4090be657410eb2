/** Configuration and credentials of a daemon that a bench starts. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { LayoutName } from "../src/dataplane/nftables/layout-name.ts";
import type { ProxyMode } from "../src/dataplane/registry.ts";
import { kubeconfigConf } from "../test/apiserver/kubeadm-files.ts";

/** Writes `config.json` and what it names: `kubeconfig`, `ca.crt` and `token`. */
export function writeDaemonFiles(
  folder: string,
  daemon: {
    readonly url: string;
    readonly ca: string;
    readonly mode: ProxyMode;
    readonly layout?: LayoutName | undefined;
    readonly contentType?: string;
  },
): void {
  const { url, ca, mode, layout, contentType = "" } = daemon;
  const kubeconfig = join(folder, "kubeconfig");
  writeFileSync(join(folder, "ca.crt"), ca);
  writeFileSync(join(folder, "token"), "token");
  writeFileSync(kubeconfig, kubeconfigConf(url).replaceAll("/var/run/secrets/kubernetes.io/serviceaccount", folder));
  const config = {
    apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
    kind: "KubeProxyConfiguration",
    mode,
    ...(layout && { nftables: { layout } }),
    clusterCIDR: "10.128.0.0/9",
    clientConnection: { kubeconfig, contentType },
    conntrack: { maxPerCore: 0, min: 0, tcpEstablishedTimeout: "0s", tcpCloseWaitTimeout: "0s" },
  };
  writeFileSync(join(folder, "config.json"), JSON.stringify(config));
}
