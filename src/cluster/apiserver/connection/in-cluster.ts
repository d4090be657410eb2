/** The configuration that Kubernetes gives to every pod (reference operation.md §8.1). */
import { isIPv6 } from "node:net";
import { type ClientConfig, ClientConfigError, parseServerUrl } from "./client-config.ts";

const SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount";

interface InClusterOptions {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Where token and CA are mounted. @default the place that Kubernetes uses */
  readonly serviceAccountDir?: string;
}

/**
 * The API server of the cluster that this pod runs in, with the pod's own token. Pure: the files are read later.
 *
 * @throws ClientConfigError with upstream's text when this is not a pod.
 */
export function inClusterConfig({ env, serviceAccountDir = SERVICE_ACCOUNT }: InClusterOptions): ClientConfig {
  const host = env.KUBERNETES_SERVICE_HOST ?? "";
  const port = env.KUBERNETES_SERVICE_PORT ?? "";
  if (host === "" || port === "") {
    throw new ClientConfigError(
      "unable to load in-cluster configuration, KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined: " +
        "outside of a pod, name a kubeconfig with clientConnection.kubeconfig or --kubeconfig",
    );
  }
  const address = `https://${isIPv6(host) ? `[${host}]` : host}:${port}`;
  return {
    server: parseServerUrl(address, "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT", true),
    ca: { kind: "file", path: `${serviceAccountDir}/ca.crt` },
    isServerVerified: true,
    serverName: undefined,
    proxyUrl: undefined,
    clientCertificate: undefined,
    authentication: { kind: "tokenFile", path: `${serviceAccountDir}/token` },
    impersonation: {},
  };
}
