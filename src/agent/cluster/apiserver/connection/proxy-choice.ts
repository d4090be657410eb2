/**
 * Chooses the HTTP proxy of a connection to the API server: `proxy-url` of the kubeconfig, otherwise the environment as
 * Go programs read it. kubeadm copies its host's HTTPS_PROXY and NO_PROXY into the DaemonSet, including prefixes such
 * as 10.96.0.0/12, which the NO_PROXY parser of Node.js does not support.
 */
import { cidrContains, type IpAddress, isLoopback, parseCidr, parseIpAddress } from "../../../../net/ip.ts";

type Environment = Readonly<Record<string, string | undefined>>;

/** The URL of the proxy; `undefined` for a direct connection. */
export function proxyFor(server: URL, proxyUrl: string | undefined, env: Environment): string | undefined {
  if (proxyUrl !== undefined) return proxyUrl;
  const name = server.protocol === "https:" ? "https_proxy" : "http_proxy";
  const proxy = env[name.toUpperCase()] || env[name] || "";
  if (proxy === "" || isExcluded(server, env.NO_PROXY || env.no_proxy || "")) return undefined;
  return /^[a-z][a-z0-9+.-]*:\/\//i.test(proxy) ? proxy : `http://${proxy}`;
}

function isExcluded(server: URL, noProxy: string): boolean {
  const host = server.hostname.replace(/^\[|\]$/g, "").toLowerCase();
  const address = parseIpAddress(host);
  if (host === "localhost" || (address !== undefined && isLoopback(address))) return true;
  const port = server.port === "" ? (server.protocol === "https:" ? "443" : "80") : server.port;
  return noProxy.split(",").some((entry) => matches(entry.trim().toLowerCase(), host, address, port));
}

function matches(entry: string, host: string, address: IpAddress | undefined, port: string): boolean {
  if (entry === "") return false;
  if (entry === "*") return true;
  const cidr = parseCidr(entry);
  if (cidr !== undefined) return address !== undefined && cidrContains(cidr, address);
  const { name, wantedPort } = splitPort(entry);
  if (wantedPort !== undefined && wantedPort !== port) return false;
  const wanted = parseIpAddress(name);
  if (wanted !== undefined) return wanted === address;
  const domain = name.replace(/^\*/, "");
  if (domain.startsWith(".")) return host.endsWith(domain);
  return host === domain || host.endsWith(`.${domain}`);
}

function splitPort(entry: string): { readonly name: string; readonly wantedPort: string | undefined } {
  const parts = /^(?:\[(.*)\]|([^:]*)):(\d+)$/.exec(entry);
  if (parts === null) return { name: entry.replace(/^\[|\]$/g, ""), wantedPort: undefined };
  return { name: parts[1] ?? parts[2] ?? "", wantedPort: parts[3] };
}
