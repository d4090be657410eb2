/**
 * Kubeconfig files → {@link ClientConfig}. As upstream: only the current context counts, relative paths start at the
 * file's folder, and a setting may not be given both as data and as a file.
 */
import { dirname, isAbsolute, resolve } from "node:path";
import { withoutUserInfo } from "../../../../logging/secrets.ts";
import {
  booleanField,
  isAbsent,
  isJsonObject,
  itemsField,
  type JsonObject,
  listField,
  objectField,
  stringField,
} from "../../../../model/projection/fields.ts";
import { type Findings, formatSecretProblem, newFindings, refuse } from "../../../../model/projection/findings.ts";
import {
  type Authentication,
  type ClientConfig,
  ClientConfigError,
  type ExecPlugin,
  type Material,
  parseServerUrl,
} from "./client-config.ts";

interface KubeconfigFile {
  /** Resolves relative paths in the file, and names the file in messages. */
  readonly path: string;
  readonly content: unknown;
}

interface KubeconfigOptions {
  /** Merged as kubectl merges `$KUBECONFIG`: for each name, and for the current context, the first file wins. */
  readonly files: readonly KubeconfigFile[];
  /** Overrides the cluster's `server` unless empty. */
  readonly master: string;
  /** @default the file's current context */
  readonly context?: string | undefined;
}

/** Resolves a context. @throws ClientConfigError naming the file and the field. */
export function resolveKubeconfig({ files, master, context: chosen }: KubeconfigOptions): ClientConfig {
  const found = newFindings();
  const fail = failing(files.map(({ path }) => path).join(", "));
  const sources = files.flatMap((file) => sourceOf(file, found) ?? []);
  if (sources.length === 0) fail("the file is empty: no configuration has been provided");
  const contextName = chosen ?? currentContext(sources, found);
  if (contextName === "") fail("current-context is not set: name one of the contexts");
  const find = (list: string, inner: string, name: string, wantedBy: string): Entry =>
    named(sources, list, inner, name) ?? fail(`${wantedBy} "${name}" is not among the ${list}`);
  const { value: context, reader } = find(
    "contexts",
    "context",
    contextName,
    chosen === undefined ? "current-context" : "context",
  );
  const clusterName = stringField(found, context.cluster, `context "${contextName}": cluster`);
  const userName = stringField(found, context.user, `context "${contextName}": user`);
  if (clusterName === "") reader.fail(`cluster was not specified for context "${contextName}"`);
  const clusterEntry = find("clusters", "cluster", clusterName, "cluster");
  const cluster = readCluster(clusterEntry.reader, clusterEntry.value, clusterName, master);
  const userEntry = userName === "" ? { value: {}, reader } : find("users", "user", userName, "user");
  const { impersonation, ...user } = readUser(userEntry.reader, userEntry.value, userName);
  const namespace = stringField(found, context.namespace, `context "${contextName}": namespace`);
  const problem = found.problems[0];
  // Any part of a kubeconfig may contain a secret, and a mistake may place it anywhere.
  if (problem !== undefined) fail(formatSecretProblem(problem));
  // As upstream: credentials are sent over TLS only.
  const who = cluster.server.protocol === "https:" ? user : ANONYMOUS;
  return { ...cluster, ...who, impersonation, ...(namespace !== "" && { namespace }) };
}

const ANONYMOUS = { clientCertificate: undefined, authentication: { kind: "none" } } as const;

function failing(path: string): Reader["fail"] {
  return (message) => {
    throw new ClientConfigError(`invalid configuration: kubeconfig ${path}: ${message}`);
  };
}

interface Reader {
  readonly found: Findings;
  readonly folder: string;
  readonly fail: (message: string) => never;
}

/** An object and the file that contains it; paths in the object are relative to that file's folder. */
interface Entry {
  readonly value: JsonObject;
  readonly reader: Reader;
}

/** The file's whole content; undefined if it is empty. */
function sourceOf({ path, content }: KubeconfigFile, found: Findings): Entry | undefined {
  if (isAbsent(content)) return undefined;
  const reader: Reader = { found, folder: dirname(path), fail: failing(path) };
  if (!isJsonObject(content)) return reader.fail("must be a Config object, not a plain value");
  return { value: content, reader };
}

/** The current context of the first file that sets one; empty if none does. */
function currentContext(sources: readonly Entry[], found: Findings): string {
  const names = sources.map(({ value }) => stringField(found, value["current-context"], "current-context"));
  return names.find((name) => name !== "") ?? "";
}

