/**
 * How to reach the API server and authenticate: the result of a kubeconfig, the pod's environment and `--master`.
 * This only names files; `identity.ts` reads them, repeatedly because they are rotated.
 */
import { withoutSecrets, withoutUserInfo } from "../../../../logging/secrets.ts";

/** PEM or token text, or the file that contains it. */
export type Material =
  | { readonly kind: "file"; readonly path: string }
  | { readonly kind: "data"; readonly text: string };

/** A credential plugin (client.authentication.k8s.io). */
export interface ExecPlugin {
  readonly apiVersion: "client.authentication.k8s.io/v1" | "client.authentication.k8s.io/v1beta1";
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Printed if the program is missing; may be empty. */
  readonly installHint: string;
  readonly provideClusterInfo: boolean;
}

/** How requests authenticate, apart from a client certificate. */
export type Authentication =
  | { readonly kind: "none" }
  | { readonly kind: "token"; readonly token: string }
  | { readonly kind: "tokenFile"; readonly path: string }
  | { readonly kind: "basic"; readonly username: string; readonly password: string }
  | { readonly kind: "exec"; readonly plugin: ExecPlugin };

export interface ClientConfig {
  /** `https:` or `http:`, with the prefix of all API paths, if any. */
  readonly server: URL;
  /** `undefined`: the system's CAs. */
  readonly ca: Material | undefined;
  readonly isServerVerified: boolean;
  /** The name that the server's certificate must contain; `undefined`: the host of the URL. */
  readonly serverName: string | undefined;
  /** `undefined`: as HTTPS_PROXY, HTTP_PROXY and NO_PROXY say. */
  readonly proxyUrl: string | undefined;
  /** `disable-compression`: requests uncompressed responses, for networks where bandwidth is cheaper than CPU time. */
  readonly isCompressionDisabled?: boolean;
  /** The cluster's extension `client.authentication.k8s.io/exec`, which is passed to plugins; any JSON. */
  readonly execConfig?: unknown;
  readonly clientCertificate: { readonly certificate: Material; readonly key: Material } | undefined;
  readonly authentication: Authentication;
  /** The namespace of the kubeconfig's context, if it has one: the default for commands. */
  readonly namespace?: string;
  /** `Impersonate-…` headers. */
  readonly impersonation: Readonly<Record<string, string | readonly string[]>>;
}

/** A client configuration that cannot work until it is changed. The message is one line with place and problem. */
export class ClientConfigError extends Error {
  override readonly name = "ClientConfigError";
}

/**
 * Parses the address of an API server as upstream does: without a scheme it is `https://` if there are TLS settings,
 * otherwise `http://`.
 *
 * @param where the source of the address, for messages: `--master`, or the field of the kubeconfig.
 * @throws {@link ClientConfigError}
 */
export function parseServerUrl(text: string, where: string, hasTlsSettings: boolean): URL {
  const full = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `${hasTlsSettings ? "https" : "http"}://${text}`;
  const url = URL.canParse(full) ? new URL(full) : undefined;
  if (url === undefined || (url.protocol !== "https:" && url.protocol !== "http:") || url.hostname === "") {
    throw new ClientConfigError(
      `${where} must be the URL of an API server such as https://10.0.0.1:6443, got "${withoutSecrets(withoutUserInfo(text))}"`,
    );
  }
  if (url.search !== "" || url.hash !== "") {
    throw new ClientConfigError(
      `${where} must be a URL without "?" and "#", got "${withoutSecrets(withoutUserInfo(text))}"`,
    );
  }
  return url;
}

/** The defaults of everything but the address. */
export const UNSAID: Omit<ClientConfig, "server"> = {
  ca: undefined,
  isServerVerified: true,
  serverName: undefined,
  proxyUrl: undefined,
  clientCertificate: undefined,
  authentication: { kind: "none" },
  impersonation: {},
};
