/** Loads the client configuration that flags and configuration file select (reference operation.md §8.1). */
import { readFile } from "node:fs/promises";
import { isIPv6 } from "node:net";
import type { Logger } from "../../../../logging/logger.ts";
import { messageOf } from "../../../../logging/message-of.ts";
import { configTextOf, TextSyntaxError } from "../../../../text/decode-text.ts";
import { type ClientConfig, ClientConfigError, parseServerUrl, UNSAID } from "./client-config.ts";
import { resolveKubeconfig } from "./kubeconfig.ts";

interface LoadClientConfigOptions {
  /** Path; empty if there is none. Several are merged as in kubectl. */
  readonly kubeconfig: string | readonly string[];
  /** `--master`; empty if not given. */
  readonly master: string;
  /** @default the process's environment */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** @default the kubeconfig's current context */
  readonly context?: string | undefined;
  readonly log: Logger;
}

/**
 * Reads the kubeconfig, or uses the in-cluster configuration if neither kubeconfig nor master is given. Does not read
 * the files that the configuration names.
 *
 * @throws ClientConfigError with one line that says what to change.
 */
export async function loadClientConfig(options: LoadClientConfigOptions): Promise<ClientConfig> {
  const { kubeconfig, master, log } = options;
  const paths = [kubeconfig].flat().filter((path) => path !== "");
  if (paths.length === 0 && master === "") {
    log.info("Neither kubeconfig file nor master URL was specified, falling back to in-cluster config");
    return inClusterConfig(options.env ?? process.env);
  }
  if (paths.length > 0) {
    const files = await Promise.all(paths.map(async (path) => ({ path, content: await decode(path) })));
    return resolveKubeconfig({ files, master, context: options.context });
  }
  return { ...UNSAID, server: parseServerUrl(master, "--master", false) };
}

async function decode(path: string): Promise<unknown> {
  const bytes = await readFile(path).catch((cause: unknown) => {
    const message = `cannot read the kubeconfig: ${messageOf(cause)}: check clientConnection.kubeconfig`;
    throw new ClientConfigError(message, { cause });
  });
  const { readConfigText } = await import("../../../../text/upstream-yaml.ts");
  try {
    return readConfigText(configTextOf(bytes)).root;
  } catch (error) {
    if (!(error instanceof TextSyntaxError)) throw error;
    throw new ClientConfigError(`invalid configuration: kubeconfig ${path}: ${withoutQuotes(error.message)}`);
  }
}

/** A parser quotes what it does not understand, in a kubeconfig perhaps a part of a secret. */
function withoutQuotes(message: string): string {
  const [, line = "", rest = message] = /^((?:yaml: )?(?:line \d+: )?)(.*)$/s.exec(message) ?? [];
  if (/json/i.test(rest)) return `it begins with "{" but is not valid JSON`;
  return `${line}${rest.replace(/(?:: |(?<=anchor|escape sequence|character) |").*$/s, "")}`;
}

const SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount";

/**
 * The API server of the cluster that this pod runs in, with the pod's own token. The files are read later.
 *
 * @throws ClientConfigError with upstream's text outside a pod.
 */
function inClusterConfig(env: Readonly<Record<string, string | undefined>>): ClientConfig {
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
    ...UNSAID,
    server: parseServerUrl(address, "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT", true),
    ca: { kind: "file", path: `${SERVICE_ACCOUNT}/ca.crt` },
    authentication: { kind: "tokenFile", path: `${SERVICE_ACCOUNT}/token` },
  };
}