/** Finds an entry in a list of `{ name, [inner]: … }`; the first of several with that name, as upstream. */
function named(sources: readonly Entry[], list: string, inner: string, name: string): Entry | undefined {
  for (const { value: content, reader } of sources) {
    const { found } = reader;
    for (const [index, item] of listField(found, content[list], list).entries()) {
      const entry = objectField(found, item, `${list}[${index}]`);
      if (entry.name !== name) continue;
      return { value: objectField(found, entry[inner], `${list}[${index}].${inner}`), reader };
    }
  }
  return undefined;
}

/** The cluster's configuration for the plugins of all users. */
const EXEC_EXTENSION = "client.authentication.k8s.io/exec";

function readCluster(reader: Reader, cluster: JsonObject, name: string, master: string) {
  const { found, fail } = reader;
  const where = `cluster "${name}"`;
  const ca = material(reader, cluster, "certificate-authority", where);
  const isInsecure = booleanField(found, cluster["insecure-skip-tls-verify"], `${where}: insecure-skip-tls-verify`);
  if (isInsecure && ca !== undefined) {
    fail(`${where}: a certificate-authority together with insecure-skip-tls-verify is not allowed: remove one of them`);
  }
  const server = stringField(found, cluster.server, `${where}: server`);
  if (server === "" && master === "") fail(`no server found for ${where}`);
  const serverName = stringField(found, cluster["tls-server-name"], `${where}: tls-server-name`);
  const proxyUrl = stringField(found, cluster["proxy-url"], `${where}: proxy-url`);
  const isUncompressed = booleanField(found, cluster["disable-compression"], `${where}: disable-compression`);
  if (proxyUrl !== "" && !(/^https?:\/\//.test(proxyUrl) && URL.canParse(proxyUrl))) {
    const rule = "must be an http:// or https:// URL (other kinds of proxy are not supported)";
    fail(`${where}: proxy-url ${rule}, got "${withoutUserInfo(proxyUrl)}"`);
  }
  const extensions = listField(found, cluster.extensions, `${where}: extensions`).filter(isJsonObject);
  const execConfig = extensions.find((one) => one.name === EXEC_EXTENSION)?.extension;
  const hasTlsSettings = ca !== undefined || isInsecure;
  return {
    server:
      master === ""
        ? parseServerUrl(server, `kubeconfig: ${where}: server`, hasTlsSettings)
        : parseServerUrl(master, "--master", hasTlsSettings),
    ca,
    isServerVerified: !isInsecure,
    // It belongs to the server that the file names.
    serverName: serverName === "" || master !== "" ? undefined : serverName,
    proxyUrl: proxyUrl === "" ? undefined : proxyUrl,
    ...(isUncompressed ? { isCompressionDisabled: true } : {}),
    ...(isAbsent(execConfig) ? {} : { execConfig }),
  };
}

function readUser(reader: Reader, user: JsonObject, name: string) {
  const { fail } = reader;
  const where = `user "${name}"`;
  const certificate = material(reader, user, "client-certificate", where);
  const key = material(reader, user, "client-key", where);
  if (certificate !== undefined && key === undefined) {
    fail(`client-key-data or client-key must be specified for ${where} to use the client certificate`);
  }
  const clientCertificate = certificate === undefined || key === undefined ? undefined : { certificate, key };
  const authentication = readAuthentication(reader, user, where);
  return {
    clientCertificate,
    // As upstream: with a client certificate the plugin is not run.
    authentication: clientCertificate && authentication.kind === "exec" ? ANONYMOUS.authentication : authentication,
    impersonation: readImpersonation(reader, user, where),
  };
}

function readAuthentication(reader: Reader, user: JsonObject, where: string): Authentication {
  const { found, folder, fail } = reader;
  const token = stringField(found, user.token, `${where}: token`);
  const tokenFile = stringField(found, user.tokenFile, `${where}: tokenFile`);
  const username = stringField(found, user.username, `${where}: username`);
  const password = stringField(found, user.password, `${where}: password`);
  const hasBasic = username !== "" || password !== "";
  if (token !== "" && hasBasic)
    fail(`${where}: more than one authentication method found: token and username/password`);
  if (!isAbsent(user["auth-provider"])) {
    const provider = objectField(found, user["auth-provider"], `${where}: auth-provider`);
    const name = typeof provider.name === "string" ? ` "${provider.name}"` : "";
    fail(`${where}: auth-provider${name} is not supported: use exec, tokenFile or a client certificate`);
  }
  // Upstream's order: a token file wins over a token, and both over the plugin.
  if (tokenFile !== "") return { kind: "tokenFile", path: resolve(folder, tokenFile) };
  if (token !== "") return { kind: "token", token };
  if (hasBasic) return { kind: "basic", username, password };
  if (isAbsent(user.exec)) return { kind: "none" };
  return {
    kind: "exec",
    plugin: readExecPlugin(found, folder, objectField(found, user.exec, `${where}: exec`), where),
  };
}

function readImpersonation(reader: Reader, user: JsonObject, where: string): ClientConfig["impersonation"] {
  const { found, fail } = reader;
  const headers: Record<string, string | readonly string[]> = {};
  const name = stringField(found, user.as, `${where}: as`);
  const uid = stringField(found, user["as-uid"], `${where}: as-uid`);
  const groups = texts(found, user["as-groups"], `${where}: as-groups`);
  const extra = objectField(found, user["as-user-extra"], `${where}: as-user-extra`);
  if (name === "" && (groups.length > 0 || uid !== "" || Object.keys(extra).length > 0)) {
    fail(`${where}: as-uid, as-groups and as-user-extra need "as", the user to impersonate`);
  }
  if (name !== "") headers["Impersonate-User"] = name;
  if (uid !== "") headers["Impersonate-Uid"] = uid;
  if (groups.length > 0) headers["Impersonate-Group"] = groups;
  for (const [key, value] of Object.entries(extra)) {
    headers[`Impersonate-Extra-${encodeURIComponent(key)}`] = texts(found, value, `${where}: as-user-extra.${key}`);
  }
  return headers;
}

/** `KEY-data` (base64), or the file that `KEY` names. */
function material(
  { found, folder, fail }: Reader,
  object: JsonObject,
  key: string,
  where: string,
): Material | undefined {
  const path = stringField(found, object[key], `${where}: ${key}`);
  const data = stringField(found, object[`${key}-data`], `${where}: ${key}-data`);
  if (path !== "" && data !== "") fail(`${where}: ${key} and ${key}-data are both specified: remove one of them`);
  if (data !== "") {
    const text = Buffer.from(data, "base64").toString("latin1");
    if (!text.includes("-----BEGIN ")) fail(`${where}: ${key}-data must be the base64 text of a PEM file`);
    return { kind: "data", text };
  }
  return path === "" ? undefined : { kind: "file", path: from(folder, path) };
}

/** Keeps an absolute path as it is: normalizing `..` after a symbolic link would change its target. */
function from(folder: string, path: string): string {
  return isAbsolute(path) ? path : resolve(folder, path);
}

/** As upstream, an item without a value is an empty string. */
function texts(found: Findings, value: unknown, field: string): readonly string[] {
  return itemsField(found, value, field, (item) => stringField(found, item, ""));
}

const API_VERSIONS = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"] as const;
const INTERACTIVE_MODES = ["Never", "IfAvailable", "Always"];

/**
 * Reads the `exec` section of a user; adds problems to `found`.
 *
 * @param folder of the kubeconfig: resolves a relative command that contains a slash.
 */
function readExecPlugin(found: Findings, folder: string, exec: JsonObject, where: string): ExecPlugin {
  const field = (name: string): string => `${where}: exec.${name}`;
  const version = stringField(found, exec.apiVersion, field("apiVersion"));
  const apiVersion = API_VERSIONS.find((known) => known === version);
  if (apiVersion === undefined) refuse(found, field("apiVersion"), `must be ${API_VERSIONS.join(" or ")}`, version);
  const command = stringField(found, exec.command, field("command"));
  if (command === "") refuse(found, field("command"), "must name the program to run", exec.command);
  const mode = stringField(found, exec.interactiveMode, field("interactiveMode"));
  if (mode === "Always") refuse(found, field("interactiveMode"), "must not be Always: there is no terminal here", mode);
  else if (mode === "" ? apiVersion === API_VERSIONS[0] : !INTERACTIVE_MODES.includes(mode)) {
    refuse(found, field("interactiveMode"), "must be Never or IfAvailable", exec.interactiveMode);
  }
  return {
    apiVersion: apiVersion ?? API_VERSIONS[0],
    command: command.includes("/") ? from(folder, command) : command,
    args: texts(found, exec.args, field("args")),
    env: Object.fromEntries(itemsField(found, exec.env, field("env"), (item) => envEntry(found, item))),
    installHint: stringField(found, exec.installHint, field("installHint")),
    provideClusterInfo: exec.provideClusterInfo === true,
  };
}

function envEntry(found: Findings, item: unknown): readonly [name: string, value: string] | undefined {
  const entry = objectField(found, item, "");
  const name = stringField(found, entry.name, "name");
  if (name !== "") return [name, stringField(found, entry.value, "value")];
  refuse(found, "name", "must be there", entry.name);
  return undefined;
}
