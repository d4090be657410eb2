/**
 * How to reach the API server and who to be there: what a kubeconfig, the pod's environment and `--master` come down to.
 * Files are only named here; `identity.ts` reads them, again and again, because they are rotated.
 */

/** PEM or token text, or the file that has it. */
export type Material =
  | { readonly kind: "file"; readonly path: string }
  | { readonly kind: "data"; readonly text: string };

/** A program that gives credentials (client.authentication.k8s.io). */
export interface ExecPlugin {
  readonly apiVersion: "client.authentication.k8s.io/v1" | "client.authentication.k8s.io/v1beta1";
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Printed when the program is not there; may be empty. */
  readonly installHint: string;
  readonly provideClusterInfo: boolean;
}

/** How requests say who sends them, beside a client certificate. */
export type Authentication =
  | { readonly kind: "none" }
  | { readonly kind: "token"; readonly token: string }
  | { readonly kind: "tokenFile"; readonly path: string }
  | { readonly kind: "basic"; readonly username: string; readonly password: string }
  | { readonly kind: "exec"; readonly plugin: ExecPlugin };

export interface ClientConfig {
  /** With the path prefix that all API paths come after, if any; `https:` or `http:`. */
  readonly server: URL;
  /** `undefined` trusts what the system trusts. */
  readonly ca: Material | undefined;
  readonly isServerVerified: boolean;
  /** The name that the server's certificate must have; `undefined` means the host of the URL. */
  readonly serverName: string | undefined;
  /** `undefined` leaves it to HTTPS_PROXY and its kin. */
  readonly proxyUrl: string | undefined;
  /** `disable-compression`: answers are asked for as they are, where bandwidth is cheaper than processor time. */
  readonly isCompressionDisabled?: boolean;
  /** What the cluster's extension `client.authentication.k8s.io/exec` holds for plugins; of any form. */
  readonly execConfig?: unknown;
  readonly clientCertificate: { readonly certificate: Material; readonly key: Material } | undefined;
  readonly authentication: Authentication;
  /** The kubeconfig's context, where it names one: for people who leave it out. */
  readonly namespace?: string;
  /** `Impersonate-…` headers. */
  readonly impersonation: Readonly<Record<string, string | readonly string[]>>;
}

/** A client configuration that cannot work until it is changed. One line that says where and what. */
export class ClientConfigError extends Error {
  override readonly name = "ClientConfigError";
}

/**
 * Reads the address of an API server the way upstream does: a host without a scheme is `http://` unless TLS settings
 * make it `https://`. Pure.
 *
 * @param where for the message: `--master`, or the field of the kubeconfig.
 * @throws {@link ClientConfigError}
 */
export function parseServerUrl(text: string, where: string, hasTlsSettings: boolean): URL {
  const full = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `${hasTlsSettings ? "https" : "http"}://${text}`;
  const url = URL.canParse(full) ? new URL(full) : undefined;
  if (url === undefined || (url.protocol !== "https:" && url.protocol !== "http:") || url.hostname === "") {
    throw new ClientConfigError(
      `${where} must be the URL of an API server such as https://10.0.0.1:6443, got "${text}"`,
    );
  }
  if (url.search !== "" || url.hash !== "") {
    throw new ClientConfigError(`${where} must be a URL without "?" and "#", got "${text}"`);
  }
  return url;
}

/** Where nothing but the address is said. */
export const UNSAID: Omit<ClientConfig, "server"> = {
  ca: undefined,
  isServerVerified: true,
  serverName: undefined,
  proxyUrl: undefined,
  clientCertificate: undefined,
  authentication: { kind: "none" },
  impersonation: {},
};
